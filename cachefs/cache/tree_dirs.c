/*
 * Directories and their listings.
 *
 *   1. a question begins      dir_refresh; the index is read first, once
 *   2. the first page comes   it is all: 4. There is more: the directory is large, lookups go to
 *                             their names; if nobody waits for the whole listing the question
 *                             ends here
 *   3. further pages
 *   4. the listing is built, installed, given to whoever waits, and saved in the index
 */
#include "tree_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "whole.h"

#define DIRS_MAX 65536

struct dir_key {
	const char *path;
	size_t size;
};

static bool dir_equal(const struct map_node *node, const void *arg)
{
	const struct dir *dir = container_of(node, struct dir, node);
	const struct dir_key *key = arg;

	return !strncmp(dir->path, key->path, key->size) && !dir->path[key->size];
}

static size_t listing_weight(const struct listing *listing)
{
	size_t size = 0;

	if (listing)
		listing_bytes(listing, &size);
	return size;
}

static void install(struct dir *dir, struct listing *listing)
{
	struct tree *tree = dir->tree;

	if (dir->listing)
		tree->stats.hidden_keys -= listing_hidden_keys(dir->listing);
	tree->bytes -= listing_weight(dir->listing);
	listing_unref(dir->listing);
	dir->listing = listing;
	tree->bytes += listing_weight(listing);
	if (listing)
		tree->stats.hidden_keys += listing_hidden_keys(listing);
}

static void dir_free(struct dir *dir)
{
	struct tree *tree = dir->tree;

	map_remove(&tree->dirs, &dir->node);
	list_remove(&dir->lru);
	install(dir, NULL);
	free(dir->path);
	free(dir);
}

/* Forgets the directories used longest ago; the index still has their listings. */
static void trim(struct tree *tree, const struct dir *keep)
{
	list_for_each_safe (link, after, &tree->dirs_lru) {
		struct dir *dir = container_of(link, struct dir, lru);

		if (tree->bytes <= TREE_BYTES_MAX && tree->dirs.count <= DIRS_MAX)
			return;
		if (dir != keep && !dir->asking)
			dir_free(dir);
	}
}

struct dir *dir_get(struct tree *tree, const char *path, size_t path_size)
{
	const struct dir_key key = {.path = path, .size = path_size};
	uint64_t hash = hash64(path, path_size);
	struct map_node *node;
	struct dir *dir;

	check(lock_held(&tree->lock));
	node = map_find(&tree->dirs, hash, dir_equal, &key);
	if (node) {
		dir = container_of(node, struct dir, node);
		list_remove(&dir->lru);
		list_append(&tree->dirs_lru, &dir->lru);
		return dir;
	}
	dir = calloc(1, sizeof *dir);
	if (!dir)
		return NULL;
	dir->path = strndup(path, path_size);
	if (!dir->path) {
		free(dir);
		return NULL;
	}
	dir->tree = tree;
	list_init(&dir->lru);
	list_init(&dir->lists);
	list_init(&dir->lookups);
	list_init(&dir->to_ask);
	list_append(&tree->dirs_lru, &dir->lru);
	map_insert(&tree->dirs, &dir->node, hash);
	trim(tree, dir);
	return dir;
}

/* --- questions --- */

static void dir_begin(struct dir *dir, struct todo *todo)
{
	dir->asking = true;
	dir->asked_ns = clock_now_ns();
	tree_asking(dir->tree);
	list_append(&todo->dirs, &dir->to_ask);
}

void dir_refresh(struct dir *dir, struct todo *todo)
{
	check(lock_held(&dir->tree->lock));
	if (dir->asking || (dir->failed_ns && clock_now_ns() - dir->failed_ns < TREE_RETRY_NS))
		return;
	dir_begin(dir, todo);
}

void dir_wait_lookup(struct dir *dir, struct tree_lookup *lookup, struct todo *todo)
{
	list_append(&dir->lookups, &lookup->link);
	if (!dir->asking)
		dir_begin(dir, todo);
}

