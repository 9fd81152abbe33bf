/*
 * Space: what the store may use. Counted in disk blocks of raw files and index together; taken
 * before anything is written, so that the limit holds at every moment, with a reserve of the file
 * system left to others.
 */
#include "space.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "evict.h"
#include "index/index.h"
#include "store/store.h"
#include "whole.h"

#define RESERVE_BYTES_MAX (1ull << 30)
/* How long what the file system said of its free space is believed. */
#define FREE_SEEN_NS (200ull * NS_PER_MS)
#define HOPELESS_NS  NS_PER_SEC
/* How long a full store isn't news. */
#define SAID_NS (60 * NS_PER_SEC)

int space_init(struct cache *cache, const char *capacity, struct why *why)
{
	struct space *space = &cache->space;
	struct index_totals totals;
	struct store_space fs;
	int r;

	lock_init(&space->lock);
	r = store_space(cache->store, &fs);
	if (!r)
		r = index_totals(cache->index, &totals);
	if (r)
		return why_set(why, r, "store %s: can't tell its space: %s",
			store_dir(cache->store), strerror(-r));
	if (!capacity)
		capacity = "80%";
	if (parse_size_of(capacity, fs.total_bytes, &space->capacity_bytes) ||
		space->capacity_bytes < 16u << 20)
		return why_set(why, -EINVAL,
			"size=%s: want a size of at least 16M, or a share of the file system such "
			"as 80%%",
			capacity);
	if (space->capacity_bytes > fs.total_bytes)
		log_warn("size_beyond_file_system", "store=%s size=%s file_system_bytes=%llu",
			store_dir(cache->store), capacity, (unsigned long long)fs.total_bytes);
	space->reserve_bytes =
		fs.total_bytes / 64 < RESERVE_BYTES_MAX ? fs.total_bytes / 64 : RESERVE_BYTES_MAX;
	space->used_bytes = totals.disk_bytes;
	/* Whoever asks next must not find the figures missing while somebody else is asking for them. */
	space->fs_free_bytes = fs.free_bytes;
	space->index_bytes = totals.map_used_bytes;
	space->free_seen_ns = clock_now_ns();
	return 0;
}

/* space.lock held. */
static bool seen_long_ago(const struct space *space, uint64_t now)
{
	return !space->free_seen_ns || now - space->free_seen_ns > FREE_SEEN_NS;
}

/* Asks the file system again when the last answer is old. The lock isn't held over it. */
static void refresh(struct cache *cache)
{
	struct space *space = &cache->space;
	uint64_t now = clock_now_ns();
	struct index_totals totals;
	struct store_space fs;
	bool old;

	lock_take(&space->lock);
	old = seen_long_ago(space, now);
	if (old)
		space->free_seen_ns = now;
	lock_drop(&space->lock);
	if (!old || store_space(cache->store, &fs) || index_totals(cache->index, &totals))
		return;
	lock_take(&space->lock);
	space->fs_free_bytes = fs.free_bytes;
	space->index_bytes = totals.map_used_bytes;
	lock_drop(&space->lock);
}

/* space.lock held. */
static bool fits(const struct space *space, uint64_t bytes)
{
	return space->used_bytes + space->index_bytes + bytes <= space->capacity_bytes &&
	       space->fs_free_bytes >= space->reserve_bytes + bytes;
}

/* space.lock held. */
static bool take(struct space *space, uint64_t bytes)
{
	if (!fits(space, bytes))
		return false;
	space->used_bytes += bytes;
	space->fs_free_bytes -= bytes;
	space->full = false;
	return true;
}

static bool try_take(struct cache *cache, uint64_t bytes)
{
	struct space *space = &cache->space;
	bool taken;

	refresh(cache);
	lock_take(&space->lock);
	taken = take(space, bytes);
	lock_drop(&space->lock);
	return taken;
}

bool space_take_at_once(struct cache *cache, uint64_t bytes)
{
	struct space *space = &cache->space;
	bool taken;

	lock_take(&space->lock);
	taken = !seen_long_ago(space, clock_now_ns()) && take(space, bytes);
	lock_drop(&space->lock);
	return taken;
}

uint64_t space_missing(struct cache *cache, uint64_t bytes)
{
	struct space *space = &cache->space;
	uint64_t slack =
		space->capacity_bytes / 64 < 64u << 20 ? space->capacity_bytes / 64 : 64u << 20;
	uint64_t used, need;

	refresh(cache);
	lock_take(&space->lock);
	used = space->used_bytes + space->index_bytes + bytes;
	need = used > space->capacity_bytes ? used - space->capacity_bytes : bytes;
	if (fits(space, bytes))
		need = slack = 0;
	lock_drop(&space->lock);
	return need + slack;
}

void space_freed(struct cache *cache)
{
	struct space *space = &cache->space;

	lock_take(&space->lock);
	space->free_seen_ns = 0;
	lock_drop(&space->lock);
}

void space_hopeful(struct cache *cache)
{
	struct space *space = &cache->space;

	lock_take(&space->lock);
	space->hopeless_until_ns = 0;
	lock_drop(&space->lock);
}

bool space_take(struct cache *cache, uint64_t bytes)
{
	struct space *space = &cache->space;
	bool hopeless, to_say;
	uint64_t now;

	while (!try_take(cache, bytes)) {
		lock_take(&space->lock);
		hopeless = clock_now_ns() < space->hopeless_until_ns;
		lock_drop(&space->lock);
		if (!hopeless && evict_for(cache, bytes))
			continue;
		lock_take(&space->lock);
		now = clock_now_ns();
		if (!hopeless)
			space->hopeless_until_ns = now + HOPELESS_NS;
		/* A small store is full and not full many times a second. */
		to_say = !space->full && now >= space->silent_until_ns;
		if (to_say)
			space->silent_until_ns = now + SAID_NS;
		space->full = true;
		lock_drop(&space->lock);
		if (to_say)
			log_warn("store_full",
				"store=%s nothing can be evicted, reads go on uncached",
				store_dir(cache->store));
		return false;
	}
	return true;
}

bool space_has_hope(struct cache *cache)
{
	struct space *space = &cache->space;
	bool hopeful;

	lock_take(&space->lock);
	hopeful = clock_now_ns() >= space->hopeless_until_ns;
	lock_drop(&space->lock);
	return hopeful;
}

void space_give(struct cache *cache, uint64_t bytes)
{
	space_correct(cache, bytes, 0);
}

void space_correct(struct cache *cache, uint64_t before_bytes, uint64_t now_bytes)
{
	struct space *space = &cache->space;

	lock_take(&space->lock);
	space->used_bytes += now_bytes;
	/* A record and the disk may disagree after a crash. */
	space->used_bytes -= before_bytes < space->used_bytes ? before_bytes : space->used_bytes;
	lock_drop(&space->lock);
}

void space_refused(struct cache *cache)
{
	struct space *space = &cache->space;

	lock_take(&space->lock);
	space->free_seen_ns = 0;
	space->full = true;
	lock_drop(&space->lock);
}
