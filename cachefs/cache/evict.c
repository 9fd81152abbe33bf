/*
 * Eviction: whole objects, the ones opened longest ago first. What is open, mapped or pinned stays:
 * the raw file's write lease tells, not our memory.
 *
 * The file goes first, its records after, in one transaction for many. In between a crash leaves
 * records without a file, which the next open of the object finds out before it believes them.
 */
#include "evict.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "commit.h"
#include "index/index.h"
#include "objects.h"
#include "resident.h"
#include "space.h"
#include "store/store.h"
#include "whole.h"

#define CANDIDATES 1024
#define BATCH      64

struct candidate {
	struct id128 id;
	int64_t opened_wall_ns;
};

/* The oldest objects of one look at the index, oldest last. What is taken from here may have been
 * opened, filled or pinned since. */
struct evict_candidates {
	size_t n;
	int64_t now_ns;
	struct candidate objects[CANDIDATES];
};

static void sift_down(struct evict_candidates *c, size_t i)
{
	for (;;) {
		size_t youngest = i, left = 2 * i + 1, right = left + 1;
		struct candidate swap;

		if (left < c->n &&
			c->objects[left].opened_wall_ns > c->objects[youngest].opened_wall_ns)
			youngest = left;
		if (right < c->n &&
			c->objects[right].opened_wall_ns > c->objects[youngest].opened_wall_ns)
			youngest = right;
		if (youngest == i)
			return;
		swap = c->objects[i];
		c->objects[i] = c->objects[youngest];
		c->objects[youngest] = swap;
		i = youngest;
	}
}

static int by_age(const void *a, const void *b)
{
	const struct candidate *left = a, *right = b;

	return (left->opened_wall_ns < right->opened_wall_ns) -
	       (left->opened_wall_ns > right->opened_wall_ns);
}

/* Keeps the CANDIDATES oldest: a heap whose root is the youngest of them. */
static int consider(void *arg, struct id128 id, const struct index_object_record *record)
{
	struct evict_candidates *c = arg;
	struct candidate candidate = {
		.id = id,
		.opened_wall_ns = record->object.opened_wall_ns,
	};

	if (!record->object.n_present || record->object.pinned_until_ns > c->now_ns)
		return 0;
	if (c->n < CANDIDATES) {
		c->objects[c->n++] = candidate;
		if (c->n == CANDIDATES)
			for (size_t i = CANDIDATES / 2; i-- > 0;)
				sift_down(c, i);
	} else if (candidate.opened_wall_ns < c->objects[0].opened_wall_ns) {
		c->objects[0] = candidate;
		sift_down(c, 0);
	}
	return 0;
}

static struct evict_candidates *look(struct cache *cache)
{
	struct evict_candidates *c = cache->candidates;

	if (!c)
		c = cache->candidates = malloc(sizeof *c);
	if (!c)
		return NULL;
	/* The index shouldn't tell of older opens than memory does. */
	commit_touches(cache);
	c->n = 0;
	c->now_ns = clock_wall_ns();
	index_each_object(cache->index, consider, c);
	qsort(c->objects, c->n, sizeof c->objects[0], by_age);
	return c;
}

/* Takes the objects whose files are gone out of the index, and lets who waits open them anew. */
static void commit_forgotten(struct cache *cache, struct object *const *placeholders, size_t n)
{
	struct index_txn *txn;
	int r;

	if (!n)
		return;
	r = index_begin(cache->index, &txn);
	if (!r) {
		for (size_t i = 0; !r && i < n; i++)
			r = index_delete_object(txn, placeholders[i]->id);
		if (r)
			index_abort(txn);
		else
			r = index_commit(txn);
	}
	if (r)
		log_error("index_write_failed", "error=%s", strerror(-r));
	for (size_t i = 0; i < n; i++)
		object_evict_finish(placeholders[i]);
}

/* Whether the object, which nobody can open now, is to go; what it uses into the placeholder. */
static int still_evictable(
	struct cache *cache, struct object *placeholder, const struct candidate *candidate)
{
	struct index_object_record record;
	int r = index_get_object(cache->index, candidate->id, &record);

	if (r)
		return r;
	if (record.object.pinned_until_ns > clock_wall_ns())
		return -EPERM;
	if (!placeholder->has_record) {
		placeholder->disk_bytes = record.object.disk_bytes;
		placeholder->opened_wall_ns = record.object.opened_wall_ns;
	}
	return placeholder->opened_wall_ns > candidate->opened_wall_ns ? -EBUSY : 0;
}

/* The file of one object, if it wasn't opened after the candidate's time. 0: gone, and the
 * placeholder keeps opens waiting until its records are gone too. */
static int evict_file(struct cache *cache, const struct candidate *candidate,
	struct object **ret_placeholder, uint64_t *ret_freed)
{
	uint64_t freed = 0;
	int r = object_evict_begin(cache, candidate->id, ret_placeholder);

	if (r)
		return r;
	r = still_evictable(cache, *ret_placeholder, candidate);
	if (!r)
		r = raw_remove(cache->store, candidate->id, &freed);
	if (r) {
		object_evict_finish(*ret_placeholder);
		return r;
	}
	/* Else whoever reads next would get bytes that are in no store, and never bring them there. */
	resident_drop_object(&cache->resident, candidate->id);
	space_give(cache, (*ret_placeholder)->disk_bytes);
	atomic_fetch_add(&cache->counters.evicted_objects, 1);
	atomic_fetch_add(&cache->counters.evicted_bytes, freed);
	*ret_freed = freed;
	return 0;
}

/* fresh: the candidates are of a look just now. */
static uint64_t evict_batch(
	struct cache *cache, struct evict_candidates *c, bool fresh, uint64_t bytes)
{
	struct object *placeholders[BATCH];
	uint64_t freed = 0;
	size_t n = 0;

	while (c->n && n < BATCH && freed < bytes) {
		struct candidate candidate = c->objects[--c->n];
		uint64_t one = 0;

		if (fresh)
			candidate.opened_wall_ns = INT64_MAX;
		if (!evict_file(cache, &candidate, &placeholders[n], &one)) {
			freed += one;
			n++;
		}
	}
	commit_forgotten(cache, placeholders, n);
	return freed;
}

bool evict_for(struct cache *cache, uint64_t bytes)
{
	uint64_t freed = 0, wanted;
	bool looked = false;

	complete_give_way(cache);
	lock_take(&cache->evict_lock);
	/* Whoever had the lock before may have made room enough for this one too. */
	wanted = space_missing(cache, bytes);
	while (freed < wanted) {
		struct evict_candidates *c = cache->candidates;

		if (!c || !c->n) {
			if (looked)
				break;
			c = look(cache);
			looked = true;
			if (!c || !c->n)
				break;
		}
		freed += evict_batch(cache, c, looked, wanted - freed);
	}
	if (freed)
		space_freed(cache);
	lock_drop(&cache->evict_lock);
	return freed || !wanted;
}

int evict_object(struct cache *cache, struct id128 id, uint64_t *ret_freed_bytes)
{
	const struct candidate candidate = {.id = id, .opened_wall_ns = INT64_MAX};
	struct object *placeholder;
	int r;

	complete_cancel(cache, id);
	commit_flush(cache);
	lock_take(&cache->evict_lock);
	r = evict_file(cache, &candidate, &placeholder, ret_freed_bytes);
	if (!r)
		commit_forgotten(cache, &placeholder, 1);
	lock_drop(&cache->evict_lock);
	return r;
}

void evict_free(struct cache *cache)
{
	free(cache->candidates);
	cache->candidates = NULL;
}
