#include "loop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/work.h"

#include "impl.h"
#include "stragglers.h"
#include "try.h"

#define NEVER        UINT64_MAX
#define LOOP_TICK_MS 1000

/* Runs the lane while something keeps its origin alive, which the request may have been the last to
 * do. */
static void run_lane_after(struct loop *loop, struct origin *origin)
{
	lane_run(loop, origin);
	origin_unref(origin);
}

/* --- what comes from other threads --- */

static void cancel(struct loop *loop, struct request *request)
{
	request->cancelled = true;
	try_drop(loop, request, -ECANCELED);
}

/* The request's bytes are wanted sooner; one that runs is as soon as it can be. */
static void promote(struct loop *loop, struct request *request, enum origin_priority priority)
{
	bool queued = request->state == REQUEST_QUEUED;

	if (priority >= request->priority)
		return;
	if (queued)
		list_remove(&request->link);
	request->priority = priority;
	if (queued)
		try_queue(request, true);
	if (priority == ORIGIN_DEMAND && !request->timed) {
		request->timed = true;
		request->deadline_ns = clock_now_ns() + request->origin->timeout_ms * NS_PER_MS;
		loop_wake_at(loop, request->deadline_ns);
	}
}

static void add(struct loop *loop, struct request *request)
{
	list_append(&loop->requests, &request->all);
	loop->n_limited += request->origin->bandwidth_bytes > 0;
	if (request->timed)
		loop_wake_at(loop, request->deadline_ns);
}

void loop_adopt(struct loop *loop, struct request *request)
{
	atomic_fetch_add(&request->origin->lanes[loop->number].load, 1);
	add(loop, request);
}

static void accept_request(struct loop *loop, struct request *request)
{
	struct origin *origin = origin_ref(request->origin);

	add(loop, request);
	try_queue(request, false);
	if (atomic_load(&origin->shut))
		cancel(loop, request);
	run_lane_after(loop, origin);
}

static void resume(struct loop *loop, struct request *request)
{
	uint64_t now = clock_now_ns(), pause_ns;
	CURLcode code;

	if (!request->paused)
		return;
	request->paused = request->throttled = false;
	pause_ns = now - request->paused_since_ns;
	request->deadline_ns += pause_ns;
	request->progress.idle_ns += pause_ns;
	request->progress.resumed_ns = now;
	loop_wake_at(loop, request->deadline_ns);
	/* May call data, which may pause again. */
	code = curl_easy_pause(request->easy, CURLPAUSE_CONT);
	if (code != CURLE_OK)
		try_end(loop, request, code);
}

/* Its twin, which may be waiting for the same, is told by a signal of its own: the request may be
 * gone at the end of this. */
static void go_on(struct loop *loop, struct request *request)
{
	request->blocked = false;
	if (request->twin)
		loop_signal(loop, request->twin, SIGNAL_RESUME);
	if (request->state == REQUEST_RUNNING && !request->throttled)
		resume(loop, request);
}

static void take_signal(struct loop *loop, struct request *request, unsigned signals)
{
	struct origin *origin = origin_ref(request->origin);

	if (signals & SIGNAL_DEMAND)
		promote(loop, request, ORIGIN_DEMAND);
	if (signals & SIGNAL_READAHEAD)
		promote(loop, request, ORIGIN_READAHEAD);
	if (signals & SIGNAL_UNPACED) {
		request->unpaced = true;
		if (request->throttled)
			signals |= SIGNAL_RESUME;
		request->throttled = false;
	}
	if (signals & SIGNAL_CANCEL)
		cancel(loop, request);
	else if (signals & SIGNAL_RESUME)
		go_on(loop, request);
	run_lane_after(loop, origin);
}

/* One at a time, since a callback may end the request of the next, or signal it again. `pending` is
 * guarded by the loop's lock as the list that it was taken from. */
static bool take_one_signal(struct loop *loop, struct list *pending)
{
	struct request *request;
	struct list *link;
	unsigned signals;

	lock_take(&loop->lock);
	link = list_pop(pending);
	if (!link) {
		lock_drop(&loop->lock);
		return false;
	}
	request = container_of(link, struct request, signal);
	signals = request->signals;
	request->signals = 0;
	lock_drop(&loop->lock);
	take_signal(loop, request, signals);
	return true;
}

