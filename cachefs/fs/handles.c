#include "handles.h"

#include <errno.h>
#include <stdlib.h>

#include "base/check.h"

int handles_init(struct handles *handles, struct nodes *nodes, uint32_t n_slots)
{
	*handles = (struct handles){.nodes = nodes, .n_slots = n_slots};
	handles->slots = calloc(n_slots, sizeof(struct handle *));
	return handles->slots ? 0 : -ENOMEM;
}

void handles_free(struct handles *handles)
{
	for (uint32_t i = 0; handles->slots && i < handles->n_slots; i++) {
		struct handle *handle = handles->slots[i];

		if (!handle)
			continue;
		if (handle->mode != TABLE_DIRECTORY)
			node_unclaim(handles->nodes, handle->node, handle->mode);
		handle_put(handles, handle);
	}
	free(handles->slots);
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
	handle->object = object;
	handle->listing = listing;
	handle->refs = 1;
	return handle;
}

int handles_add(struct handles *handles, struct handle *handle, uint32_t flags)
{
	struct nodes *nodes = handles->nodes;
	int r;

	lock_take(&nodes->lock);
	r = table_add_handle(nodes->table, handle->node->id, handle->mode, flags, &handle->record);
	if (!r) {
		handle->fh = handle->record->fh;
		handle->refs++;
		handles->slots[handle->fh & TABLE_SLOT_MASK] = handle;
	}
	lock_drop(&nodes->lock);
	return r;
}

static struct handle *find(struct handles *handles, uint64_t fh, uint64_t node)
{
	uint64_t slot = fh & TABLE_SLOT_MASK;
	struct handle *handle = slot < handles->n_slots ? handles->slots[slot] : NULL;

	return handle && handle->fh == fh && handle->node->id == node ? handle : NULL;
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

struct handle *handles_take(struct handles *handles, uint64_t fh, uint64_t node)
{
	struct handle *handle;

	lock_take(&handles->nodes->lock);
	handle = find(handles, fh, node);
	if (handle) {
		handles->slots[fh & TABLE_SLOT_MASK] = NULL;
		table_remove_handle(handles->nodes->table, handle->record);
	}
	lock_drop(&handles->nodes->lock);
	return handle;
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
	drop_contents(handles, handle->node, handle->object, handle->listing);
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
