/* The tree: what a lookup is answered from, in which order, and how long that may be believed. */
#include "tree_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/work.h"
#include "whole.h"

#define TICK_NS (250 * NS_PER_MS)

void todo_init(struct todo *todo)
{
	list_init(&todo->lookups);
	list_init(&todo->lists);
	list_init(&todo->more);
	list_init(&todo->dirs);
	list_init(&todo->names);
}

static void wait_ended(struct cache_account *account, uint64_t since_ns)
{
	uint64_t now_ns;

	if (!since_ns)
		return;
	now_ns = clock_now_ns();
	stalls_end(&account->stalled_names, now_ns);
	waits_add(&account->names, now_ns - since_ns);
}

void todo_do(struct todo *todo)
{
	struct list *link;

	while ((link = list_pop(&todo->dirs)))
		dir_ask(container_of(link, struct dir, to_ask));
	while ((link = list_pop(&todo->names)))
		name_ask(container_of(link, struct name, to_ask));
	while ((link = list_pop(&todo->lookups))) {
		struct tree_lookup *lookup = container_of(link, struct tree_lookup, link);

		wait_ended(lookup->account, lookup->waits_since_ns);
		lookup->done(lookup, lookup->result);
	}
	while ((link = list_pop(&todo->lists))) {
		struct tree_list *list = container_of(link, struct tree_list, link);

		wait_ended(list->account, list->waits_since_ns);
		list->done(list, list->result);
	}
	while ((link = list_pop(&todo->more))) {
		struct tree_more *more = container_of(link, struct tree_more, link);

		wait_ended(more->account, more->waits_since_ns);
		more->done(more);
	}
}

bool tree_fresh(uint64_t from_ns, uint64_t ttl_ms, uint64_t *ret_left_ms)
{
	uint64_t age_ms;

	if (!from_ns)
		return false;
	if (ttl_ms == UINT64_MAX) {
		*ret_left_ms = UINT64_MAX;
		return true;
	}
	age_ms = (clock_now_ns() - from_ns) / NS_PER_MS;
	if (age_ms >= ttl_ms)
		return false;
	*ret_left_ms = ttl_ms - age_ms;
	return true;
}

bool tree_out_of_reach(struct tree *tree)
{
	struct origin_stats stats;

	origin_stats(tree->origin, &stats);
	return !stats.reachable;
}

void lookup_answer(struct tree_lookup *lookup, int error, const struct origin_attr *attr,
	uint64_t fresh_ms, struct todo *todo)
{
	check(lock_held(&lookup->tree->lock));
	lookup->result = error;
	lookup->fresh_ms = fresh_ms;
	if (!error)
		lookup->attr = *attr;
	list_append(&todo->lookups, &lookup->link);
}

void list_answer(struct tree_list *list, int error, struct listing *listing, uint64_t fresh_ms,
	struct todo *todo)
{
	check(lock_held(&list->tree->lock));
	list->result = error;
	list->fresh_ms = fresh_ms;
	list->listing = error ? NULL : listing_ref(listing);
	list_append(&todo->lists, &list->link);
}

/* "a/b" -> the size of "a"; *ret_name: "b". */
static size_t split(const char *path, const char **ret_name)
{
	const char *slash = strrchr(path, '/');

	*ret_name = slash ? slash + 1 : path;
	return slash ? (size_t)(slash - path) : 0;
}

enum knowledge { KNOWN, KNOWN_MISSING, UNKNOWN };

/* What the name's own question and its directory's listing say, the later of them; only what is
 * fresh, unless the directory was just told of. */
static enum knowledge consult(struct tree *tree, struct dir *dir, const char *path, bool told,
	struct origin_attr *ret, uint64_t *ret_fresh_ms)
{
	const struct name *name = name_find(tree, path);
	bool lists_all = origin_lists_all(tree->origin);
	struct listing_entry entry;
	const char *component;
	size_t index;

