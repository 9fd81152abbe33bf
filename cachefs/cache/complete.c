/*
 * Completion of an object:
 *
 *   1. in line    complete_look found it worth it
 *   2. asking     a worker ("open") has its absent chunks fetched a part at a time, in turn with
 *                 others'; each part that ends wakes the worker
 *   3. dry        nothing absent is left to ask for; what changed since is looked for once more
 *   4. over       an error, or somebody wants it to end: its parts are cancelled, or left to
 *                 the readers that wait for them
 *   5. gone       dry or over, and no part is under way
 *
 * The worker alone starts parts, cancels them, and frees.
 */
#include "complete.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "chunks.h"
#include "fetch.h"
#include "objects.h"
#include "reads.h"
#include "space.h"
#include "whole.h"

struct completion {
	struct list link; /* completions.lock */
	struct id128 id;
	struct reader *reader;           /* its own, with references of object and origin */
	uint32_t next;                   /* the worker's: chunks before it aren't absent */
	unsigned n_parts;                /* completions.lock */
	bool dry, over, cancels, failed; /* completions.lock */
	bool again;                      /* object.lock: chunks changed since they were looked at */
};

typedef void completion_step(struct completion *completion);

static struct completions *completions_of(struct completion *completion)
{
	return &completion->reader->object->cache->completions;
}

/* --- which --- */

static bool is_worth_it(struct object *object)
{
	check(lock_held(&object->lock));
	return !object->complete && !object->changed && !object->unkept &&
	       (object->was_whole || object->n_present > object->n_chunks / 2);
}

static struct completion *completion_new(
	struct object *object, struct origin *origin, const char *path)
{
	struct completion *completion = calloc(1, sizeof *completion);

	if (!completion || reader_new(object, origin, path, NULL, &completion->reader)) {
		free(completion);
		return NULL;
	}
	completion->id = object->id;
	return completion;
}

static bool add(struct completions *all, struct completion *completion)
{
	bool added;

	lock_take(&all->lock);
	added = !all->ending && all->n_objects < COMPLETE_OBJECTS;
	if (added) {
		list_append(&all->objects, &completion->link);
		all->n_objects++;
	}
	lock_drop(&all->lock);
	return added;
}

void complete_look(struct object *object)
{
	struct completion *completion = NULL;
	bool added = false;

	lock_take(&object->lock);
	if (object->completion) {
		object->completion->again = true;
	} else if (object->origin && is_worth_it(object)) {
		completion = completion_new(object, object->origin, object->path);
		added = completion && add(&object->cache->completions, completion);
		if (added)
			object->completion = completion;
	}
	lock_drop(&object->lock);
	if (added) {
		complete_wake(object->cache);
	} else if (completion) {
		reader_free(completion->reader);
		free(completion);
	}
}

/* Gives the object another origin to be completed by, or none; returns the one it had. */
static struct origin *set_origin(struct object *object, struct origin *origin, char *path)
{
	struct origin *before = object->origin;

	check(lock_held(&object->lock));
	free(object->path);
	object->origin = origin;
	object->path = path;
	return before;
}

void complete_opened(struct object *object, struct origin *origin, const char *path)
{
	struct origin *before = NULL;
	char *copy;

	lock_take(&object->lock);
	if (object->origin != origin) {
		copy = strdup(path);
		if (copy)
			before = set_origin(object, origin_ref(origin), copy);
	}
	lock_drop(&object->lock);
	origin_unref(before);
	complete_look(object);
}

/* --- the worker --- */

/* Whether more of it may be fetched now. 0, or why it is over. */
static int may_go_on(struct completion *completion)
{
	struct object *object = completion->reader->object;
	struct cache *cache = object->cache;
	struct origin_stats stats;
	uint64_t missing_bytes;
	bool worth, was_whole;

	lock_take(&object->lock);
	worth = object->complete || is_worth_it(object);
	was_whole = object->was_whole;
	missing_bytes = (uint64_t)(object->n_chunks - object->n_present) * CHUNK_SIZE;
	lock_drop(&object->lock);
	if (!worth)
		return -ESTALE;
	if (trouble_forbids_writes(cache) || !space_has_hope(cache))
		return -ENOSPC;
	/* What was whole has its room already. */
	if (!was_whole && space_missing(cache, missing_bytes))
		return -ENOSPC;
	if (origin_is_shut(completion->reader->origin))
		return -ECANCELED;
	origin_stats(completion->reader->origin, &stats);
	return stats.reachable ? 0 : -EIO;
}

/* 1: a part is under way; 0: there is nothing to ask for; or -errno. */
static int ask(struct completion *completion)
{
	struct object *object = completion->reader->object;
	int n = may_go_on(completion);

	while (!n && fetch_find_absent(object, &completion->next, object->n_chunks))
		n = fetch_completing(completion, completion->reader, completion->next);
	if (n > 0)
		completion->next += (uint32_t)n;
	return n > 0 ? 1 : n;
}

static void part_ended(struct completion *completion, bool dry, int error)
{
	struct completions *all = completions_of(completion);

	lock_take(&all->lock);
	completion->n_parts--;
	all->n_parts--;
	completion->dry |= dry;
	if (error && !completion->over)
		completion->over = completion->failed = true;
	lock_drop(&all->lock);
}

/* The place for the part is taken. */
static void ask_step(struct completion *completion)
{
	int r = ask(completion);

	if (r <= 0)
		part_ended(completion, !r, r);
}

