/* The cache as a whole: made, ended, counted. */
#include "whole.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/work.h"
#include "commit.h"
#include "evict.h"
#include "fetch.h"
#include "index/index.h"
#include "objects.h"
#include "space.h"
#include "store/ring.h"
#include "store/store.h"

#define MEMORY_DEFAULT (192ull << 20)
#define INDEX_MAP      (64ull << 30)
#define RING_ENTRIES   64

/* A damaged index is no reason not to start: what it knew comes from the origins again. */
static int open_index(struct cache *cache, struct why *why)
{
	const char *dir = store_index_dir(cache->store);
	char aside[PATH_MAX];
	int r = index_open(dir, INDEX_MAP, &cache->index, why);

	if (r != -EUCLEAN)
		return r;
	r = index_set_aside(dir, aside, why);
	if (r)
		return r;
	log_error("index_set_aside", "to=%s reason=%s", aside, why->text);
	return index_open(dir, INDEX_MAP, &cache->index, why);
}

static int start(struct cache *cache, const struct cache_config *config, struct why *why)
{
	uint64_t memory = config->memory_bytes ? config->memory_bytes : MEMORY_DEFAULT;
	size_t n_buffers = memory / POOL_BUFFER_SIZE < 8 ? 8 : memory / POOL_BUFFER_SIZE;
	int r = store_open(config->store_dir, config->lock_wait_ms, &cache->store, why);

	if (r)
		return r;
	r = open_index(cache, why);
	if (r)
		return r;
	r = space_init(cache, config->capacity, why);
	if (r)
		return r;
	r = ring_new(RING_ENTRIES, &cache->ring);
	if (r)
		return why_set(why, r,
			"io_uring is not to be had (%s): the kernel must be 5.6 or newer and "
			"kernel.io_uring_disabled 0",
			strerror(-r));
	cache->n_buffers = (uint32_t)n_buffers;
	r = pool_new(n_buffers, &cache->pool);
	if (!r)
		r = resident_init(&cache->resident, n_buffers);
	if (!r)
		gather_init(&cache->gather, n_buffers);
	if (!r)
		r = map_init(&cache->objects);
	if (!r)
		r = work_new("open", 2, &cache->opens);
	if (!r)
		r = work_new("verify", 1, &cache->verifies);
	if (!r)
		r = work_new("names", 2, &cache->names);
	if (!r)
		r = work_new("keep", 2, &cache->keeps);
	if (!r)
		r = commit_start(cache);
	if (r)
		return why_set(why, r, "can't start the cache: %s", strerror(-r));
	if (index_was_unclean(cache->index))
		strays_sweep(cache);
	return 0;
}

int cache_new(const struct cache_config *config, struct cache **ret, struct why *why)
{
	struct cache *cache = calloc(1, sizeof *cache);
	int r;

	if (!cache)
		return why_set(why, -ENOMEM, "no memory");
	lock_init(&cache->objects_lock);
	lock_init(&cache->fetches_lock);
	lock_init(&cache->evict_lock);
	cond_init(&cache->fetches_gone);
	list_init(&cache->fetches);
	complete_init(cache);
	list_init(&cache->idle_objects);
	lock_init(&cache->trees_lock);
	list_init(&cache->trees);
	cache->listing_room.make = trees_make_room;
	r = start(cache, config, why);
	if (r) {
		cache_free(cache);
		return r;
	}
	*ret = cache;
	return 0;
}

int cache_check(const char *dir, struct why *why)
{
	char index_dir[PATH_MAX];
	int r = store_check(dir, why);

	if (r)
		return r;
	if ((size_t)snprintf(index_dir, sizeof index_dir, "%s/index", dir) >= sizeof index_dir)
		return why_set(why, -ENAMETOOLONG, "store %s: the path is too long", dir);
	return index_check(index_dir, why);
}

static void wait_for_chunks(struct cache *cache)
{
	complete_stop(cache);
	fetches_cancel_and_wait(cache);
	commit_flush(cache);
	lock_take(&cache->fetches_lock);
	while (cache->busy_chunks)
		cond_wait(&cache->fetches_gone, &cache->fetches_lock);
	lock_drop(&cache->fetches_lock);
}

void cache_free(struct cache *cache)
{
	if (!cache)
		return;
	atomic_store(&cache->ending, true);
	if (cache->commit.started)
		wait_for_chunks(cache);
	work_free(cache->opens);
	work_free(cache->verifies);
	work_free(cache->names);
	work_free(cache->keeps);
	commit_stop(cache);
	if (cache->objects.buckets) {
		objects_free_idle(cache, 0);
		check(cache->objects.count == 0);
		map_destroy(&cache->objects);
	}
	complete_destroy(cache);
	evict_free(cache);
	resident_free(&cache->resident);
	ring_free(cache->ring);
	if (cache->gather.room)
		gather_destroy(&cache->gather);
	pool_free(cache->pool);
	index_close(cache->index);
	store_close(cache->store);
	free(cache);
}

const char *cache_store_dir(const struct cache *cache)
{
	return store_dir(cache->store);
}

void cache_stats(struct cache *cache, struct cache_stats *ret)
{
	struct cache_counters *c = &cache->counters;
	struct index_totals totals = {0};
	struct pool_stats pool;

	index_totals(cache->index, &totals);
	pool_stats(cache->pool, &pool);
	*ret = (struct cache_stats){
		.objects = totals.objects,
		.hit_bytes = atomic_load(&c->hit_bytes),
		.miss_bytes = atomic_load(&c->miss_bytes),
		.fetches = atomic_load(&c->fetches),
		.fetched_bytes = atomic_load(&c->fetched_bytes),
		.uncached_bytes = atomic_load(&c->uncached_bytes),
		.written_bytes = atomic_load(&c->written_bytes),
		.commits = atomic_load(&c->commits),
		.checksum_failures = atomic_load(&c->checksum_failures),
		.store_errors = atomic_load(&c->store_errors),
		.evicted_objects = atomic_load(&c->evicted_objects),
		.evicted_bytes = atomic_load(&c->evicted_bytes),
		.pool_buffers = pool.buffers,
		.pool_in_use = pool.in_use,
		.pool_waiters = pool.waiters,
		.index_map_used_bytes = totals.map_used_bytes,
		.index_map_bytes = totals.map_bytes,
		.direct_io = store_direct_io(cache->store),
		.stray_files = atomic_load(&cache->strays.removed),
		.indexes_set_aside = index_count_aside(store_index_dir(cache->store)),
	};
	lock_take(&cache->space.lock);
	ret->capacity_bytes = cache->space.capacity_bytes;
	ret->used_bytes = cache->space.used_bytes + totals.map_used_bytes;
	ret->store_full = cache->space.full;
	lock_drop(&cache->space.lock);
}
