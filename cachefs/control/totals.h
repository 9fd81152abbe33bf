/* totals: sums over what the origins of all volumes counted, of those that have ended too. */
#ifndef CONTROL_TOTALS_H
#define CONTROL_TOTALS_H

#include <stdint.h>

#include "fs/volume.h"

struct origin_totals {
	uint64_t gets, heads, lists, bytes, retries;
};

uint64_t outcomes_sum(const uint64_t outcomes[ORIGIN_OUTCOMES]);
void origin_totals_add(struct origin_totals *totals, const struct origin_stats *stats);

#endif
