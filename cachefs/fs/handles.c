#include "handles.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/list.h"
#include "nodes_private.h"

static uint64_t fh_hash(uint64_t fh)
{
	return hash64(&fh, sizeof fh);
}

static bool fh_equal(const struct map_node *at, const void *key)
{
	return container_of(at, struct handle, by_fh)->fh == *(const uint64_t *)key;
}

static struct handle *find_fh(struct handles *handles, uint64_t fh)
{
	struct map_node *at = map_find(&handles->by_fh, fh_hash(fh), fh_equal, &fh);

	return at ? container_of(at, struct handle, by_fh) : NULL;
}

int handles_init(struct handles *handles, struct nodes *nodes)
{
	*handles = (struct handles){.nodes = nodes};
	return map_init(&handles->by_fh);
}

void handles_free(struct handles *handles)
{
	map_for_each(at, &handles->by_fh)
	{
		struct handle *handle = container_of(at, struct handle, by_fh);

		map_remove(&handles->by_fh, at);
		if (handle->mode != TABLE_DIRECTORY)
			node_unclaim(handles->nodes, handle->node, handle->mode);
		handle_put(handles, handle);
	}
	map_destroy(&handles->by_fh);
}

static void drop_contents(
	struct handles *handles, struct node *node, struct object *object, struct listing *listing)
{
	if (object)
		object_unref(object);
	if (listing)
		listing_unref(listing);
	node_put(handles->nodes, node);
}

struct handle *handle_new(struct handles *handles, struct node *node, enum table_mode mode,
	struct object *object, struct listing *listing)
{
	struct handle *handle = calloc(1, sizeof *handle);

	if (!handle) {
		drop_contents(handles, node, object, listing);
		return NULL;
	}
	handle->node = node;
	handle->mode = mode;
	atomic_init(&handle->object, object);
	handle->listing = listing;
	handle->refs = 1;
	return handle;
}

/* The handles' reference is one that the caller counted. */
static void insert(struct handles *handles, struct handle *handle, struct table_handle *record)
{
	handle->record = record;
	handle->fh = record->fh;
	map_insert(&handles->by_fh, &handle->by_fh, fh_hash(handle->fh));
}

int handles_add(struct handles *handles, struct handle *handle, uint64_t fh, uint32_t flags)
{
	struct nodes *nodes = handles->nodes;
	struct table_handle *record;
	int r;

	lock_take(&nodes->lock);
	r = find_fh(handles, fh) ? -EIO
				 : table_add_handle(nodes->table, fh, handle->node->id,
					   handle->mode, flags, &record);
	if (!r) {
		handle->refs++;
		insert(handles, handle, record);
	}
	lock_drop(&nodes->lock);
	return r;
}

/* The caller holds the lock. */
static int restore(struct handles *handles, struct table_handle *record)
{
	struct nodes *nodes = handles->nodes;
	struct node *node = nodes_find_id(nodes, record->node);
	struct handle *handle;

	if (!node || find_fh(handles, record->fh))
		return -EUCLEAN;
	handle = calloc(1, sizeof *handle);
	if (!handle)
		return -ENOMEM;
	handle->node = node;
	handle->mode = record->mode;
	handle->refs = 1;
	node->refs++;
	node->n_cached += handle->mode == TABLE_CACHED;
	node->n_passthrough += handle->mode == TABLE_PASSTHROUGH;
	insert(handles, handle, record);
	return 0;
}

int handles_restore(struct handles *handles, struct why *why)
{
	struct nodes *nodes = handles->nodes;
	struct table_handle *record;
	uint32_t at = 0;
	int r = 0;

	lock_take(&nodes->lock);
	while (!r && (record = table_next_handle(nodes->table, &at)))
		r = restore(handles, record);
	lock_drop(&nodes->lock);
	return r ? why_set(why, r, "session table: handles: %s", strerror(-r)) : 0;
}

void handle_give_object(struct handle *handle, struct object *object)
{
	struct object *none = NULL;

	if (!atomic_compare_exchange_strong(&handle->object, &none, object))
		object_unref(object);
}

void handle_give_listing(struct handles *handles, struct handle *handle, struct listing *listing,
	uint64_t fresh_until_ns)
{
	struct listing *spare = listing;

	lock_take(&handles->nodes->lock);
	if (!handle->listing) {
		handle->listing = listing;
		handle->fresh_until_ns = fresh_until_ns;
		spare = NULL;
	}
	lock_drop(&handles->nodes->lock);
	listing_unref(spare);
}

struct listing *handle_listing(
	struct handles *handles, struct handle *handle, uint64_t *ret_fresh_until_ns)
{
	struct listing *listing;

	lock_take(&handles->nodes->lock);
	listing = handle->listing;
	*ret_fresh_until_ns = handle->fresh_until_ns;
	lock_drop(&handles->nodes->lock);
	return listing;
}

static struct handle *find(struct handles *handles, uint64_t fh, uint64_t node)
{
	struct handle *handle = find_fh(handles, fh);

	return handle && handle->node->id == node ? handle : NULL;
}

struct handle *handles_get(struct handles *handles, uint64_t fh, uint64_t node)
{
	struct handle *handle;

	lock_take(&handles->nodes->lock);
	handle = find(handles, fh, node);
	if (handle)
		handle->refs++;
	lock_drop(&handles->nodes->lock);
	return handle;
}

static void take_out(struct handles *handles, struct handle *handle)
{
	map_remove(&handles->by_fh, &handle->by_fh);
	table_remove_handle(handles->nodes->table, handle->record);
}

struct handle *handles_take(struct handles *handles, uint64_t fh, uint64_t node)
{
	struct handle *handle;

	lock_take(&handles->nodes->lock);
	handle = find(handles, fh, node);
	if (handle)
		take_out(handles, handle);
	lock_drop(&handles->nodes->lock);
	return handle;
}

struct handle *handles_take_fh(struct handles *handles, uint64_t fh)
{
	struct handle *handle;

	lock_take(&handles->nodes->lock);
	handle = find_fh(handles, fh);
	if (handle)
		take_out(handles, handle);
	lock_drop(&handles->nodes->lock);
	return handle;
}

struct handle *handles_take_of(struct handles *handles, const struct node *node)
{
	struct handle *found = NULL;

	lock_take(&handles->nodes->lock);
	map_for_each(at, &handles->by_fh)
	{
		struct handle *handle = container_of(at, struct handle, by_fh);

		if (handle->node == node)
			found = handle;
	}
	if (found)
		take_out(handles, found);
	lock_drop(&handles->nodes->lock);
	return found;
}

void handle_put(struct handles *handles, struct handle *handle)
{
	bool last;

	if (!handle)
		return;
	lock_take(&handles->nodes->lock);
	check(handle->refs > 0);
	last = --handle->refs == 0;
	lock_drop(&handles->nodes->lock);
	if (!last)
		return;
	reader_free(atomic_load(&handle->reader));
	drop_contents(handles, handle->node, atomic_load(&handle->object), handle->listing);
	free(handle);
}

uint64_t handles_count(struct handles *handles)
{
	uint64_t count;

	lock_take(&handles->nodes->lock);
	count = table_handles(handles->nodes->table);
	lock_drop(&handles->nodes->lock);
	return count;
}
