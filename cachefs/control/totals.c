#include "totals.h"

uint64_t outcomes_sum(const uint64_t outcomes[ORIGIN_OUTCOMES])
{
	uint64_t sum = 0;

	for (size_t i = 0; i < ORIGIN_OUTCOMES; i++)
		sum += outcomes[i];
	return sum;
}

void origin_totals_add(struct origin_totals *totals, const struct origin_stats *stats)
{
	totals->gets += outcomes_sum(stats->gets);
	totals->heads += outcomes_sum(stats->heads);
	totals->lists += outcomes_sum(stats->lists);
	totals->bytes += stats->bytes;
	totals->retries += stats->retries;
}
