#include "try.h"

#include <errno.h>
#include <stdio.h>
#include <sys/random.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

#include "get.h"
#include "impl.h"

/* A try that brought so much was worth it: the pauses begin anew. */
#define PROGRESS_BYTES (64u << 10)
/* How soon a request asks again for credentials, should it not be woken. */
#define CREDENTIALS_TICK_NS (200 * NS_PER_MS)

static struct lane *lane_of(const struct request *request)
{
	return &request->origin->lanes[request->loop];
}

enum rank try_rank(const struct request *request)
{
	if (request->kind != REQUEST_GET && request->priority == ORIGIN_DEMAND)
		return RANK_METADATA;
	return RANK_DEMAND + (enum rank)request->priority;
}

void loop_wake_at(struct loop *loop, uint64_t when_ns)
{
	if (when_ns < loop->next_due_ns)
		loop->next_due_ns = when_ns;
}

/*
 * A GET that is begun keeps its place while it waits for its next try, since the caller may hold a
 * buffer for it: were others begun meanwhile, there would be more and more of them, until those that
 * run had no buffer and those with a buffer no place.
 */
static void count_begun(struct request *request, bool idle)
{
	struct lane *lane = lane_of(request);
	bool begun =
		idle && request->kind == REQUEST_GET && !request->hedges && get_is_begun(request);

	lane->n_begun += begun;
	lane->n_begun -= request->counted_begun;
	request->counted_begun = begun;
}

static void set_waiting(struct request *request, uint64_t due_ns)
{
	request->state = REQUEST_WAITING;
	request->due_ns = due_ns;
	count_begun(request, true);
}

/* --- the end of a request and of a try --- */

static void forget_signal(struct loop *loop, struct request *request)
{
	lock_take(&loop->lock);
	list_remove(&request->signal);
	lock_drop(&loop->lock);
}

/* One of the two requests for the same bytes ends. The other does too, unless the bytes are still
 * to come from it. */
static void part_twins(struct loop *loop, struct request *request, int error)
{
	struct request *twin = request->twin;

	if (!twin)
		return;
	request->twin = twin->twin = NULL;
	if (!request->hedges)
		try_drop(loop, twin, -ECANCELED);
	else if (!error)
		try_drop(loop, twin, 0);
}

