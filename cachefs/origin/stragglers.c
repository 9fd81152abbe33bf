#include "stragglers.h"

#include "get.h"
#include "impl.h"
#include "try.h"

/* One request is moved so often; then curl's own limit is what ends a silent try. */
#define MOVES_MOST 3
/* Less is not worth a second request. */
#define HEDGE_LEAST_BYTES (256u << 10)
/* A GET that is silent for so long takes no place from others. */
#define SILENT_NS (2 * NS_PER_SEC)

static void move(struct loop *loop, struct request *request)
{
	try_stop(loop, request);
	/* It was the connection's fault: no reason to wait longer before the next try. */
	request->tries--;
	request->moves++;
	origin_count_move(request->origin);
	try_queue(request, true);
	atomic_store(&loop->places_changed, true);
}

static void hedge(struct loop *loop, struct request *request)
{
	struct request *other = get_hedge(request);

	request->was_hedged = true;
	if (!other)
		return;
	loop_adopt(loop, other);
	other->twin = request;
	request->twin = other;
	origin_count_hedge(request->origin);
	try_queue(other, true);
	atomic_store(&loop->places_changed, true);
}

static bool may_hedge(const struct request *request)
{
	const struct get_request *own = get_request_of(request);

	return !request->was_hedged && !request->origin->bandwidth_bytes &&
	       own->get->length >= PEERS_PART_BYTES && get_missing(request) >= HEDGE_LEAST_BYTES &&
	       get_can_be_hedged(request) &&
	       flow_hedge(&request->origin->flow, get_missing(request));
}

static void look(struct loop *loop, struct request *request, uint64_t now_ns)
{
	struct lane *lane = &request->origin->lanes[loop->number];

	if (flow_silent_ns(&request->progress, now_ns) >= SILENT_NS)
		lane->n_stalled++;
	if (request->twin)
		return;
	switch (flow_pace(&request->origin->flow, &request->progress, now_ns)) {
	case PACE_FINE:
		break;
	case PACE_STALLED:
		if (request->moves < MOVES_MOST)
			move(loop, request);
		break;
	case PACE_SLOW:
		if (may_hedge(request))
			hedge(loop, request);
		break;
	}
}

uint64_t stragglers_due_ns(const struct loop *loop)
{
	return loop->n_gets ? loop->watched_ns + LOOP_WATCH_NS : UINT64_MAX;
}

void stragglers_look(struct loop *loop, uint64_t now_ns)
{
	if (now_ns < stragglers_due_ns(loop) || !loop->n_gets)
		return;
	loop->watched_ns = now_ns;
	list_for_each (link, &loop->requests)
		container_of(link, struct request, all)->origin->lanes[loop->number].n_stalled = 0;
	/* Hedges are added at the end, and nobody is called back. */
	list_for_each (link, &loop->requests) {
		struct request *request = container_of(link, struct request, all);

		if (request->kind == REQUEST_GET && request->state == REQUEST_RUNNING &&
			!request->paused)
			look(loop, request, now_ns);
		/* The places of silent ones are given to others. */
		if (request->state == REQUEST_QUEUED &&
			request->origin->lanes[loop->number].n_stalled)
			atomic_store(&loop->places_changed, true);
	}
}
