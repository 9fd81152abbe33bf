/* Names that are asked for one by one: in large directories, where an index tells no attributes,
 * and when somebody wants to be sure. */
#include "tree_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"

static bool name_equal(const struct map_node *node, const void *path)
{
	return !strcmp(container_of(node, struct name, node)->path, path);
}

struct name *name_find(struct tree *tree, const char *path)
{
	struct map_node *node;

	check(lock_held(&tree->lock));
	node = map_find(&tree->names, hash64(path, strlen(path)), name_equal, path);
	return node ? container_of(node, struct name, node) : NULL;
}

static void name_free(struct name *name)
{
	struct tree *tree = name->tree;

	map_remove(&tree->names, &name->node);
	list_remove(&name->lru);
	free(name->path);
	free(name);
}

static void trim(struct tree *tree)
{
	list_for_each_safe (link, after, &tree->names_lru) {
		struct name *name = container_of(link, struct name, lru);

		if (tree->names.count < TREE_NAMES_MAX)
			return;
		if (!name->asking)
			name_free(name);
	}
}

static struct name *name_make(struct tree *tree, const char *path)
{
	struct name *name = name_find(tree, path);

	if (name) {
		list_remove(&name->lru);
		list_append(&tree->names_lru, &name->lru);
		return name;
	}
	trim(tree);
	name = calloc(1, sizeof *name);
	if (!name)
		return NULL;
	name->path = strdup(path);
	if (!name->path) {
		free(name);
		return NULL;
	}
	name->tree = tree;
	list_init(&name->lookups);
	list_init(&name->again);
	list_init(&name->to_ask);
	list_init(&name->lru);
	list_append(&tree->names_lru, &name->lru);
	map_insert(&tree->names, &name->node, hash64(path, strlen(path)));
	return name;
}

static void name_begin(struct name *name, struct todo *todo)
{
	name->asking = true;
	name->asked_ns = clock_now_ns();
	tree_asking(name->tree);
	list_append(&todo->names, &name->to_ask);
}

void name_wait(struct tree_lookup *lookup, struct todo *todo)
{
	struct name *name = name_make(lookup->tree, lookup->path);

	if (!name) {
		lookup_answer(lookup, -ENOMEM, NULL, 0, todo);
		return;
	}
	list_append(
		name->asking && lookup->revalidate ? &name->again : &name->lookups, &lookup->link);
	if (!name->asking)
		name_begin(name, todo);
}

/* The question failed: an answer of before will do, if there is one. */
static void lookup_failed(
	struct tree_lookup *lookup, const struct name *name, int error, struct todo *todo)
{
	if (error == -EIO && name->known && !name->missing) {
		lookup->tree->stats.stale++;
		lookup_answer(lookup, 0, &name->attr, TREE_RETRY_NS / NS_PER_MS, todo);
	} else {
		lookup_answer(lookup, error, NULL, 0, todo);
	}
}

static void stat_done(struct origin_stat *stat, int error)
{
	struct name *name = container_of(stat, struct name, request);
	struct tree *tree = name->tree;
	struct list waiting;
	struct list *link;
	struct todo todo;

	todo_init(&todo);
	list_init(&waiting);
	lock_take(&tree->lock);
	name->asking = false;
	if (!error || error == -ENOENT) {
		name->known = true;
		name->missing = error;
		name->attr = stat->attr;
		/* Of two answers the one to the later question is the newer. */
		name->fresh_from_ns = name->asked_ns;
	}
	list_splice(&waiting, &name->lookups);
	while ((link = list_pop(&waiting))) {
		struct tree_lookup *lookup = container_of(link, struct tree_lookup, link);

		if (!error)
			lookup_answer(lookup, 0, &name->attr, tree->config.ttl_ms, &todo);
		else if (error == -ENOENT)
			lookup_answer(lookup, error, NULL, tree->config.negative_ttl_ms, &todo);
		else
			lookup_failed(lookup, name, error, &todo);
	}
	if (!list_empty(&name->again)) {
		list_splice(&name->lookups, &name->again);
		name_begin(name, &todo);
	}
	tree_asked(tree);
	lock_drop(&tree->lock);
	todo_do(&todo);
}

void name_ask(struct name *name)
{
	name->request = (struct origin_stat){
		.origin = name->tree->origin, .path = name->path, .done = stat_done};
	origin_stat_start(&name->request);
}

/* A listing from before, or an older answer, that doesn't have the name: still no word of the origin's
 * that it is missing, but nothing to wait minutes for either. */
static bool is_unheard_of(const struct name *name)
{
	const char *slash = strrchr(name->path, '/');
	const struct dir *dir =
		dir_get(name->tree, name->path, slash ? (size_t)(slash - name->path) : 0);

	struct listing_entry entry;
	size_t index;
	const char *last = slash ? slash + 1 : name->path;

	/* One that the listing has, of which only the origin knows what it is, is not unheard of. */
	return name->known ||
	       (dir && dir->listing &&
		       !listing_find(dir->listing, last, strlen(last), &entry, &index));
}

static void name_release(struct name *name, struct todo *todo)
{
	bool present = name->known && !name->missing, unheard_of = is_unheard_of(name);

	list_for_each_safe (link, after, &name->lookups) {
		struct tree_lookup *lookup = container_of(link, struct tree_lookup, link);

		if (!present && (lookup->revalidate || !unheard_of))
			continue;
		list_remove(link);
		lookup_failed(lookup, name, -EIO, todo);
	}
}

void names_release(struct tree *tree, uint64_t now, struct todo *todo)
{
	list_for_each (link, &tree->names_lru) {
		struct name *name = container_of(link, struct name, lru);

		if (name->asking && now - name->asked_ns >= TREE_PATIENCE_NS)
			name_release(name, todo);
	}
}

void names_free(struct tree *tree)
{
	list_for_each_safe (link, after, &tree->names_lru)
		name_free(container_of(link, struct name, lru));
	map_destroy(&tree->names);
}