static void cancel_step(struct completion *completion)
{
	struct cache *cache = completion->reader->object->cache;
	unsigned n_left = fetches_cancel_completing(cache, completion);

	while (n_left--)
		part_ended(completion, false, 0);
}

static void end_step(struct completion *completion)
{
	struct completions *all = completions_of(completion);
	struct object *object = completion->reader->object;
	struct origin *origin = NULL;
	bool again, over, failed;

	lock_take(&all->lock);
	over = completion->over;
	failed = completion->failed;
	lock_drop(&all->lock);
	lock_take(&object->lock);
	again = completion->again && !over;
	completion->again = false;
	completion->next = 0;
	if (!again)
		object->completion = NULL;
	if (failed)
		origin = set_origin(object, NULL, NULL);
	lock_drop(&object->lock);
	origin_unref(origin);
	if (again) {
		lock_take(&all->lock);
		completion->dry = false;
		lock_drop(&all->lock);
		return;
	}
	reader_free(completion->reader);
	/* Who waits for this wants the object to be unused. */
	lock_take(&all->lock);
	list_remove(&completion->link);
	all->n_objects--;
	cond_broadcast(&all->changed);
	lock_drop(&all->lock);
	free(completion);
}

static completion_step *step_of(struct cache *cache, struct completion *completion)
{
	struct completions *all = &cache->completions;

	if ((completion->over || completion->dry) && !completion->n_parts)
		return end_step;
	if (completion->over && !completion->cancels) {
		completion->cancels = true;
		return cancel_step;
	}
	if (completion->over || completion->dry || atomic_load(&cache->wanted_fetches) ||
		all->n_parts == COMPLETE_PARTS || completion->n_parts == COMPLETE_PARTS_OF_ONE)
		return NULL;
	completion->n_parts++;
	all->n_parts++;
	return ask_step;
}

/* What is to be done now, and for which; NULL: nothing. */
static completion_step *next_step(struct cache *cache, struct completion **ret)
{
	struct completions *all = &cache->completions;

	check(lock_held(&all->lock));
	list_for_each (link, &all->objects) {
		struct completion *completion = container_of(link, struct completion, link);
		completion_step *step = step_of(cache, completion);

		if (step) {
			list_remove(link);
			list_append(&all->objects, link);
			*ret = completion;
			return step;
		}
	}
	return NULL;
}

static void run(struct job *job)
{
	struct completions *all = container_of(job, struct completions, job);
	struct cache *cache = container_of(all, struct cache, completions);
	struct completion *completion;
	completion_step *step;

	lock_take(&all->lock);
	while ((step = next_step(cache, &completion))) {
		lock_drop(&all->lock);
		step(completion);
		lock_take(&all->lock);
	}
	all->posted = false;
	cond_broadcast(&all->changed);
	lock_drop(&all->lock);
}

void complete_wake(struct cache *cache)
{
	struct completions *all = &cache->completions;
	bool post;

	lock_take(&all->lock);
	post = !all->posted && !list_empty(&all->objects);
	all->posted |= post;
	lock_drop(&all->lock);
	if (post)
		work_post(cache->opens, &all->job);
}

void complete_part_ended(struct completion *completion, int error)
{
	struct cache *cache = completion->reader->object->cache;

	part_ended(completion, false, error);
	complete_wake(cache);
}

/* --- ending --- */

/* id NULL: all. completions.lock held. False: there is none. */
static bool end_those(struct completions *all, const struct id128 *id)
{
	bool some = false;

	check(lock_held(&all->lock));
	list_for_each (link, &all->objects) {
		struct completion *completion = container_of(link, struct completion, link);

		if (!id || id128_equal(completion->id, *id))
			some = completion->over = true;
	}
	return some;
}

void complete_give_way(struct cache *cache)
{
	struct completions *all = &cache->completions;
	bool some;

	lock_take(&all->lock);
	some = end_those(all, NULL);
	lock_drop(&all->lock);
	if (some)
		complete_wake(cache);
}

static void end_and_wait(struct cache *cache, const struct id128 *id)
{
	struct completions *all = &cache->completions;

	lock_take(&all->lock);
	while (end_those(all, id)) {
		lock_drop(&all->lock);
		complete_wake(cache);
		lock_take(&all->lock);
		if (end_those(all, id))
			cond_wait(&all->changed, &all->lock);
	}
	lock_drop(&all->lock);
}

void complete_cancel(struct cache *cache, struct id128 id)
{
	struct object *object = object_find(cache, id);
	struct origin *origin;

	if (object) {
		lock_take(&object->lock);
		origin = set_origin(object, NULL, NULL);
		lock_drop(&object->lock);
		origin_unref(origin);
		object_unref(object);
	}
	end_and_wait(cache, &id);
}

void complete_init(struct cache *cache)
{
	struct completions *all = &cache->completions;

	lock_init(&all->lock);
	cond_init(&all->changed);
	list_init(&all->objects);
	all->job.run = run;
}

void complete_stop(struct cache *cache)
{
	struct completions *all = &cache->completions;

	lock_take(&all->lock);
	all->ending = true;
	lock_drop(&all->lock);
	end_and_wait(cache, NULL);
	lock_take(&all->lock);
	while (all->posted)
		cond_wait(&all->changed, &all->lock);
	lock_drop(&all->lock);
}

void complete_destroy(struct cache *cache)
{
	check(list_empty(&cache->completions.objects));
	cond_destroy(&cache->completions.changed);
	lock_destroy(&cache->completions.lock);
}
