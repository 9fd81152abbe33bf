/*
 * try: the transitions of a request (request.h) on its loop: a try begins, ends, is made again; and
 * which request of a lane comes next.
 *
 * Loop thread only.
 */
#ifndef ORIGIN_TRY_H
#define ORIGIN_TRY_H

#include "base/clock.h"

#include "loop.h"

/* GETs of all origins that a loop runs before it divides itself among them: each may hold a buffer
 * that is partly filled. */
#define LOOP_GETS 64
/* How often running GETs are looked at. */
#define LOOP_WATCH_NS (250 * NS_PER_MS)

/* The loop looks again at when_ns. */
void loop_wake_at(struct loop *loop, uint64_t when_ns);

enum rank try_rank(const struct request *request);
/* Queues the request, before all others of its rank or behind them. */
void try_queue(struct request *request, bool first);
/* Begins a try. 0 or -errno; after an error the request is in no list but may have a handle. */
int try_start(struct loop *loop, struct request *request);
/* Takes a running try off the multi handle and gives its place in the lane back. */
void try_stop(struct loop *loop, struct request *request);
/* The running try ended with code: the request is finished, or tried again. */
void try_end(struct loop *loop, struct request *request, CURLcode code);
/* The request has no try and is in no queue: tells its result and frees it. */
void try_finish(struct loop *loop, struct request *request, int error);
/* Wherever the request is: finishes it. */
void try_drop(struct loop *loop, struct request *request, int error);

/* Fills the free places of a lane. Callbacks may end any request. */
void lane_run(struct loop *loop, struct origin *origin);

#endif
