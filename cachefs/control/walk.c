#include "walk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/list.h"
#include "base/lock.h"

#define LISTINGS_AT_ONCE 8
#define PENDING_MAX      1000000

struct walker;

struct slot {
	struct tree_list list; /* the tree's from start to done */
	struct walker *walker;
	struct list link; /* in walker->done, or in no list */
	char *path;
	int error;
};

struct walker {
	walk_file *file;
	void *arg;
	struct tree *tree;
	struct lock lock;
	struct cond some_done;
	struct list done; /* lock: slots whose listing has come */
	/* The walking thread's: */
	struct slot slots[LISTINGS_AT_ONCE];
	unsigned busy;
	char **pending; /* directories that are still to be listed, the last one next */
	size_t n_pending, capacity;
};

static void listed(struct tree_list *list, int error)
{
	struct slot *slot = container_of(list, struct slot, list);
	struct walker *walker = slot->walker;

	lock_take(&walker->lock);
	slot->error = error;
	list_append(&walker->done, &slot->link);
	cond_signal(&walker->some_done);
	lock_drop(&walker->lock);
}

static char *join(const char *dir, const char *name)
{
	char *path;

	return asprintf(&path, "%s%s%s", dir, *dir ? "/" : "", name) < 0 ? NULL : path;
}

/* Takes path. */
static int push(struct walker *walker, char *path)
{
	if (!path)
		return -ENOMEM;
	if (walker->n_pending == walker->capacity) {
		size_t capacity = walker->capacity ? walker->capacity * 2 : 64;
		char **pending = NULL;

		if (walker->n_pending < PENDING_MAX)
			pending = reallocarray(walker->pending, capacity, sizeof *pending);
		if (!pending) {
			free(path);
			return walker->n_pending < PENDING_MAX ? -ENOMEM : -EOVERFLOW;
		}
		walker->pending = pending;
		walker->capacity = capacity;
	}
	walker->pending[walker->n_pending++] = path;
	return 0;
}

static void start_listings(struct walker *walker)
{
	for (size_t i = 0; i < LISTINGS_AT_ONCE && walker->n_pending; i++) {
		struct slot *slot = &walker->slots[i];

		if (slot->path)
			continue;
		slot->path = walker->pending[--walker->n_pending];
		slot->list = (struct tree_list){
			.tree = walker->tree, .path = slot->path, .done = listed};
		walker->busy++;
		tree_list_start(&slot->list);
	}
}

static struct slot *wait_listing(struct walker *walker)
{
	struct list *link;

	lock_take(&walker->lock);
	while (list_empty(&walker->done))
		cond_wait(&walker->some_done, &walker->lock);
	link = list_pop(&walker->done);
	lock_drop(&walker->lock);
	walker->busy--;
	return container_of(link, struct slot, link);
}

static int take_entries(struct walker *walker, const char *dir, const struct listing *listing)
{
	int r = 0;

	for (size_t i = 0; i < listing_count(listing) && !r; i++) {
		struct listing_entry entry;
		char *path;

		listing_get(listing, i, &entry);
		path = join(dir, entry.name);
		if (path && entry.attr.kind == ORIGIN_FILE) {
			r = walker->file(walker->arg, path, entry.attr_known ? &entry.attr : NULL);
			free(path);
		} else {
			r = push(walker, path);
		}
	}
	return r;
}

static int take_listing(struct walker *walker, struct slot *slot, int error)
{
	if (!slot->error) {
		if (!error)
			error = take_entries(walker, slot->path, slot->list.listing);
		listing_unref(slot->list.listing);
	} else if (!error) {
		error = slot->error;
	}
	free(steal_pointer(&slot->path));
	return error;
}

int walk(struct tree *tree, const char *path, walk_file *file, void *arg)
{
	struct walker *walker = calloc(1, sizeof *walker);
	int error;

	if (!walker)
		return -ENOMEM;
	walker->tree = tree;
	walker->file = file;
	walker->arg = arg;
	lock_init(&walker->lock);
	cond_init(&walker->some_done);
	list_init(&walker->done);
	for (size_t i = 0; i < LISTINGS_AT_ONCE; i++) {
		walker->slots[i].walker = walker;
		list_init(&walker->slots[i].link);
	}
	error = push(walker, strdup(path));
	/* After an error nothing new is started, but what is under way is waited for. */
	for (;;) {
		if (!error)
			start_listings(walker);
		if (!walker->busy)
			break;
		error = take_listing(walker, wait_listing(walker), error);
	}
	while (walker->n_pending)
		free(walker->pending[--walker->n_pending]);
	free(walker->pending);
	cond_destroy(&walker->some_done);
	lock_destroy(&walker->lock);
	free(walker);
	return error;
}
