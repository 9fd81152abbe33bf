#include "get.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"

#include "impl.h"
#include "later.h"

/* So many bytes are given the whole budget anew. */
#define BUDGET_BYTES (1u << 20)
/* How much of an object is thrown away to reach a range on a server that knows none. */

static void finish(struct request *request, int error)
{
	struct origin_get *get = get_request_of(request)->get;

	get->done(get, error);
}

static void release(struct request *request)
{
	free(get_request_of(request));
}

void get_start(struct origin_get *get)
{
	struct get_request *own = calloc(1, sizeof *own);

	if (!own) {
		later_get(get, -ENOMEM);
		return;
	}
	request_init(&own->base, REQUEST_GET, get->origin, get->priority);
	own->base.accept = get_accept;
	own->base.finish = finish;
	own->base.release = release;
	own->get = get;
	own->lead = own;
	get->private.state = &own->base;
	engine_submit(&own->base);
}

static void finish_hedge(struct request *request, int error)
{
	struct get_request *own = get_request_of(request);
	uint64_t twice = own->twice < own->charged ? own->twice : own->charged;

	(void)error;
	origin_count_twice(request->origin, twice);
	flow_hedge_back(&request->origin->flow, own->charged - twice);
}

struct request *get_hedge(struct request *request)
{
	struct get_request *lead = get_request_of(request);
	struct get_request *own = calloc(1, sizeof *own);

	if (!own)
		return NULL;
	request_init(&own->base, REQUEST_GET, request->origin, ORIGIN_DEMAND);
	own->base.accept = get_accept;
	own->base.finish = finish_hedge;
	own->base.release = release;
	own->base.loop = request->loop;
	own->base.timed = true;
	own->base.deadline_ns = request->deadline_ns;
	own->base.hedges = own->base.was_hedged = true;
	own->get = lead->get;
	own->lead = lead;
	own->charged = get_missing(request);
	return &own->base;
}

uint64_t get_missing(const struct request *request)
{
	const struct get_request *own = get_request_of(request);

	return own->get->length - own->lead->received;
}

bool get_is_begun(const struct request *request)
{
	return get_request_of(request)->lead->received > 0;
}

bool get_can_be_hedged(const struct request *request)
{
	const struct get_request *own = get_request_of(request);

	return own->begun && !own->whole && !request->rejected && own->get->version.strong;
}

void get_range(const struct request *request, char *value, size_t size)
{
	const struct get_request *own = get_request_of(request);
	uint64_t end = own->get->offset + own->get->length;

	snprintf(value, size, "bytes=%" PRIu64 "-%" PRIu64, own->get->offset + own->lead->received,
		end - 1);
}

void get_reset(struct request *request)
{
	struct get_request *own = get_request_of(request);

	own->begun = own->whole = false;
	own->discard = 0;
	own->repeat = 0;
	own->first = own->at = own->lead->received;
}

bool get_complete(const struct request *request)
{
	const struct get_request *own = get_request_of(request);

	return own->lead->received == own->get->length;
}

static bool reject(struct request *request)
{
	request->rejected = true;
	return false;
}

static bool bad(struct request *request, const char *what)
{
	verdict_bad_answer(&request->verdict, "%s", what);
	return reject(request);
}

static bool same_version(struct get_request *own, uint64_t total)
{
	struct request *request = &own->base;
	struct origin_version version;

	if (request->origin->ops->check_version) {
		if (!request->origin->ops->check_version(request))
			return reject(request);
	} else if (answer_version(&request->answer, total, &version)) {
		return bad(request, "the answer doesn't say which version it is");
	} else if (strcmp(version.text, own->get->version.text) != 0) {
		verdict_fail(&request->verdict, -ESTALE, ORIGIN_CHANGED, "the object has changed");
		return reject(request);
	}
	if (total != own->get->size_bytes)
		return bad(request, "the answer has another size than its version");
	return true;
}

/* 206: exactly the bytes that are missing. */
static bool begin_partial(struct get_request *own)
{
	struct request *request = &own->base;
	const struct answer *answer = &request->answer;
	uint64_t first = own->get->offset + own->first;
	uint64_t last = own->get->offset + own->get->length - 1;

	if (!same_version(own, answer->has_total ? answer->range_total : own->get->size_bytes))
		return false;
	if (!answer->has_range || answer->range_first != first || answer->range_last != last)
		return bad(request, "the answer has another range than was asked for");
	if (answer->has_length && answer->length != last - first + 1)
		return bad(request, "Content-Length contradicts Content-Range");
	return true;
}

/* 200: the whole object; right when that was asked for, or when what comes before can be thrown
 * away. */
