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

#define NEVER        UINT64_MAX
#define LOOP_TICK_MS 1000
/* How soon a request asks again for credentials, should it not be woken. */
#define CREDENTIALS_TICK_NS (200 * NS_PER_MS)

static struct lane *lane_of(const struct request *request)
{
	return &request->origin->lanes[request->loop];
}

static enum rank rank_of(const struct request *request)
{
	if (request->kind != REQUEST_GET)
		return RANK_METADATA;
	return RANK_DEMAND + (enum rank)request->priority;
}

static void wake_at(struct loop *loop, uint64_t when_ns)
{
	if (when_ns < loop->next_due_ns)
		loop->next_due_ns = when_ns;
}

/* --- the end of a request and of a try --- */

static void forget_signal(struct loop *loop, struct request *request)
{
	lock_take(&loop->lock);
	list_remove(&request->signal);
	lock_drop(&loop->lock);
}

/* The request is in no queue and has no handle. */
static void finish(struct loop *loop, struct request *request, int error)
{
	struct origin *origin = request->origin;

	check(!request->easy);
	list_remove(&request->all);
	loop->n_limited -= origin->bandwidth_bytes > 0;
	request->finish(request, error);
	/* Only now: a signal may come until the caller's done. */
	forget_signal(loop, request);
	curl_slist_free_all(request->headers);
	buf_free(&request->body);
	atomic_fetch_sub(&lane_of(request)->load, 1);
	request->release(request);
	origin_unref(origin);
}

static CURL *take_handle(struct loop *loop)
{
	return loop->n_spare ? loop->spare[--loop->n_spare] : curl_easy_init();
}

static void give_handle(struct loop *loop, CURL *easy)
{
	if (loop->n_spare == SPARE_HANDLES) {
		curl_easy_cleanup(easy);
		return;
	}
	curl_easy_reset(easy);
	loop->spare[loop->n_spare++] = easy;
}

/* Takes a running try off the multi handle and gives its place in the lane back. */
static void stop_try(struct loop *loop, struct request *request)
{
	struct lane *lane = lane_of(request);

	check(request->state == REQUEST_RUNNING);
	curl_multi_remove_handle(loop->multi, request->easy);
	give_handle(loop, request->easy);
	request->easy = NULL;
	request->paused = request->throttled = false;
	list_remove(&request->link);
	lane->n_running--;
	origin_count_running(request->origin, -1);
}

static void queue(struct request *request, bool first)
{
	struct list *queued = &lane_of(request)->queued[rank_of(request)];

	request->state = REQUEST_QUEUED;
	list_append(first ? queued->next : queued, &request->link);
}

/* The verdict says "again"; decides when, or that it is too late. */
static void try_later(struct loop *loop, struct request *request, const struct verdict *verdict)
{
	uint64_t now = clock_now_ns(), pause_ms;

	if (verdict->step == STEP_AGAIN) {
		queue(request, true);
		return;
	}
	pause_ms = request_pause_ms(request->tries, request->answer.retry_after_s);
	if (now + pause_ms * NS_PER_MS >= request->deadline_ns) {
		finish(loop, request, verdict->error);
		return;
	}
	request->state = REQUEST_WAITING;
	request->due_ns = now + pause_ms * NS_PER_MS;
	wake_at(loop, request->due_ns);
	log_debug("origin_retry", "source=%s try=%u pause_ms=%llu error=%s",
		request->origin->source, request->tries, (unsigned long long)pause_ms,
		verdict->text);
}

static void end_try(struct loop *loop, struct request *request, CURLcode code)
{
	struct verdict verdict;

	if (request->cancelled) {
		stop_try(loop, request);
		finish(loop, request, -ECANCELED);
		return;
	}
	request_judge(request, code, &verdict);
	stop_try(loop, request);
	origin_count(request->origin, request->kind, &verdict);
	snprintf(request->last_text, sizeof request->last_text, "%s", verdict.text);
	if (verdict.step == STEP_DONE || verdict.step == STEP_FAIL)
		finish(loop, request, verdict.error);
	else
		try_later(loop, request, &verdict);
}

/* --- starting tries --- */

/* Its credentials are being fetched. The budget goes on. */
static void wait_for_credentials(
	struct loop *loop, struct request *request, const struct verdict *verdict)
{
	give_handle(loop, request->easy);
	request->easy = NULL;
	snprintf(request->last_text, sizeof request->last_text, "%s", verdict->text);
	request->state = REQUEST_WAITING;
	request->without_credentials = true;
	request->due_ns = clock_now_ns() + CREDENTIALS_TICK_NS;
	wake_at(loop, request->due_ns);
}