void dir_wait_list(struct dir *dir, struct tree_list *list, struct todo *todo)
{
	dir->whole = true;
	list_append(&dir->lists, &list->link);
	if (!dir->asking)
		dir_begin(dir, todo);
}

static void answer_lists(struct dir *dir, int error, uint64_t fresh_ms, struct todo *todo)
{
	struct list *link;

	while ((link = list_pop(&dir->lists)))
		list_answer(container_of(link, struct tree_list, link), error, dir->listing,
			fresh_ms, todo);
}

/* told: by a whole listing, just now. */
static void step_lookups(struct dir *dir, bool told, struct todo *todo)
{
	struct list waiting;
	struct list *link;

	list_init(&waiting);
	list_splice(&waiting, &dir->lookups);
	while ((link = list_pop(&waiting)))
		lookup_step(container_of(link, struct tree_lookup, link), told, todo);
}

/* The lookups that wait here get what the older listing says; what it doesn't have is the error,
 * never "missing". */
static void lookups_failed(struct dir *dir, int error, struct todo *todo)
{
	struct list *link;

	while ((link = list_pop(&dir->lookups))) {
		struct tree_lookup *lookup = container_of(link, struct tree_lookup, link);
		const char *slash = strrchr(lookup->path, '/');
		const char *component = slash ? slash + 1 : lookup->path;
		struct listing_entry entry;

		if (error == -EIO && dir->listing &&
			listing_find(dir->listing, component, strlen(component), &entry) &&
			(entry.attr_known || entry.attr.kind == ORIGIN_DIR)) {
			dir->tree->stats.stale++;
			lookup_answer(lookup, 0, &entry.attr, TREE_RETRY_NS / NS_PER_MS, todo);
		} else {
			lookup_answer(lookup, error, NULL, 0, todo);
		}
	}
}

static void lists_failed(struct dir *dir, int error, struct todo *todo)
{
	if (error == -EIO && dir->listing) {
		dir->tree->stats.stale += !list_empty(&dir->lists);
		answer_lists(dir, 0, TREE_RETRY_NS / NS_PER_MS, todo);
	} else {
		answer_lists(dir, error, 0, todo);
	}
}

static void question_ended(struct dir *dir)
{
	dir->asking = false;
	dir->whole = false;
	listing_builder_free(&dir->builder);
	free(dir->request.token);
	free(dir->request.next_token);
	dir->request.token = dir->request.next_token = NULL;
	tree_asked(dir->tree);
	trim(dir->tree, dir);
}

static void question_failed(struct dir *dir, int error, struct todo *todo)
{
	uint64_t negative_ms = dir->tree->config.negative_ttl_ms;
	struct list *link;

	if (!origin_lists_all(dir->tree->origin) && (error == -ENOENT || error == -EACCES)) {
		dir->large = true;
		step_lookups(dir, false, todo);
	}
	if (error == -ENOENT) {
		install(dir, NULL);
		dir->missing_from_ns = dir->asked_ns;
		dir->fresh_from_ns = dir->failed_ns = 0;
		while ((link = list_pop(&dir->lookups)))
			lookup_answer(container_of(link, struct tree_lookup, link), error, NULL,
				negative_ms, todo);
		answer_lists(dir, error, negative_ms, todo);
		return;
	}
	dir->failed_ns = clock_now_ns();
	lookups_failed(dir, error, todo);
	lists_failed(dir, error, todo);
}

static void question_answered(struct dir *dir, struct listing *listing, struct todo *todo)
{
	install(dir, listing);
	/* As of when it was asked for: what happened to names since, it needn't have. */
	dir->fresh_from_ns = dir->asked_ns;
	dir->missing_from_ns = dir->failed_ns = 0;
	step_lookups(dir, true, todo);
	answer_lists(dir, 0, dir->tree->config.ttl_ms, todo);
	dir_save(dir);
}

static void page_entry(struct origin_list *list, const struct origin_entry *entry)
{
	listing_builder_add(&container_of(list, struct dir, request)->builder, entry);
}

