/* space: what the store may use, taken before anything is written. */
#ifndef CACHE_SPACE_H
#define CACHE_SPACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "base/why.h"

struct cache;

struct space {
	struct lock lock;
	uint64_t capacity_bytes, reserve_bytes; /* immutable */
	uint64_t used_bytes;                    /* lock; of raw files, written or about to be */
	uint64_t free_seen_ns;                  /* lock; when the file system was asked last */
	uint64_t fs_free_bytes, index_bytes;    /* lock; as last seen */
	uint64_t hopeless_until_ns; /* lock; nothing could be evicted: don't try again before */
	bool full;                  /* lock */
	uint64_t silent_until_ns;   /* lock; the log was told that it is full */
};

/* capacity: as in struct cache_config. 0 or -errno with why. */
int space_init(struct cache *cache, const char *capacity, struct why *why);
/* Takes room for bytes, evicting what can be evicted; false: there is none. Blocks. */
bool space_take(struct cache *cache, uint64_t bytes);
/* The same without evicting or asking the file system; false: space_take may know better. Doesn't
 * block. */
bool space_take_at_once(struct cache *cache, uint64_t bytes);
/* False for a moment after there was none to be had. */
bool space_has_hope(struct cache *cache);
void space_give(struct cache *cache, uint64_t bytes);
/* Corrects what was taken to what the disk uses. */
void space_correct(struct cache *cache, uint64_t before_bytes, uint64_t now_bytes);
/* How much must go before bytes fit, with a little more; 0: they fit. Asks the file system. */
uint64_t space_missing(struct cache *cache, uint64_t bytes);
/* Something was removed: the file system is to be asked again. */
void space_freed(struct cache *cache);
/* Something that could not be evicted may be now. */
void space_hopeful(struct cache *cache);
/* A write found no space whatever was reserved. */
void space_refused(struct cache *cache);

#endif
