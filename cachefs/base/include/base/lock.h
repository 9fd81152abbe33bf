/*
 * lock: mutexes that know their owner, so that a function can check "the caller holds this".
 *
 * Order of locks, outermost first, in docs/ARCHITECTURE.md. A lock is never held across IO, a
 * callback or a FUSE reply.
 */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct lock {
	pthread_mutex_t mutex;
	_Atomic(uintptr_t) owner; /* pthread_self() of the holder, 0 when free */
};

#define LOCK_INITIALIZER                                                                           \
	{                                                                                          \
		.mutex = PTHREAD_MUTEX_INITIALIZER                                                 \
	}

void lock_init(struct lock *lock);
/* The lock must be free. */
void lock_destroy(struct lock *lock);
void lock_take(struct lock *lock);
void lock_drop(struct lock *lock);
/* True when the calling thread holds the lock. For check(). */
bool lock_held(struct lock *lock);

struct cond {
	pthread_cond_t cond; /* on CLOCK_MONOTONIC */
};

void cond_init(struct cond *cond);
void cond_destroy(struct cond *cond);
void cond_signal(struct cond *cond);
void cond_broadcast(struct cond *cond);
/* Waits; the caller holds the lock before and after. */
void cond_wait(struct cond *cond, struct lock *lock);
/* The same, until clock_now_ns() reaches deadline_ns. Returns 0 or -ETIMEDOUT. */
int cond_wait_until(struct cond *cond, struct lock *lock, uint64_t deadline_ns);

#endif
