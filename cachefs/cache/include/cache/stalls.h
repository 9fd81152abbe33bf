/*
 * stalls: how long the requests of one volume waited, and for what; and for what part of the time at
 * least one of them was waiting. A struct waits is a histogram of single waits; a struct stalls is
 * the union of waits that overlap: three readers that wait for the same second count one second.
 *
 * Times are clock_now_ns(), given by the caller. Any thread. The lock of a struct stalls is a leaf;
 * a struct waits has none.
 */
#ifndef CACHE_STALLS_H
#define CACHE_STALLS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/lock.h"

/* Upper bounds of the buckets, each included in its bucket; one more has whatever is longer. */
#define WAIT_BOUNDS 13
extern const uint64_t wait_bounds_ns[WAIT_BOUNDS];

/* Zero at first. */
struct waits {
	_Atomic uint64_t counts[WAIT_BOUNDS + 1]; /* of each bucket alone */
	_Atomic uint64_t sum_ns;
};
void waits_add(struct waits *waits, uint64_t wait_ns);

#define STALL_WINDOW_S 300u

struct stalls {
	struct lock lock;
	unsigned waiting;    /* lock; requests that wait now */
	uint64_t begun_ns;   /* constant */
	uint64_t settled_ns; /* lock; up to here everything is counted below */
	uint64_t stalled_ns; /* lock */
	/* lock; what each of the last seconds of the clock had of it, at its number modulo the
	 * window */
	uint32_t seconds_ns[STALL_WINDOW_S];
};
void stalls_init(struct stalls *stalls, uint64_t now_ns);
/* Nobody waits. */
void stalls_destroy(struct stalls *stalls);
/* One more waits; each is ended once. */
void stalls_begin(struct stalls *stalls, uint64_t now_ns);
void stalls_end(struct stalls *stalls, uint64_t now_ns);

struct stalls_seen {
	unsigned waiting; /* now */
	uint64_t stalled_ns;
	/* Parts of the time, 0 to 1: since stalls_init, and of the last 60 and 300 whole or begun
	 * seconds, or as many as there were. */
	double share, share_1m, share_5m;
};
void stalls_look(struct stalls *stalls, uint64_t now_ns, struct stalls_seen *ret);

#endif