static void page_done(struct origin_list *list, int error)
{
	struct dir *dir = container_of(list, struct dir, request);
	struct tree *tree = dir->tree;
	struct listing *listing = NULL;
	bool more = !error && list->next_token;
	bool next = false;
	struct todo todo;

	if (!error)
		dir->builder.hidden_keys += list->hidden_keys;
	if (!error && !more)
		error = listing_build(&dir->builder, &listing);
	/* The bucket itself is gone, which is nothing that a name can be. */
	if (error == -ENXIO)
		error = -EIO;
	if (error == -EFBIG) {
		log_error("listing_too_large", "source=%s directory=%s limit_bytes=%u",
			origin_source(tree->origin), dir->path, LISTING_BYTES_MAX);
		error = -EIO;
	}
	todo_init(&todo);
	lock_take(&tree->lock);
	if (more) {
		dir->large = true;
		step_lookups(dir, false, &todo);
		next = dir->whole;
	} else if (error) {
		question_failed(dir, error, &todo);
	} else {
		dir->large = list->token != NULL;
		question_answered(dir, listing, &todo);
	}
	if (next) {
		free(list->token);
		list->token = list->next_token;
		list->next_token = NULL;
	} else {
		question_ended(dir);
	}
	lock_drop(&tree->lock);
	if (next)
		origin_list_start(list);
	todo_do(&todo);
}

static void ask_origin(struct dir *dir)
{
	listing_builder_init(&dir->builder);
	dir->request = (struct origin_list){.origin = dir->tree->origin,
		.path = dir->path,
		.entry = page_entry,
		.done = page_done};
	origin_list_start(&dir->request);
}

/* The monotonic time that corresponds to when the listing was made; 0 if that is no time of the
 * past. */
static uint64_t listing_from_ns(const struct listing *listing)
{
	int64_t age_ns = clock_wall_ns() - listing_wall_ns(listing);
	uint64_t now = clock_now_ns();

	if (age_ns < 0)
		return 0;
	return (uint64_t)age_ns < now ? now - (uint64_t)age_ns : 1;
}

static void index_run(struct job *job)
{
	struct dir *dir = container_of(job, struct dir, job);
	struct tree *tree = dir->tree;
	struct listing *listing = dir_saved(dir);
	bool fresh = false;
	uint64_t left_ms = 0;
	struct todo todo;

	todo_init(&todo);
	lock_take(&tree->lock);
	if (listing) {
		install(dir, listing);
		dir->fresh_from_ns = listing_from_ns(listing);
		fresh = tree_fresh(dir->fresh_from_ns, tree->config.ttl_ms, &left_ms);
	}
	if (fresh) {
		answer_lists(dir, 0, left_ms, &todo);
		step_lookups(dir, false, &todo);
		/* It may have expired in between: who waits here again is to be answered. */
		fresh = list_empty(&dir->lookups);
	}
	if (fresh)
		question_ended(dir);
	lock_drop(&tree->lock);
	if (!fresh)
		ask_origin(dir);
	todo_do(&todo);
}

void dir_ask(struct dir *dir)
{
	struct tree *tree = dir->tree;
	bool read;

	lock_take(&tree->lock);
	read = dir->index_read;
	dir->index_read = true;
	lock_drop(&tree->lock);
	if (read) {
		ask_origin(dir);
	} else {
		dir->job.run = index_run;
		work_post(tree->cache->names, &dir->job);
	}
}

void dirs_release(struct tree *tree, uint64_t now, struct todo *todo)
{
	list_for_each (link, &tree->dirs_lru) {
		struct dir *dir = container_of(link, struct dir, lru);

		if (!dir->asking || !dir->listing || now - dir->asked_ns < TREE_PATIENCE_NS)
			continue;
		lookups_failed(dir, -EIO, todo);
		lists_failed(dir, -EIO, todo);
	}
}

void dirs_free(struct tree *tree)
{
	list_for_each_safe (link, after, &tree->dirs_lru)
		dir_free(container_of(link, struct dir, lru));
	map_destroy(&tree->dirs);
}