/* A callback may end any other request, so the list is taken apart from its head. */
static void cancel_shut(struct loop *loop)
{
	struct list others;

	list_init(&others);
	while (!list_empty(&loop->requests)) {
		struct request *request = container_of(loop->requests.next, struct request, all);

		list_remove(&request->all);
		list_append(&others, &request->all);
		if (atomic_load(&request->origin->shut))
			cancel(loop, request);
	}
	list_splice(&loop->requests, &others);
}

static void wake_waiting(struct loop *loop)
{
	list_for_each (link, &loop->requests) {
		struct request *request = container_of(link, struct request, all);

		if (request->state == REQUEST_WAITING && request->without_credentials)
			request->due_ns = 0;
	}
	loop_wake_at(loop, 0);
}

static bool take_incoming(struct loop *loop)
{
	struct list incoming, signals, *link;
	bool ending, some_shut, wake;

	list_init(&incoming);
	list_init(&signals);
	lock_take(&loop->lock);
	/* Together: whoever is signalled here was submitted before and is accepted below. */
	list_splice(&incoming, &loop->incoming);
	list_splice(&signals, &loop->signals);
	ending = loop->ending;
	some_shut = loop->some_shut;
	loop->some_shut = false;
	wake = loop->wake_waiting;
	loop->wake_waiting = false;
	lock_drop(&loop->lock);
	while ((link = list_pop(&incoming)))
		accept_request(loop, container_of(link, struct request, link));
	while (take_one_signal(loop, &signals))
		;
	if (some_shut)
		cancel_shut(loop);
	if (wake)
		wake_waiting(loop);
	return ending;
}

/* --- time --- */

static void time_is_up(struct loop *loop, struct request *request)
{
	struct verdict verdict;

	verdict_fail(&verdict, -EIO, ORIGIN_NETWORK_ERROR, "no answer within %llu ms%s%s",
		(unsigned long long)request->origin->timeout_ms, *request->last_text ? ": " : "",
		request->last_text);
	origin_count(request->origin, request->kind, &verdict);
	try_drop(loop, request, verdict.error);
}

/* Does what is due for one request; false when its time has not come. */
static bool check_time(struct loop *loop, struct request *request, uint64_t now)
{
	if (request->timed && !request->paused && now >= request->deadline_ns) {
		time_is_up(loop, request);
		return true;
	}
	if (request->throttled && now >= request->due_ns) {
		resume(loop, request);
		return true;
	}
	if (request->state == REQUEST_WAITING && now >= request->due_ns) {
		try_queue(request, true);
		return true;
	}
	if (request->state == REQUEST_WAITING || request->throttled)
		loop_wake_at(loop, request->due_ns);
	if (request->timed && !request->paused)
		loop_wake_at(loop, request->deadline_ns);
	return false;
}

static void check_times(struct loop *loop)
{
	uint64_t now = clock_now_ns();
	struct list later;

	if (now < loop->next_due_ns)
		return;
	loop->next_due_ns = NEVER;
	/* A callback may end any other request, so the list is taken apart from its head. */
	list_init(&later);
	while (!list_empty(&loop->requests)) {
		struct request *request = container_of(loop->requests.next, struct request, all);
		struct origin *origin = origin_ref(request->origin);

		list_remove(&request->all);
		list_append(&later, &request->all);
		if (check_time(loop, request, now))
			lane_run(loop, origin);
		origin_unref(origin);
	}
	list_splice(&loop->requests, &later);
}

/* --- bandwidth --- */

/* Sees to it that GETs which paused for their origin's bandwidth go on in time. */
static void wake_throttled(struct loop *loop)
{
	if (!loop->n_limited)
		return;
	list_for_each (link, &loop->requests) {
		struct request *request = container_of(link, struct request, all);

		if (request->throttled)
			loop_wake_at(loop, request->due_ns);
	}
}

/* --- places --- */

/* Some lane may run more than before. A callback may end any request, so the list is taken apart
 * from its head. */
