/*
 * whole: the cache, made of its parts. Locks, outermost first:
 *     evict_lock > objects_lock > object.lock > one of { resident, gather, space, commit, fetches }
 *     > pool
 *     trees_lock > tree.lock
 * completions.lock is taken under object.lock or alone, and none under it.
 */
#ifndef CACHE_WHOLE_H
#define CACHE_WHOLE_H

#include <stdatomic.h>

#include "base/list.h"
#include "base/lock.h"
#include "base/map.h"
#include "cache/cache.h"
#include "commit.h"
#include "complete.h"
#include "gather.h"
#include "listing.h"
#include "readahead.h"
#include "resident.h"
#include "space.h"
#include "strays.h"
#include "trouble.h"

struct evict_candidates;
struct index;
struct pool;
struct ring;
struct store;
struct work;

struct cache_counters {
	_Atomic uint64_t hit_bytes, miss_bytes, fetches, fetched_bytes, uncached_bytes,
		written_bytes, commits, checksum_failures, store_errors, evicted_objects,
		evicted_bytes;
};

struct cache {
	_Atomic bool ending; /* long work is to be broken off */
	struct store *store;
	struct index *index;
	struct pool *pool;
	struct ring *ring;
	struct work *opens;    /* loads objects */
	struct work *verifies; /* may take long */
	struct work *names;    /* reads and writes listings in the index */
	struct work *keeps;    /* makes raw files, makes room */
	struct lock objects_lock;
	struct map objects;       /* objects_lock */
	struct list idle_objects; /* objects_lock; oldest first */
	size_t n_idle_objects;    /* objects_lock */
	struct lock fetches_lock;
	struct cond fetches_gone;        /* no fetch, or no busy chunk, any more */
	struct list fetches;             /* fetches_lock */
	size_t busy_chunks;              /* fetches_lock */
	_Atomic unsigned wanted_fetches; /* those that aren't ORIGIN_PREFETCH */
	/* One eviction at a time; held across IO: taken by workers only, with no other lock. */
	struct lock evict_lock;
	struct evict_candidates *candidates; /* evict_lock */
	struct resident resident;
	struct gather gather;
	uint32_t n_buffers; /* of pool */
	struct readahead_streams streams;
	struct completions completions;
	struct space space;
	struct commit commit;
	struct trouble trouble;
	struct strays strays;
	struct listing_room listing_room;
	struct lock trees_lock;
	struct list trees; /* trees_lock */
	struct cache_counters counters;
};

#endif