void try_finish(struct loop *loop, struct request *request, int error)
{
	struct origin *origin = request->origin;

	check(!request->easy);
	part_twins(loop, request, error);
	count_begun(request, false);
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

void try_drop(struct loop *loop, struct request *request, int error)
{
	if (request->state == REQUEST_RUNNING)
		try_stop(loop, request);
	else
		list_remove(&request->link);
	try_finish(loop, request, error);
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

void try_stop(struct loop *loop, struct request *request)
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
	if (request->kind != REQUEST_GET)
		return;
	loop->n_busy -= !--lane->n_gets;
	/* Others may have been kept waiting by this one. */
	if (loop->n_gets-- >= LOOP_GETS)
		atomic_store(&loop->places_changed, true);
}

void try_queue(struct request *request, bool first)
{
	struct list *queued = &lane_of(request)->queued[try_rank(request)];

	request->state = REQUEST_QUEUED;
	count_begun(request, true);
	list_append(first ? queued->next : queued, &request->link);
}

/* Without randomness there is none: the pause is the shortest then. */
static uint64_t draw(void)
{
	uint64_t random = 0;

	return getrandom(&random, sizeof random, GRND_NONBLOCK) == sizeof random ? random : 0;
}

/* The verdict says "again"; decides when, or that it is too late. */
static void try_later(struct loop *loop, struct request *request, const struct verdict *verdict)
{
	uint64_t now = clock_now_ns(), pause_ms;

	if (verdict->step == STEP_AGAIN || verdict->step == STEP_ON) {
		try_queue(request, true);
		return;
	}
	pause_ms = request_pause_ms(request->tries,
		answer_pause_s(&request->answer, clock_wall_ns() / (int64_t)NS_PER_SEC), draw());
	if (now + pause_ms * NS_PER_MS >= request->deadline_ns) {
		try_finish(loop, request, verdict->error);
		return;
	}
	set_waiting(request, now + pause_ms * NS_PER_MS);
	loop_wake_at(loop, request->due_ns);
	log_debug("origin_retry", "source=%s try=%u pause_ms=%llu error=%s",
		request->origin->source, request->tries, (unsigned long long)pause_ms,
		verdict->text);
}

/* What the end of a GET's try says about its origin. */
static void note_end(const struct request *request, CURLcode code, const struct verdict *verdict)
{
	struct origin *origin = request->origin;
	uint64_t now = clock_now_ns();

	if (request->kind != REQUEST_GET)
		return;
	if (verdict->step == STEP_DONE)
		flow_done(&origin->flow, &request->progress, now);
	else if ((verdict->outcome == ORIGIN_THROTTLED || code == CURLE_OPERATION_TIMEDOUT) &&
		 flow_refused(&origin->flow, now))
		engine_places_changed(origin->engine);
}

void try_end(struct loop *loop, struct request *request, CURLcode code)
{
	struct verdict verdict;
	long connects = 0;

	if (request->cancelled) {
		try_stop(loop, request);
		try_finish(loop, request, -ECANCELED);
		return;
	}
	request_judge(request, code, &verdict);
	curl_easy_getinfo(request->easy, CURLINFO_NUM_CONNECTS, &connects);
	request->progress.fresh = connects > 0;
	/* What was cut after a good piece goes on without a long pause. */
	if (request->progress.bytes >= PROGRESS_BYTES)
		request->tries = 1;
	try_stop(loop, request);
	origin_count(request->origin, request->kind, &verdict);
	note_end(request, code, &verdict);
	snprintf(request->last_text, sizeof request->last_text, "%s", verdict.text);
	if (verdict.step == STEP_DONE || verdict.step == STEP_FAIL || request->hedges)
		try_finish(loop, request, verdict.error);
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
	request->without_credentials = true;
	set_waiting(request, clock_now_ns() + CREDENTIALS_TICK_NS);
	loop_wake_at(loop, request->due_ns);
}

int try_start(struct loop *loop, struct request *request)
{
	struct lane *lane = lane_of(request);
	struct verdict verdict;
	int r;

	if (!request->timed) {
		request->timed = true;
		request->deadline_ns = clock_now_ns() + request->origin->timeout_ms * NS_PER_MS;
		loop_wake_at(loop, request->deadline_ns);
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
	count_begun(request, false);
	request->tries++;
	list_append(&lane->running, &request->link);
	lane->n_running++;
	origin_count_running(request->origin, 1);
	request->progress = (struct progress){.started_ns = clock_now_ns()};
	if (request->kind != REQUEST_GET)
		return 0;
	loop->n_busy += !lane->n_gets++;
	loop->n_gets++;
	return 0;
}

/* This loop's part of the GETs that are worth running. Those that get no bytes take none of it. */
static unsigned share_of(const struct loop *loop, const struct origin *origin)
{
	unsigned limit = atomic_load(&origin->flow.limit);
	unsigned share = limit / ENGINE_LOOPS + (loop->number < limit % ENGINE_LOOPS);

	return (share ? share : 1) + origin->lanes[loop->number].n_stalled;
}

/* May this one run, the next of its rank? */
static bool has_place(const struct loop *loop, const struct request *request, enum rank rank)
{
	const struct origin *origin = request->origin;
	const struct lane *lane = &origin->lanes[loop->number];
	unsigned share;

	if (request->counted_begun)
		return lane->n_running < lane->limits[RANK_METADATA];
	if (lane->n_running + lane->n_begun >= lane->limits[rank])
		return false;
	if (rank == RANK_METADATA)
		return true;
	/* A busy loop is divided among its origins. */
	if (loop->n_gets >= LOOP_GETS && lane->n_gets && lane->n_gets >= LOOP_GETS / loop->n_busy)
		return false;
	share = share_of(loop, origin);
	/* What is waited for finds a place beside what runs ahead. */
	return lane->n_gets < (rank == RANK_DEMAND ? 2 * share : share);
}

static struct request *next_request(const struct loop *loop, struct origin *origin)
{
	struct lane *lane = &origin->lanes[loop->number];

	for (int rank = 0; rank < RANKS; rank++) {
		struct list *queued = &lane->queued[rank];

		if (!list_empty(queued) &&
			has_place(loop, container_of(queued->next, struct request, link),
				(enum rank)rank))
			return container_of(list_pop(queued), struct request, link);
	}
	return NULL;
}

/* GETs wait that fewer limits would let run. Among them stand the few listings that run ahead. */
static bool holds_gets(const struct lane *lane)
{
	for (int rank = RANK_DEMAND; rank < RANKS; rank++) {
		list_for_each (link, &lane->queued[rank]) {
			if (container_of(link, struct request, link)->kind == REQUEST_GET)
				return true;
		}
	}
	return false;
}

void lane_run(struct loop *loop, struct origin *origin)
{
	struct lane *lane = &origin->lanes[loop->number];
	struct request *request;

	while ((request = next_request(loop, origin))) {
		int r = try_start(loop, request);

		if (!r)
			continue;
		if (request->easy)
			give_handle(loop, request->easy);
		request->easy = NULL;
		try_finish(loop, request, r);
	}
	atomic_store(&lane->held, holds_gets(lane));
}
