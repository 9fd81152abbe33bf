/*
 * work: a few named threads that run jobs in the order they came, for everything that may block
 * (file IO outside the ring, index commits, verification).
 *
 * A job is embedded in the caller's struct, belongs to the pool from work_post() until its run
 * function is called, and may be freed or posted again by it. The number of jobs is bounded by the
 * structs that hold them.
 */
#ifndef BASE_WORK_H
#define BASE_WORK_H

#include <pthread.h>

#include "base/list.h"

struct job {
	struct list link;
	void (*run)(struct job *job);
};

struct work;

/* Starts n_threads threads named `name` (15 bytes seen by the kernel). 0 or -errno. */
int work_new(const char *name, unsigned n_threads, struct work **ret);
/* Runs what was posted, then ends the threads. NULL is allowed. */
void work_free(struct work *work);
/* The same without waiting for it, so that one of its own jobs may call it; nothing is posted any
 * more. NULL is allowed. */
void work_release(struct work *work);
/* Any thread; never blocks for long. */
void work_post(struct work *work, struct job *job);

/* Starts a thread with every signal blocked that others send, and a name; the daemon's only way to make one. 0 or
 * -errno. */
int thread_start(pthread_t *ret, const char *name, void *(*run)(void *), void *arg);

#endif
