/*
 * resident: buffers whose bytes are right, kept for the next reader as long as nobody wants the
 * memory. Any thread; nothing here blocks.
 *
 * The spent ones go first: their last byte was read, and who reads on has no use for them, while the
 * others were mostly fetched ahead and are still to be read. Of the spent ones the latest goes first,
 * since its memory is in the processor's cache.
 */
#ifndef CACHE_RESIDENT_H
#define CACHE_RESIDENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/map.h"
#include "base/pool.h"

struct cache;

struct resident_entry {
	struct map_node node;
	struct list lru;
	struct id128 object;
	uint32_t chunk;
	struct pool_buffer *buffer; /* a reference; NULL: the entry is free */
};

struct resident {
	struct lock lock;
	struct map map;                 /* lock */
	struct list lru;                /* lock; what goes first, first */
	struct list free;               /* lock */
	struct resident_entry *entries; /* as many as the pool has buffers */
};

/* 0 or -ENOMEM. */
int resident_init(struct resident *resident, size_t n_buffers);
/* Of a zeroed one too. */
void resident_free(struct resident *resident);
/* A reference of the chunk's buffer, or NULL. spent: it is after this. */
struct pool_buffer *resident_get(
	struct resident *resident, struct id128 object, uint32_t chunk, bool spent);
bool resident_has(struct resident *resident, struct id128 object, uint32_t chunk);
/* Takes over a reference. */
void resident_put(struct resident *resident, struct id128 object, uint32_t chunk,
	struct pool_buffer *buffer, bool spent);
void resident_drop(struct resident *resident, struct id128 object, uint32_t chunk);
void resident_drop_object(struct resident *resident, struct id128 object);
/* Lets one go. False: there is none. */
bool resident_reclaim(struct resident *resident);

/* A buffer, at the expense of residents if need be; NULL: wait for one. As pool_try_get. */
struct pool_buffer *buffer_get(struct cache *cache, enum pool_use use, struct pool_share *share);
/* pool_wait, and residents give way. */
void buffer_wait(struct cache *cache, struct pool_waiter *waiter);

#endif
