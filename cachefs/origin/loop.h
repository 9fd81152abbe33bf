/*
 * loop: one thread with one curl multi handle, and the requests that it carries.
 *
 * Only engine.c uses it. Everything but the fields marked so belongs to the thread.
 */
#ifndef ORIGIN_LOOP_H
#define ORIGIN_LOOP_H

#include <curl/curl.h>
#include <pthread.h>

#include "base/lock.h"

#include "engine.h"

#define SPARE_HANDLES 32

struct loop {
	unsigned number; /* which of an origin's lanes is this loop's */
	pthread_t thread;
	CURLM *multi;

	struct lock lock;
	struct list incoming; /* lock: requests by link */
	struct list signals;  /* lock: requests by signal */
	bool ending;          /* lock */
	bool some_shut;       /* lock: an origin is shut, whose requests are to be cancelled */
	bool wake_waiting;    /* lock: those that wait for credentials are to be tried */

	_Atomic bool places_changed; /* queued requests may have found a place */

	/* The loop thread's. */
	struct list requests;
	unsigned n_limited;   /* requests of origins with a bandwidth */
	unsigned n_gets;      /* that run */
	unsigned n_busy;      /* origins of n_gets */
	uint64_t watched_ns;  /* when stragglers were looked for */
	uint64_t next_due_ns; /* nothing is to be done by time before it */
	CURL *spare[SPARE_HANDLES];
	unsigned n_spare;
};

/* 0 or -errno. */
int loop_start(struct loop *loop, unsigned number);
/* Every request must be finished. */
void loop_stop(struct loop *loop);
/* Any thread: takes the request over, and tells it something. */
void loop_submit(struct loop *loop, struct request *request);
void loop_signal(struct loop *loop, struct request *request, unsigned signal);
/* The loop thread: takes over a request that was made on it, and is in no queue. */
void loop_adopt(struct loop *loop, struct request *request);
/* Any thread: looks whether queued requests have a place now. */
void loop_places_changed(struct loop *loop);
/* Any thread: cancels the requests of origins that are shut. */
void loop_look_for_shut(struct loop *loop);

/* Any thread: tries the requests again that wait for credentials. */
void loop_wake_waiting(struct loop *loop);

#endif