	*ret_fresh_ms = 0;
	if (name && name->known && name->fresh_from_ns >= dir->fresh_from_ns &&
		name->fresh_from_ns >= dir->missing_from_ns) {
		/* Expired, it still says that the older listing is wrong about the name. */
		if (!tree_fresh(name->fresh_from_ns,
			    name->missing ? tree->config.negative_ttl_ms : tree->config.ttl_ms,
			    ret_fresh_ms))
			return UNKNOWN;
		if (name->missing)
			return KNOWN_MISSING;
		*ret = name->attr;
		return KNOWN;
	}
	if (lists_all &&
		tree_fresh(dir->missing_from_ns, tree->config.negative_ttl_ms, ret_fresh_ms))
		return KNOWN_MISSING;
	split(path, &component);
	if (!dir->listing && tree_fresh(dir->asked_ns, tree->config.ttl_ms, ret_fresh_ms) &&
		dir_growing_has(dir, component, &entry)) {
		*ret = entry.attr;
		return KNOWN;
	}
	if (!dir->listing ||
		(!tree_fresh(dir->fresh_from_ns, tree->config.ttl_ms, ret_fresh_ms) && !told))
		return UNKNOWN;
	if (listing_find(dir->listing, component, strlen(component), &entry, &index)) {
		if (!entry.attr_known && entry.attr.kind == ORIGIN_FILE)
			return UNKNOWN;
		*ret = entry.attr;
		return KNOWN;
	}
	if (lists_all && (told || tree_fresh(dir->fresh_from_ns, tree->config.negative_ttl_ms,
					  ret_fresh_ms)))
		return KNOWN_MISSING;
	return UNKNOWN;
}

/* An answer from before, for when the origin can't be asked. Never that something is missing. */
static bool remembered(
	struct tree *tree, struct dir *dir, const char *path, struct origin_attr *ret)
{
	const struct name *name = name_find(tree, path);
	struct listing_entry entry;
	const char *component;
	size_t index;

	if (name && name->known && !name->missing) {
		*ret = name->attr;
		return true;
	}
	split(path, &component);
	if (!dir->listing ||
		!listing_find(dir->listing, component, strlen(component), &entry, &index) ||
		(!entry.attr_known && entry.attr.kind == ORIGIN_FILE))
		return false;
	*ret = entry.attr;
	return true;
}

void lookup_step(struct tree_lookup *lookup, bool told, struct todo *todo)
{
	struct tree *tree = lookup->tree;
	struct origin_attr attr;
	const char *component;
	uint64_t fresh_ms;
	struct dir *dir = dir_get(tree, lookup->path, split(lookup->path, &component));

	if (!dir) {
		lookup_answer(lookup, -ENOMEM, NULL, 0, todo);
		return;
	}
	if (lookup->revalidate) {
		name_wait(lookup, todo);
		return;
	}
	switch (consult(tree, dir, lookup->path, told, &attr, &fresh_ms)) {
	case KNOWN:
		lookup_answer(lookup, 0, &attr, fresh_ms, todo);
		return;
	case KNOWN_MISSING:
		lookup_answer(lookup, -ENOENT, NULL, fresh_ms, todo);
		return;
	case UNKNOWN:
		break;
	}
	if (tree_out_of_reach(tree) && remembered(tree, dir, lookup->path, &attr)) {
		tree->stats.stale++;
		lookup_answer(lookup, 0, &attr, TREE_RETRY_NS / NS_PER_MS, todo);
		dir_refresh(dir, todo);
		return;
	}
	/* In a listing that is fresh but doesn't tell, in a large directory, and in one whose listing
	 * finds no room, the name is asked for by itself. */
	if (dir->large || dir_refused(dir) || told ||
		(dir->listing && tree_fresh(dir->fresh_from_ns, tree->config.ttl_ms, &fresh_ms)))
		name_wait(lookup, todo);
	else
		dir_wait_lookup(dir, lookup, todo);
}

/* Somebody begins to wait for the origin: the time, for wait_ended. */
static uint64_t wait_begun(struct cache_account *account)
{
	uint64_t now_ns;

	if (!account)
		return 0;
	now_ns = clock_now_ns();
	stalls_begin(&account->stalled_names, now_ns);
	return now_ns;
}

