/* waits: what a volume's requests waited for, as JSON and as metrics. */
#ifndef CONTROL_WAITS_H
#define CONTROL_WAITS_H

#include <jansson.h>

#include "base/buf.h"
#include "cache/cache.h"

struct waits_seen {
	uint64_t counts[WAIT_BOUNDS + 1], count, sum_ns;
};

/* Copied, so that the account may go meanwhile. */
struct volume_waits {
	struct waits_seen reads[WAITED_FOR], names;
	struct stalls_seen stalled_reads, stalled_names;
};
void volume_waits(struct cache_account *account, struct volume_waits *ret);

/* Members of a volume in the status: stalled, stalled_names, waits, stall_seconds. */
void waits_add_json(json_t *volume, const struct volume_waits *waits);

struct labelled_waits {
	const char *labels; /* of the volume */
	const struct volume_waits *waits;
};
/* Whole families, of all volumes. */
void waits_write_metrics(struct buf *out, const struct labelled_waits *volumes, size_t count);

#endif
