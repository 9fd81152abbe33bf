/* Residents: a table of buffers whose bytes are right, in the order in which they are let go. */
#include "resident.h"

#include <errno.h>
#include <stdlib.h>

#include "base/check.h"
#include "whole.h"

struct resident_key {
	struct id128 object;
	uint32_t chunk;
};

static uint64_t key_hash(struct id128 object, uint32_t chunk)
{
	return object.lo ^ (uint64_t)chunk * 0x9e3779b97f4a7c15u;
}

static bool key_equal(const struct map_node *node, const void *key)
{
	const struct resident_entry *entry = container_of(node, struct resident_entry, node);
	const struct resident_key *wanted = key;

	return entry->chunk == wanted->chunk && id128_equal(entry->object, wanted->object);
}

int resident_init(struct resident *resident, size_t n_buffers)
{
	int r = map_init(&resident->map);

	if (r)
		return r;
	resident->entries = calloc(n_buffers, sizeof *resident->entries);
	if (!resident->entries) {
		map_destroy(&resident->map);
		return -ENOMEM;
	}
	lock_init(&resident->lock);
	list_init(&resident->lru);
	list_init(&resident->free);
	for (size_t i = 0; i < n_buffers; i++)
		list_append(&resident->free, &resident->entries[i].lru);
	return 0;
}

void resident_free(struct resident *resident)
{
	if (!resident->entries)
		return;
	while (resident_reclaim(resident))
		;
	lock_destroy(&resident->lock);
	map_destroy(&resident->map);
	free(resident->entries);
	resident->entries = NULL;
}

static struct resident_entry *find(struct resident *resident, struct id128 object, uint32_t chunk)
{
	const struct resident_key key = {.object = object, .chunk = chunk};
	struct map_node *node;

	check(lock_held(&resident->lock));
	node = map_find(&resident->map, key_hash(object, chunk), key_equal, &key);
	return node ? container_of(node, struct resident_entry, node) : NULL;
}

/* Returns the buffer, whose reference is now the caller's. */
static struct pool_buffer *take_out(struct resident *resident, struct resident_entry *entry)
{
	struct pool_buffer *buffer = entry->buffer;

	check(lock_held(&resident->lock));
	map_remove(&resident->map, &entry->node);
	list_remove(&entry->lru);
	list_append(&resident->free, &entry->lru);
	entry->buffer = NULL;
	return buffer;
}

/* In line for being let go: spent ones at the head, the others behind those that were used before. */
static void line_up(struct resident *resident, struct resident_entry *entry, bool spent)
{
	check(lock_held(&resident->lock));
	list_append(spent ? resident->lru.next : &resident->lru, &entry->lru);
}

struct pool_buffer *resident_get(
	struct resident *resident, struct id128 object, uint32_t chunk, bool spent)
{
	struct resident_entry *entry;
	struct pool_buffer *buffer = NULL;

	lock_take(&resident->lock);
	entry = find(resident, object, chunk);
	if (entry) {
		list_remove(&entry->lru);
		line_up(resident, entry, spent);
		buffer = pool_buffer_ref(entry->buffer);
	}
	lock_drop(&resident->lock);
	return buffer;
}

bool resident_has(struct resident *resident, struct id128 object, uint32_t chunk)
{
	bool has;

	lock_take(&resident->lock);
	has = find(resident, object, chunk);
	lock_drop(&resident->lock);
	return has;
}

void resident_put(struct resident *resident, struct id128 object, uint32_t chunk,
	struct pool_buffer *buffer, bool spent)
{
	struct pool_buffer *old = NULL;
	struct resident_entry *entry;
	struct list *link;

	lock_take(&resident->lock);
	entry = find(resident, object, chunk);
	if (entry)
		old = take_out(resident, entry);
	link = list_pop(&resident->free);
	if (link) {
		entry = container_of(link, struct resident_entry, lru);
		entry->object = object;
		entry->chunk = chunk;
		entry->buffer = buffer;
		buffer = NULL;
		map_insert(&resident->map, &entry->node, key_hash(object, chunk));
		line_up(resident, entry, spent);
	}
	lock_drop(&resident->lock);
	pool_buffer_unref(old);
	pool_buffer_unref(buffer);
}

void resident_drop(struct resident *resident, struct id128 object, uint32_t chunk)
{
	struct pool_buffer *buffer = NULL;
	struct resident_entry *entry;

	lock_take(&resident->lock);
	entry = find(resident, object, chunk);
	if (entry)
		buffer = take_out(resident, entry);
	lock_drop(&resident->lock);
	pool_buffer_unref(buffer);
}

/* One buffer of the object, taken out; NULL: there is none. */
static struct pool_buffer *take_one(struct resident *resident, struct id128 object)
{
	struct pool_buffer *buffer = NULL;

	lock_take(&resident->lock);
	list_for_each (link, &resident->lru) {
		struct resident_entry *entry = container_of(link, struct resident_entry, lru);

		if (id128_equal(entry->object, object)) {
			buffer = take_out(resident, entry);
			break;
		}
	}
	lock_drop(&resident->lock);
	return buffer;
}

void resident_drop_object(struct resident *resident, struct id128 object)
{
	struct pool_buffer *buffer;

	while ((buffer = take_one(resident, object)))
		pool_buffer_unref(buffer);
}

bool resident_reclaim(struct resident *resident)
{
	struct pool_buffer *buffer = NULL;

	lock_take(&resident->lock);
	if (!list_empty(&resident->lru))
		buffer = take_out(
			resident, container_of(resident->lru.next, struct resident_entry, lru));
	lock_drop(&resident->lock);
	pool_buffer_unref(buffer);
	return buffer != NULL;
}

struct pool_buffer *buffer_get(struct cache *cache, enum pool_use use, struct pool_share *share)
{
	struct pool_buffer *buffer;

	while (!(buffer = pool_try_get(cache->pool, use, share))) {
		if (!pool_lacks_free(cache->pool, use, share) ||
			!resident_reclaim(&cache->resident))
			return NULL;
	}
	return buffer;
}

void buffer_wait(struct cache *cache, struct pool_waiter *waiter)
{
	pool_wait(cache->pool, waiter);
	/* A buffer may have become a resident between the caller's buffer_get and now, and then
	 * nobody would return one. */
	while (pool_wanted(cache->pool) && resident_reclaim(&cache->resident))
		;
}
