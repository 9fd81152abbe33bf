#include "base/lock.h"

#include <errno.h>
#include <time.h>

#include "base/check.h"

void lock_init(struct lock *lock)
{
	check(pthread_mutex_init(&lock->mutex, NULL) == 0);
	atomic_init(&lock->owner, 0);
}

void lock_destroy(struct lock *lock)
{
	check(atomic_load(&lock->owner) == 0);
	check(pthread_mutex_destroy(&lock->mutex) == 0);
}

static void own(struct lock *lock)
{
	atomic_store_explicit(&lock->owner, (uintptr_t)pthread_self(), memory_order_relaxed);
}

static void disown(struct lock *lock)
{
	check(lock_held(lock));
	atomic_store_explicit(&lock->owner, 0, memory_order_relaxed);
}

void lock_take(struct lock *lock)
{
	check(!lock_held(lock));
	check(pthread_mutex_lock(&lock->mutex) == 0);
	own(lock);
}

void lock_drop(struct lock *lock)
{
	disown(lock);
	check(pthread_mutex_unlock(&lock->mutex) == 0);
}

bool lock_held(struct lock *lock)
{
	return atomic_load_explicit(&lock->owner, memory_order_relaxed) ==
	       (uintptr_t)pthread_self();
}

void cond_init(struct cond *cond)
{
	pthread_condattr_t attr;

	check(pthread_condattr_init(&attr) == 0);
	check(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0);
	check(pthread_cond_init(&cond->cond, &attr) == 0);
	pthread_condattr_destroy(&attr);
}

void cond_destroy(struct cond *cond)
{
	check(pthread_cond_destroy(&cond->cond) == 0);
}

void cond_signal(struct cond *cond)
{
	pthread_cond_signal(&cond->cond);
}

void cond_broadcast(struct cond *cond)
{
	pthread_cond_broadcast(&cond->cond);
}

void cond_wait(struct cond *cond, struct lock *lock)
{
	disown(lock);
	check(pthread_cond_wait(&cond->cond, &lock->mutex) == 0);
	own(lock);
}

int cond_wait_until(struct cond *cond, struct lock *lock, uint64_t deadline_ns)
{
	struct timespec deadline = {
		.tv_sec = (time_t)(deadline_ns / 1000000000u),
		.tv_nsec = (long)(deadline_ns % 1000000000u),
	};
	int e;

	disown(lock);
	e = pthread_cond_timedwait(&cond->cond, &lock->mutex, &deadline);
	own(lock);
	check(e == 0 || e == ETIMEDOUT);
	return -e;
}