static bool begin_whole(struct get_request *own)
{
	struct request *request = &own->base;
	const struct answer *answer = &request->answer;
	uint64_t first = own->get->offset + own->first;
	uint64_t missing = own->get->length - own->first;

	if (!answer->has_length)
		return bad(request, "the server ignored the range");
	if (!same_version(own, answer->length))
		return false;
	if (!request->origin->ops->ranges_optional && missing != answer->length)
		return bad(request, "the server ignored the range");
	if (missing != answer->length)
		origin_note_no_ranges(request->origin);
	if (missing != answer->length && answer->length > ORIGIN_DISCARD_MAX) {
		verdict_fail(&request->verdict, -EIO, ORIGIN_SERVER_ERROR,
			"the server gives no ranges, and the object is longer than %u MiB",
			ORIGIN_DISCARD_MAX >> 20);
		return reject(request);
	}
	own->whole = true;
	own->discard = first;
	return true;
}

/* Looks at the headers of a success before its first byte is given away. */
static bool begin(struct get_request *own)
{
	struct request *request = &own->base;
	const struct answer *answer = &request->answer;

	if (own->begun)
		return true;
	own->begun = true;
	/* What is stored with an encoding has its length; what is packed on the way has not, and
	 * would pass for the object's bytes up to where it ends too early. */
	if (answer->coded && !answer->has_length)
		return bad(request, "something between here and the origin packs the bytes");
	if (answer->status == 206)
		return begin_partial(own);
	if (answer->status == 200)
		return begin_whole(own);
	verdict_bad_answer(&request->verdict, "HTTP %ld to a GET", answer->status);
	return reject(request);
}

/* Stops the transfer; curl will give this piece again, of which `taken` bytes are done with. */
static size_t pause_body(struct get_request *own, size_t taken)
{
	own->repeat = taken;
	own->base.paused = true;
	own->base.paused_since_ns = clock_now_ns();
	return CURL_WRITEFUNC_PAUSE;
}

/* Counts bytes that came from the socket. */
static void count(struct request *request, size_t n)
{
	struct origin *origin = request->origin;
	bool held = false;

	atomic_fetch_add(&origin->bytes, n);
	for (unsigned i = 0; i < ENGINE_LOOPS; i++)
		held |= atomic_load(&origin->lanes[i].held);
	if (flow_bytes(&origin->flow, &request->progress, clock_now_ns(), n, held))
		engine_places_changed(origin->engine);
}

/* Steps over those of n bytes that the other of two requests for them gave already. Returns how
 * many. */
static size_t step_over(struct get_request *own, size_t n)
{
	uint64_t given = own->lead->received - own->at;
	size_t over = given < n ? (size_t)given : n;
	struct request *hedge = own->base.hedges ? &own->base : own->base.twin;

	own->at += over;
	if (hedge)
		get_request_of(hedge)->twice += over;
	return over;
}

/* The budget is what a piece may take: a link that is slow but steady is no fault. */
static void renew_budget(struct get_request *own, uint64_t before)
{
	struct get_request *lead = own->lead;
	uint64_t deadline_ns;

	if (before / BUDGET_BYTES == lead->received / BUDGET_BYTES)
		return;
	deadline_ns = clock_now_ns() + own->base.origin->timeout_ms * NS_PER_MS;
	own->base.deadline_ns = lead->base.deadline_ns = deadline_ns;
}

/* Returns how many of n bytes the caller took. */
static size_t give_away(struct get_request *own, const uint8_t *bytes, size_t n)
{
	struct get_request *lead = own->lead;
	uint64_t before = lead->received;
	size_t took = 0;

	if (n && !lead->base.blocked)
		took = own->get->data(own->get, bytes, n);
	check(took <= n);
	own->at += took;
	lead->received += took;
	renew_budget(own, before);
	if (took < n)
		lead->base.blocked = true;
	return took;
}

size_t get_body(struct request *request, const uint8_t *bytes, size_t n)
{
	struct get_request *own = get_request_of(request);
	size_t at = own->repeat < n ? own->repeat : n, fresh = n - at, give, took;
	uint64_t rest, pace_ns;

	if (!begin(own))
		return 0;
	own->repeat -= at;
	count(request, fresh);
	give = own->discard < n - at ? (size_t)own->discard : n - at;
	own->discard -= give;
	at += give;
	rest = own->get->length - own->at;
	give = n - at;
	if (give > rest && own->whole) {
		give = (size_t)rest;
	} else if (give > rest) {
		verdict_bad_answer(&request->verdict, "the body is longer than its range");
		reject(request);
		return 0;
	}
	took = step_over(own, give);
	at += took;
	give -= took;
	took = give_away(own, bytes + at, give);
	at += took;
	if (took < give)
		return pause_body(own, at);
	pace_ns = origin_pace(request->origin, fresh);
	if (pace_ns && !request->unpaced && !get_complete(request)) {
		request->throttled = true;
		request->due_ns = clock_now_ns() + pace_ns;
		return pause_body(own, n);
	}
	/* Ends the transfer of a whole object whose rest nobody wants. */
	return own->at == own->get->length && at < n ? 0 : n;
}

void get_accept(struct request *request, struct verdict *verdict)
{
	struct get_request *own = get_request_of(request);

	if (!begin(own))
		*verdict = request->verdict;
	else
		verdict_bad_answer(verdict, "the body is shorter than its range");
}