static void run_lanes(struct loop *loop)
{
	struct list others;

	if (!atomic_exchange(&loop->places_changed, false))
		return;
	list_init(&others);
	while (!list_empty(&loop->requests)) {
		struct request *request = container_of(loop->requests.next, struct request, all);

		list_remove(&request->all);
		list_append(&others, &request->all);
		if (request->state == REQUEST_QUEUED)
			run_lane_after(loop, origin_ref(request->origin));
	}
	list_splice(&loop->requests, &others);
}

/* --- the loop --- */

static void end_tries(struct loop *loop)
{
	CURLMsg *message;
	int left;

	while ((message = curl_multi_info_read(loop->multi, &left))) {
		struct request *request = NULL;
		struct origin *origin;
		CURLcode code = message->data.result;

		check(message->msg == CURLMSG_DONE);
		curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&request);
		origin = origin_ref(request->origin);
		try_end(loop, request, code);
		run_lane_after(loop, origin);
	}
}

static int poll_ms(const struct loop *loop)
{
	uint64_t now = clock_now_ns(), due = stragglers_due_ns(loop), ms;

	if (loop->next_due_ns < due)
		due = loop->next_due_ns;
	if (due <= now)
		return 0;
	ms = (due - now) / NS_PER_MS + 1;
	return ms < LOOP_TICK_MS ? (int)ms : LOOP_TICK_MS;
}

static void *run_loop(void *arg)
{
	struct loop *loop = arg;
	int running;

	while (!take_incoming(loop)) {
		check_times(loop);
		curl_multi_perform(loop->multi, &running);
		end_tries(loop);
		wake_throttled(loop);
		stragglers_look(loop, clock_now_ns());
		run_lanes(loop);
		curl_multi_poll(loop->multi, NULL, 0, poll_ms(loop), NULL);
	}
	check(list_empty(&loop->requests));
	return NULL;
}

int loop_start(struct loop *loop, unsigned number)
{
	char name[16];
	int r;

	loop->number = number;
	loop->multi = curl_multi_init();
	if (!loop->multi)
		return -ENOMEM;
	lock_init(&loop->lock);
	list_init(&loop->incoming);
	list_init(&loop->signals);
	list_init(&loop->requests);
	loop->next_due_ns = NEVER;
	curl_multi_setopt(loop->multi, CURLMOPT_MAXCONNECTS, 128L);
	snprintf(name, sizeof name, "origin-%u", number);
	r = thread_start(&loop->thread, name, run_loop, loop);
	if (r) {
		lock_destroy(&loop->lock);
		curl_multi_cleanup(loop->multi);
	}
	return r;
}

void loop_stop(struct loop *loop)
{
	lock_take(&loop->lock);
	loop->ending = true;
	lock_drop(&loop->lock);
	curl_multi_wakeup(loop->multi);
	pthread_join(loop->thread, NULL);
	while (loop->n_spare)
		curl_easy_cleanup(loop->spare[--loop->n_spare]);
	curl_multi_cleanup(loop->multi);
	lock_destroy(&loop->lock);
}

void loop_submit(struct loop *loop, struct request *request)
{
	lock_take(&loop->lock);
	list_append(&loop->incoming, &request->link);
	lock_drop(&loop->lock);
	curl_multi_wakeup(loop->multi);
}

void loop_signal(struct loop *loop, struct request *request, unsigned signal)
{
	lock_take(&loop->lock);
	request->signals |= signal;
	list_remove(&request->signal);
	list_append(&loop->signals, &request->signal);
	lock_drop(&loop->lock);
	curl_multi_wakeup(loop->multi);
}

void loop_places_changed(struct loop *loop)
{
	atomic_store(&loop->places_changed, true);
	curl_multi_wakeup(loop->multi);
}

void loop_look_for_shut(struct loop *loop)
{
	lock_take(&loop->lock);
	loop->some_shut = true;
	lock_drop(&loop->lock);
	curl_multi_wakeup(loop->multi);
}

void loop_wake_waiting(struct loop *loop)
{
	lock_take(&loop->lock);
	loop->wake_waiting = true;
	lock_drop(&loop->lock);
	curl_multi_wakeup(loop->multi);
}