/* 0 or -errno; after an error the request is in no list but may have a handle. */
static int start_try(struct loop *loop, struct request *request)
{
	struct lane *lane = lane_of(request);
	struct verdict verdict;
	int r;

	if (!request->timed) {
		request->timed = true;
		request->deadline_ns = clock_now_ns() + request->origin->timeout_ms * NS_PER_MS;
		wake_at(loop, request->deadline_ns);
	}
	request->easy = take_handle(loop);
	if (!request->easy)
		return -ENOMEM;
	r = request_prepare(request, &verdict);
	if (r == -EAGAIN) {
		wait_for_credentials(loop, request, &verdict);
		return 0;
	}
	request->without_credentials = false;
	if (r) {
		origin_count(request->origin, request->kind, &verdict);
		return r;
	}
	if (curl_multi_add_handle(loop->multi, request->easy) != CURLM_OK)
		return -ENOMEM;
	request->state = REQUEST_RUNNING;
	request->tries++;
	list_append(&lane->running, &request->link);
	lane->n_running++;
	origin_count_running(request->origin, 1);
	return 0;
}

static struct request *next_request(struct lane *lane)
{
	for (int rank = 0; rank < RANKS && lane->n_running < lane->limits[rank]; rank++) {
		struct list *link = list_pop(&lane->queued[rank]);

		if (link)
			return container_of(link, struct request, link);
	}
	return NULL;
}

/* Fills the free places of a lane. */
static void run_lane(struct loop *loop, struct origin *origin)
{
	struct lane *lane = &origin->lanes[loop->number];
	struct request *request;

	while ((request = next_request(lane))) {
		int r = start_try(loop, request);

		if (!r)
			continue;
		if (request->easy)
			give_handle(loop, request->easy);
		request->easy = NULL;
		finish(loop, request, r);
	}
}

/* Runs the lane while something keeps its origin alive, which the request may have been the last to
 * do. */
static void run_lane_after(struct loop *loop, struct origin *origin)
{
	run_lane(loop, origin);
	origin_unref(origin);
}

/* --- what comes from other threads --- */

static void cancel(struct loop *loop, struct request *request)
{
	request->cancelled = true;
	if (request->state == REQUEST_RUNNING) {
		end_try(loop, request, CURLE_ABORTED_BY_CALLBACK);
		return;
	}
	list_remove(&request->link);
	finish(loop, request, -ECANCELED);
}

static void accept_request(struct loop *loop, struct request *request)
{
	struct origin *origin = origin_ref(request->origin);

	list_append(&loop->requests, &request->all);
	loop->n_limited += origin->bandwidth_bytes > 0;
	if (request->timed)
		wake_at(loop, request->deadline_ns);
	queue(request, false);
	if (atomic_load(&origin->shut))
		cancel(loop, request);
	run_lane_after(loop, origin);
}

static void resume(struct loop *loop, struct request *request)
{
	CURLcode code;

	if (!request->paused)
		return;
	request->paused = request->throttled = false;
	request->deadline_ns += clock_now_ns() - request->paused_since_ns;
	wake_at(loop, request->deadline_ns);
	/* May call data, which may pause again. */
	code = curl_easy_pause(request->easy, CURLPAUSE_CONT);
	if (code != CURLE_OK)
		end_try(loop, request, code);
}

static void take_signal(struct loop *loop, struct request *request, unsigned signals)
{
	struct origin *origin = origin_ref(request->origin);

	if (signals & SIGNAL_CANCEL)
		cancel(loop, request);
	else if (request->state == REQUEST_RUNNING && !request->throttled)
		resume(loop, request);
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
	wake_at(loop, 0);
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
	if (request->state == REQUEST_RUNNING)
		stop_try(loop, request);
	else
		list_remove(&request->link);
	origin_count(request->origin, request->kind, &verdict);
	finish(loop, request, verdict.error);
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
		queue(request, true);
		return true;
	}
	if (request->state == REQUEST_WAITING || request->throttled)
		wake_at(loop, request->due_ns);
	if (request->timed && !request->paused)
		wake_at(loop, request->deadline_ns);
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
			run_lane(loop, origin);
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
			wake_at(loop, request->due_ns);
	}
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
		end_try(loop, request, code);
		run_lane_after(loop, origin);
	}
}

static int poll_ms(const struct loop *loop)
{
	uint64_t now = clock_now_ns(), ms;

	if (loop->next_due_ns <= now)
		return 0;
	ms = (loop->next_due_ns - now) / NS_PER_MS + 1;
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
