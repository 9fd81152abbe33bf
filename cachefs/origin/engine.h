/*
 * engine: the loop threads that carry requests, each owning one curl multi handle, and the workers.
 *
 * A request belongs to one loop from engine_submit to its release. What other threads want of it
 * (resume, cancel) arrives as a signal through the loop's lock, which is a leaf.
 */
#ifndef ORIGIN_ENGINE_H
#define ORIGIN_ENGINE_H

#include "base/work.h"

#include "request.h"

#define ENGINE_LOOPS 2

/* One origin's requests on one loop. The loop thread's, but for what is atomic. */
enum rank { RANK_METADATA, RANK_DEMAND, RANK_READAHEAD, RANK_PREFETCH, RANKS };
struct lane {
	struct list queued[RANKS];
	struct list running;
	unsigned n_running, n_gets; /* n_gets: of n_running */
	unsigned n_stalled;         /* of n_gets, without a byte for long */
	unsigned n_begun;           /* GETs that don't run but keep their places */
	/* By rank: how many may run when one more is started. Metadata, which must not wait for data,
	 * finds some places beside those of GETs, which connections= counts; of these one is kept for
	 * demand, which must not wait for what runs ahead. */
	unsigned limits[RANKS];
	_Atomic unsigned load; /* requests from submit to release */
	_Atomic bool held;     /* GETs are queued */
};
/* limit: of GETs; first: of the lanes of an origin. */
void lane_init(struct lane *lane, unsigned limit, bool first);

/* Chooses the loop with the fewest requests of the origin. */
void engine_submit(struct request *request);
/* Both to one loop, so that they finish on one thread. */
void engine_submit_pair(struct request *request, struct request *other);
void engine_signal(struct request *request, unsigned signal);
/* Some origin may run more GETs than before, or must not. Any thread. */
void engine_places_changed(struct origin_engine *engine);
/* Cancels the requests of origins that are shut. */
void engine_look_for_shut(struct origin_engine *engine);
/* Runs job on a worker for what may take long outside, as a call of a token service; which must see to
 * it that it ends. */
void engine_fetch(struct origin_engine *engine, struct job *job);
/* Requests that wait for credentials are tried again. */
void engine_wake_waiting(struct origin_engine *engine);
/* For a request that needs no origin: done runs soon, on a worker that nothing may block. */
void engine_later(struct origin_engine *engine, struct origin_private *private,
	void (*run)(struct job *job), int error);

#endif
