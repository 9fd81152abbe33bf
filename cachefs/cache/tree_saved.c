/* Listings in the index: what is remembered of names over a restart. */
#include "tree_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "index/index.h"
#include "whole.h"

/* Listings on their way to the index; one more than that isn't saved. */
#define SAVES_MAX 64
/* What all listings in the index may use, of the store's capacity and at most. */
#define SAVED_SHARE     16
#define SAVED_BYTES_MAX (1ull << 30)
/* LMDB holds in memory what a transaction writes: of one listing, and of several together. */
#define SAVED_ONE_MAX  (96u << 20)
#define SAVED_TOGETHER (32u << 20)

/* Two endpoints may have a bucket of the same name, which only the root's name in the world tells apart;
 * that doesn't have the revision of a repository, which the source has. */
static struct id128 listing_id(const struct dir *dir)
{
	const struct tree *tree = dir->tree;
	char root[INDEX_NAME_MAX];

	if (origin_object_name(tree->origin, "", root, sizeof root))
		*root = '\0';
	return hash128_strings((const char *const[]){origin_source(tree->origin), root,
				       origin_identity(tree->origin), dir->path},
		4);
}

struct save {
	struct list link; /* in tree->to_save, then the worker's */
	struct dir *dir;  /* is there as long as it counts this */
	struct listing *listing;
	struct id128 id;
};

/* The index never shrinks and counts as used: listings must not take the place of what they
 * list. */
static uint64_t saved_max(const struct tree *tree)
{
	uint64_t share = tree->cache->space.capacity_bytes / SAVED_SHARE;

	return share < SAVED_BYTES_MAX ? share : SAVED_BYTES_MAX;
}

static int save_in(struct tree *tree, struct save *save, struct index_txn *txn)
{
	struct iovec parts[LISTING_PARTS];
	uint64_t max_bytes = saved_max(tree), max_one = max_bytes;
	int r;

	if (max_bytes > SAVED_ONE_MAX)
		max_one = SAVED_ONE_MAX;
	if (listing_bytes(save->listing) > max_one) {
		/* The disk has nothing to do with it. A line for the first of a row. */
		if (!save->dir->not_saved)
			log_warn("listing_not_saved",
				"source=%s directory=%s bytes=%zu limit_bytes=%llu",
				origin_source(tree->origin), save->dir->path,
				listing_bytes(save->listing), (unsigned long long)max_one);
		save->dir->not_saved = true;
		return 0;
	}
	save->dir->not_saved = false;
	listing_parts(save->listing, parts);
	r = index_put_listing(txn, save->id, parts, LISTING_PARTS);
	return r ? r : index_trim_listings(txn, save->id, max_bytes);
}

static int save_all(struct tree *tree, struct list *saves)
{
	struct index_txn *txn;
	int r = index_begin(tree->cache->index, &txn);

	if (r)
		return r;
	list_for_each (link, saves) {
		r = save_in(tree, container_of(link, struct save, link), txn);
		if (r) {
			index_abort(txn);
			return r;
		}
	}
	return index_commit(txn);
}

/* What goes into one commit; at least one. */
static void take_saves(struct tree *tree, struct list *saves)
{
	size_t bytes = 0;

	check(lock_held(&tree->lock));
	while (!list_empty(&tree->to_save)) {
		const struct save *save = container_of(tree->to_save.next, struct save, link);

		bytes += listing_bytes(save->listing);
		if (bytes > SAVED_TOGETHER && !list_empty(saves))
			return;
		list_append(saves, list_pop(&tree->to_save));
	}
}

static void saves_ended(struct tree *tree, struct list *saves)
{
	struct list *link;

	check(lock_held(&tree->lock));
	while ((link = list_pop(saves))) {
		struct save *save = container_of(link, struct save, link);

		tree->saves--;
		save->dir->saving--;
		listing_unref(save->listing);
		free(save);
	}
}

/* Those that have gathered, in one commit: a walk makes many, and what waits for a listing from before
 * waits behind it. */
static void save_run(struct job *job)
{
	struct tree *tree = container_of(job, struct tree, save_job);
	struct list saves;
	int r;

	list_init(&saves);
	lock_take(&tree->lock);
	take_saves(tree, &saves);
	lock_drop(&tree->lock);
	r = save_all(tree, &saves);
	if (r)
		trouble_note(tree->cache, "listing_not_saved", origin_source(tree->origin), r);
	lock_take(&tree->lock);
	saves_ended(tree, &saves);
	if (tree->saves)
		work_post(tree->cache->names, &tree->save_job);
	else
		cond_signal(&tree->quiet);
	lock_drop(&tree->lock);
}

void dir_save(struct dir *dir)
{
	struct tree *tree = dir->tree;
	struct save *save = tree->saves < SAVES_MAX ? malloc(sizeof *save) : NULL;

	check(lock_held(&tree->lock));
	if (!save)
		return;
	*save = (struct save){
		.dir = dir, .listing = listing_ref(dir->listing), .id = listing_id(dir)};
	dir->saving++;
	list_append(&tree->to_save, &save->link);
	if (!tree->saves++) {
		tree->save_job.run = save_run;
		work_post(tree->cache->names, &tree->save_job);
	}
}

struct listing *dir_saved(struct dir *dir)
{
	struct listing *listing = NULL;
	size_t size;
	void *bytes;
	int r = index_get_listing(dir->tree->cache->index, listing_id(dir), &bytes, &size);

	if (!r)
		r = listing_from_bytes(&dir->tree->cache->listing_room, bytes, size, &listing);
	if (r && r != -ENOENT)
		log_warn("listing_not_read", "source=%s directory=%s error=%s",
			origin_source(dir->tree->origin), dir->path, strerror(-r));
	return listing;
}
