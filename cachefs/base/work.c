#include "base/work.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/lock.h"

struct work {
	struct lock lock;
	struct cond wake;
	struct list jobs; /* lock */
	bool ending;      /* lock */
	bool released;    /* lock; the last thread frees it */
	unsigned n_alive; /* lock; threads */
	unsigned n_threads;
	pthread_t threads[];
};

int thread_start(pthread_t *ret, const char *name, void *(*run)(void *), void *arg)
{
	static const int own[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
	sigset_t all, before;
	int e;

	sigfillset(&all);
	/* The thread's own mistakes, whose handlers are not called where they are blocked. */
	for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
		sigdelset(&all, own[i]);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	e = pthread_create(ret, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (e)
		return -e;
	pthread_setname_np(*ret, name);
	return 0;
}

static void dispose(struct work *work)
{
	cond_destroy(&work->wake);
	lock_destroy(&work->lock);
	free(work);
}

static void *work_loop(void *arg)
{
	struct work *work = arg;
	struct list *link;
	bool last;

	lock_take(&work->lock);
	for (;;) {
		while ((link = list_pop(&work->jobs))) {
			struct job *job = container_of(link, struct job, link);

			lock_drop(&work->lock);
			job->run(job);
			lock_take(&work->lock);
		}
		if (work->ending)
			break;
		cond_wait(&work->wake, &work->lock);
	}
	last = !--work->n_alive && work->released;
	lock_drop(&work->lock);
	if (last)
		dispose(work);
	return NULL;
}

int work_new(const char *name, unsigned n_threads, struct work **ret)
{
	struct work *work = calloc(1, sizeof *work + n_threads * sizeof work->threads[0]);

	if (!work)
		return -ENOMEM;
	lock_init(&work->lock);
	cond_init(&work->wake);
	list_init(&work->jobs);
	for (unsigned i = 0; i < n_threads; i++) {
		int r;

		lock_take(&work->lock);
		work->n_alive++;
		lock_drop(&work->lock);
		r = thread_start(&work->threads[i], name, work_loop, work);
		if (r) {
			work_free(work);
			return r;
		}
		work->n_threads++;
	}
	*ret = work;
	return 0;
}

void work_free(struct work *work)
{
	if (!work)
		return;
	lock_take(&work->lock);
	work->ending = true;
	cond_broadcast(&work->wake);
	lock_drop(&work->lock);
	for (unsigned i = 0; i < work->n_threads; i++)
		pthread_join(work->threads[i], NULL);
	dispose(work);
}

void work_release(struct work *work)
{
	if (!work)
		return;
	for (unsigned i = 0; i < work->n_threads; i++)
		pthread_detach(work->threads[i]);
	lock_take(&work->lock);
	work->ending = work->released = true;
	cond_broadcast(&work->wake);
	lock_drop(&work->lock);
}

void work_post(struct work *work, struct job *job)
{
	lock_take(&work->lock);
	list_append(&work->jobs, &job->link);
	cond_signal(&work->wake);
	lock_drop(&work->lock);
}
