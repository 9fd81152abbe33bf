#include "parked.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/work.h"

#define LOOK_AGAIN_NS (200 * NS_PER_MS)
#define LOOK_AT_ONCE  64

/* Has SIGKILL pending, as every fatal signal ends up (signal(7)). A thread that can't be seen, for
 * it is gone or in another pid namespace, counts as killed: its request must not hang. */
static bool is_killed(pid_t pid)
{
	unsigned long long pending = 0, shared = 0;
	char path[64], line[256];
	bool known = false;
	FILE *file;

	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	file = pid > 0 ? fopen(path, "re") : NULL;
	while (file && fgets(line, sizeof line, file)) {
		if (sscanf(line, "SigPnd: %llx", &pending) == 1)
			known = true;
		else
			sscanf(line, "ShdPnd: %llx", &shared);
	}
	if (file)
		fclose(file);
	return !known || ((pending | shared) & 1ull << (SIGKILL - 1));
}

/* Under libfuse's lock of the request, which it keeps alive during the call. */
static void on_interrupt(fuse_req_t req, void *arg)
{
	struct parked *parked = arg;
	struct parking *parking = parked->parking;
	bool killed = is_killed(parked->pid), answer = false;

	lock_take(&parking->lock);
	if (parked->state == PARKED_WAITING && killed) {
		parked->state = PARKED_ANSWERED;
		list_remove(&parked->link);
		answer = true;
	} else if (parked->state != PARKED_ANSWERED && !parked->interrupted) {
		parked->interrupted = true;
		list_append(&parking->interrupted, &parked->link);
		cond_broadcast(&parking->changed);
	}
	lock_drop(&parking->lock);
	if (answer)
		fuse_reply_err(req, EINTR);
}

void parked_begin(struct parking *parking, struct parked *parked, fuse_req_t req)
{
	*parked = (struct parked){.parking = parking, .req = req, .pid = fuse_req_ctx(req)->pid};
	list_init(&parked->link);
	lock_take(&parking->lock);
	parking->count++;
	lock_drop(&parking->lock);
	/* May call on_interrupt from inside, where answering would free the request too early: the
	 * watcher does it then. */
	fuse_req_interrupt_func(req, on_interrupt, parked);
	lock_take(&parking->lock);
	if (parked->state == PARKED_STARTING)
		parked->state = PARKED_WAITING;
	lock_drop(&parking->lock);
}

/* The caller answers it, and counts so until then. */
static bool take(struct parked *parked)
{
	struct parking *parking = parked->parking;
	bool mine = parked->state != PARKED_ANSWERED && !parking->abandoned;

	check(lock_held(&parking->lock));
	parked->state = PARKED_ANSWERED;
	list_remove(&parked->link);
	parking->answering += mine;
	return mine;
}

static void answered(struct parking *parking)
{
	check(lock_held(&parking->lock) && parking->answering);
	/* The watcher waits for the same condition, and has nothing to do with it. */
	if (!--parking->answering && parking->abandoned)
		cond_broadcast(&parking->changed);
}

bool parked_claim(struct parked *parked)
{
	bool mine, left;

	lock_take(&parked->parking->lock);
	left = parked->state != PARKED_ANSWERED;
	mine = take(parked);
	parked->claimed = mine;
	lock_drop(&parked->parking->lock);
	/* Waits for an on_interrupt that is under way: it looks at parked, which may go soon. */
	if (left)
		fuse_req_interrupt_func(parked->req, NULL, NULL);
	if (left && !mine)
		fuse_reply_none(parked->req);
	return mine;
}

void parked_end(struct parked *parked)
{
	struct parking *parking = parked->parking;

	lock_take(&parking->lock);
	check(parked->state == PARKED_ANSWERED);
	if (parked->claimed)
		answered(parking);
	if (!--parking->count && parking->closing)
		cond_broadcast(&parking->changed);
	lock_drop(&parking->lock);
}

void parking_abandon(struct parking *parking)
{
	lock_take(&parking->lock);
	parking->abandoned = true;
	while (parking->answering)
		cond_wait(&parking->changed, &parking->lock);
	lock_drop(&parking->lock);
}

uint64_t parking_count(struct parking *parking)
{
	uint64_t count;

	lock_take(&parking->lock);
	count = parking->count;
	lock_drop(&parking->lock);
	return count;
}

/* Moves some pids of the list to the caller, the longest unseen first. */
static unsigned pick_pids(struct parking *parking, pid_t pids[LOOK_AT_ONCE])
{
	unsigned n = 0;

	list_for_each (link, &parking->interrupted) {
		if (n == LOOK_AT_ONCE)
			break;
		pids[n++] = container_of(link, struct parked, link)->pid;
	}
	return n;
}

/* Takes one of this killed process off the list, else moves all of it to the end: seen. The request
 * is the caller's to answer. */
static fuse_req_t take_of_pid(struct parking *parking, pid_t pid, bool killed)
{
	struct list seen;
	fuse_req_t req = NULL;

	list_init(&seen);
	lock_take(&parking->lock);
	list_for_each_safe (link, after, &parking->interrupted) {
		struct parked *parked = container_of(link, struct parked, link);

		if (parked->pid != pid)
			continue;
		if (killed && !req && !parking->abandoned) {
			req = parked->req;
			take(parked);
		} else if (!killed) {
			list_remove(link);
			list_append(&seen, link);
		}
	}
	list_splice(&parking->interrupted, &seen);
	lock_drop(&parking->lock);
	return req;
}

static void look_at(struct parking *parking, pid_t pid)
{
	bool killed = is_killed(pid);
	fuse_req_t req;

	while ((req = take_of_pid(parking, pid, killed))) {
		fuse_req_interrupt_func(req, NULL, NULL);
		fuse_reply_err(req, EINTR);
		lock_take(&parking->lock);
		answered(parking);
		lock_drop(&parking->lock);
	}
}

static void *watch(void *arg)
{
	struct parking *parking = arg;
	pid_t pids[LOOK_AT_ONCE];
	unsigned n;

	lock_take(&parking->lock);
	while (!parking->closing || parking->count) {
		if (list_empty(&parking->interrupted)) {
			cond_wait(&parking->changed, &parking->lock);
			continue;
		}
		n = pick_pids(parking, pids);
		lock_drop(&parking->lock);
		for (unsigned i = 0; i < n; i++)
			look_at(parking, pids[i]);
		lock_take(&parking->lock);
		if (!list_empty(&parking->interrupted))
			cond_wait_until(
				&parking->changed, &parking->lock, clock_now_ns() + LOOK_AGAIN_NS);
	}
	lock_drop(&parking->lock);
	return NULL;
}

int parking_init(struct parking *parking)
{
	int r;

	*parking = (struct parking){0};
	lock_init(&parking->lock);
	cond_init(&parking->changed);
	list_init(&parking->interrupted);
	r = thread_start(&parking->watcher, "cachefs-parked", watch, parking);
	if (r) {
		cond_destroy(&parking->changed);
		lock_destroy(&parking->lock);
	}
	return r;
}

void parking_close(struct parking *parking)
{
	lock_take(&parking->lock);
	parking->closing = true;
	cond_broadcast(&parking->changed);
	lock_drop(&parking->lock);
	pthread_join(parking->watcher, NULL);
	cond_destroy(&parking->changed);
	lock_destroy(&parking->lock);
}