static uint64_t miss(struct tree *tree, struct cache_account *account)
{
	check(lock_held(&tree->lock));
	tree->stats.misses++;
	return wait_begun(account);
}

void tree_lookup_start(struct tree_lookup *lookup)
{
	static const struct origin_attr root = {.kind = ORIGIN_DIR};
	struct tree *tree = lookup->tree;
	struct todo todo;

	todo_init(&todo);
	list_init(&lookup->link);
	lookup->waits_since_ns = 0;
	lock_take(&tree->lock);
	if (!*lookup->path)
		lookup_answer(lookup, 0, &root, UINT64_MAX, &todo);
	else
		lookup_step(lookup, false, &todo);
	if (!list_empty(&todo.lookups))
		tree->stats.hits++;
	else
		lookup->waits_since_ns = miss(tree, lookup->account);
	lock_drop(&tree->lock);
	todo_do(&todo);
}

void tree_list_start(struct tree_list *list)
{
	struct tree *tree = list->tree;
	struct todo todo;
	uint64_t fresh_ms;
	struct dir *dir;

	todo_init(&todo);
	list_init(&list->link);
	list->waits_since_ns = 0;
	lock_take(&tree->lock);
	dir = dir_get(tree, list->path, strlen(list->path));
	if (!dir) {
		list_answer(list, -ENOMEM, NULL, 0, &todo);
	} else if (dir->listing && tree_fresh(dir->fresh_from_ns, tree->config.ttl_ms, &fresh_ms)) {
		list_answer(list, 0, dir->listing, fresh_ms, &todo);
	} else if (tree_fresh(dir->missing_from_ns, tree->config.negative_ttl_ms, &fresh_ms)) {
		list_answer(list, -ENOENT, NULL, fresh_ms, &todo);
	} else if (dir->listing && tree_out_of_reach(tree)) {
		tree->stats.stale++;
		list_answer(list, 0, dir->listing, TREE_RETRY_NS / NS_PER_MS, &todo);
		dir_refresh(dir, &todo);
	} else if (dir->listing && list->goes_on) {
		list_answer(list, 0, dir->listing, 0, &todo);
	} else {
		dir_wait_list(dir, list, &todo);
	}
	if (!list_empty(&todo.lists))
		tree->stats.hits++;
	else
		list->waits_since_ns = miss(tree, list->account);
	if (dir && list->streams)
		ahead_step(dir, &todo);
	lock_drop(&tree->lock);
	todo_do(&todo);
}

void tree_more_start(struct tree_more *more)
{
	struct tree *tree = more->tree;
	struct todo todo;

	todo_init(&todo);
	list_init(&more->link);
	more->waits_since_ns = 0;
	lock_take(&tree->lock);
	list_append(&tree->more, &more->link);
	dir_give_more(tree, more->listing, &todo);
	if (list_empty(&todo.more))
		more->waits_since_ns = wait_begun(more->account);
	lock_drop(&tree->lock);
	todo_do(&todo);
}

int tree_peek(struct tree *tree, const char *path, struct origin_attr *ret)
{
	enum knowledge knowledge = UNKNOWN;
	const char *component;
	uint64_t fresh_ms;
	struct dir *dir;

	lock_take(&tree->lock);
	dir = dir_get(tree, path, split(path, &component));
	if (dir)
		knowledge = consult(tree, dir, path, false, ret, &fresh_ms);
	lock_drop(&tree->lock);
	return knowledge == KNOWN ? 0 : knowledge == KNOWN_MISSING ? -ENOENT : -EAGAIN;
}

void tree_forget(struct tree *tree, const char *path)
{
	const char *component;
	struct name *name;
	struct dir *dir;

	lock_take(&tree->lock);
	dir = dir_get(tree, path, split(path, &component));
	/* An answer to what was asked before isn't news either. */
	if (dir) {
		dir->fresh_from_ns = dir->asked_ns = 0;
		dir->doubted = true;
	}
	name = name_find(tree, path);
	if (name)
		name->fresh_from_ns = name->asked_ns = 0;
	lock_drop(&tree->lock);
}

