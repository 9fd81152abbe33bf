#include "engine.h"

#include <curl/curl.h>
#include <errno.h>
#include <libxml/parser.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/work.h"

#include "impl.h"
#include "loop.h"
#include "try.h"

/* Each may wait a minute for a process that hangs, and no volume's keys are to wait for another's. */
#define FETCH_WORKERS 8
/* For what never blocks. */
#define LATER_WORKERS 1

struct origin_engine {
	struct loop loops[ENGINE_LOOPS];
	unsigned n_loops;
	struct work *fetch, *later;
};

void lane_init(struct lane *lane, unsigned limit, bool first)
{
	unsigned ahead = first && limit >= 4 ? limit - 1 : limit;
	unsigned unasked = limit >= 4 ? limit - limit / 4 : limit;

	*lane = (struct lane){.limits = {[RANK_METADATA] = limit + limit / 8,
				      [RANK_DEMAND] = limit,
				      [RANK_READAHEAD] = ahead,
				      [RANK_PREFETCH] = unasked}};
	for (int i = 0; i < RANKS; i++)
		list_init(&lane->queued[i]);
	list_init(&lane->running);
}

int origin_engine_new(struct origin_engine **ret)
{
	struct origin_engine *engine;
	int r = 0;

	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return -ENOMEM;
	xmlInitParser();
	engine = calloc(1, sizeof *engine);
	if (!engine)
		return -ENOMEM;
	r = work_new("origin-keys", FETCH_WORKERS, &engine->fetch);
	if (!r)
		r = work_new("origin-later", LATER_WORKERS, &engine->later);
	while (!r && engine->n_loops < ENGINE_LOOPS) {
		r = loop_start(&engine->loops[engine->n_loops], engine->n_loops);
		if (!r)
			engine->n_loops++;
	}
	if (r) {
		origin_engine_free(engine);
		return r;
	}
	*ret = engine;
	return 0;
}

void origin_engine_free(struct origin_engine *engine)
{
	if (!engine)
		return;
	/* Before the loops, which it wakes. */
	work_free(engine->fetch);
	for (unsigned i = 0; i < engine->n_loops; i++)
		loop_stop(&engine->loops[i]);
	/* After them, which use it. */
	work_free(engine->later);
	free(engine);
	curl_global_cleanup();
}

static unsigned choose_loop(const struct request *request)
{
	const struct origin *origin = request->origin;
	enum rank rank = try_rank(request);
	unsigned best = 0;
	uint64_t best_load = UINT64_MAX;

	for (unsigned i = 0; i < ENGINE_LOOPS; i++) {
		const struct lane *lane = &origin->lanes[i];
		uint64_t load;

		if (!lane->limits[rank])
			continue;
		load = (uint64_t)atomic_load(&lane->load) * 1024 / lane->limits[rank];
		if (load < best_load) {
			best = i;
			best_load = load;
		}
	}
	return best;
}

static void submit(struct request *request)
{
	struct origin *origin = request->origin;

	/* What runs ahead may wait in the queue for long: its clock runs from the first try. */
	if (request->priority == ORIGIN_DEMAND) {
		request->timed = true;
		request->deadline_ns = clock_now_ns() + origin->timeout_ms * NS_PER_MS;
	}
	atomic_fetch_add(&origin->lanes[request->loop].load, 1);
	loop_submit(&origin->engine->loops[request->loop], request);
}

void engine_submit(struct request *request)
{
	request->loop = choose_loop(request);
	submit(request);
}

void engine_submit_pair(struct request *request, struct request *other)
{
	request->loop = other->loop = choose_loop(request);
	/* The first may be finished before the second is there: what they share lives until both
	 * are released. */
	submit(request);
	submit(other);
}

void engine_signal(struct request *request, unsigned signal)
{
	loop_signal(&request->origin->engine->loops[request->loop], request, signal);
}

void engine_places_changed(struct origin_engine *engine)
{
	for (unsigned i = 0; i < engine->n_loops; i++)
		loop_places_changed(&engine->loops[i]);
}

void engine_look_for_shut(struct origin_engine *engine)
{
	for (unsigned i = 0; i < engine->n_loops; i++)
		loop_look_for_shut(&engine->loops[i]);
}

void engine_fetch(struct origin_engine *engine, struct job *job)
{
	work_post(engine->fetch, job);
}

void engine_wake_waiting(struct origin_engine *engine)
{
	for (unsigned i = 0; i < engine->n_loops; i++)
		loop_wake_waiting(&engine->loops[i]);
}

void engine_later(struct origin_engine *engine, struct origin_private *private,
	void (*run)(struct job *job), int error)
{
	private->error = error;
	private->job.run = run;
	work_post(engine->later, &private->job);
}