/* --- questions that take too long --- */

void tree_asking(struct tree *tree)
{
	check(lock_held(&tree->lock));
	if (tree->asking++ == 0)
		cond_signal(&tree->tick);
}

void tree_asked(struct tree *tree)
{
	check(lock_held(&tree->lock));
	if (--tree->asking == 0)
		cond_signal(&tree->quiet);
}

/* Whoever waits for an origin that turned out to be out of reach gets the answer of before. */
static void *tick_loop(void *arg)
{
	struct tree *tree = arg;

	lock_take(&tree->lock);
	while (!tree->ending) {
		struct todo todo;

		if (!tree->asking) {
			cond_wait(&tree->tick, &tree->lock);
			continue;
		}
		cond_wait_until(&tree->tick, &tree->lock, clock_now_ns() + TICK_NS);
		if (!tree->asking || !tree_out_of_reach(tree))
			continue;
		todo_init(&todo);
		dirs_release(tree, clock_now_ns(), &todo);
		names_release(tree, clock_now_ns(), &todo);
		lock_drop(&tree->lock);
		todo_do(&todo);
		lock_take(&tree->lock);
	}
	lock_drop(&tree->lock);
	return NULL;
}

int tree_new(struct cache *cache, struct origin *origin, const struct tree_config *config,
	struct tree **ret)
{
	struct tree *tree = calloc(1, sizeof *tree);
	int r;

	if (!tree)
		return -ENOMEM;
	tree->cache = cache;
	tree->origin = origin_ref(origin);
	tree->config = *config;
	lock_init(&tree->lock);
	cond_init(&tree->quiet);
	cond_init(&tree->tick);
	list_init(&tree->dirs_lru);
	list_init(&tree->names_lru);
	list_init(&tree->more);
	list_init(&tree->to_save);
	r = map_init(&tree->dirs);
	if (!r)
		r = map_init(&tree->names);
	if (!r)
		r = thread_start(&tree->ticker, "tree", tick_loop, tree);
	if (r) {
		map_destroy(&tree->dirs);
		map_destroy(&tree->names);
		origin_unref(origin);
		free(tree);
		return r;
	}
	lock_take(&cache->trees_lock);
	list_append(&cache->trees, &tree->link);
	lock_drop(&cache->trees_lock);
	*ret = tree;
	return 0;
}

void tree_free(struct tree *tree)
{
	if (!tree)
		return;
	lock_take(&tree->cache->trees_lock);
	list_remove(&tree->link);
	lock_drop(&tree->cache->trees_lock);
	lock_take(&tree->lock);
	while (tree->asking || tree->saves)
		cond_wait(&tree->quiet, &tree->lock);
	tree->ending = true;
	cond_signal(&tree->tick);
	lock_drop(&tree->lock);
	pthread_join(tree->ticker, NULL);
	lock_take(&tree->lock);
	dirs_free(tree);
	names_free(tree);
	lock_drop(&tree->lock);
	origin_unref(tree->origin);
	cond_destroy(&tree->quiet);
	cond_destroy(&tree->tick);
	lock_destroy(&tree->lock);
	free(tree);
}

void trees_make_room(struct listing_room *room)
{
	struct cache *cache = container_of(room, struct cache, listing_room);

	lock_take(&cache->trees_lock);
	list_for_each (link, &cache->trees) {
		struct tree *tree = container_of(link, struct tree, link);

		lock_take(&tree->lock);
		dirs_forget(tree);
		lock_drop(&tree->lock);
	}
	lock_drop(&cache->trees_lock);
}

void tree_stats(struct tree *tree, struct tree_stats *ret)
{
	lock_take(&tree->lock);
	*ret = tree->stats;
	ret->directories = tree->dirs.count;
	ret->bytes = tree->bytes;
	lock_drop(&tree->lock);
}
