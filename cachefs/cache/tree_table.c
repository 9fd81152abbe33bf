/* The directories that are remembered. */
#include "tree_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"

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
	return listing ? listing_bytes(listing) : 0;
}

void dir_install(struct dir *dir, struct listing *listing)
{
	struct tree *tree = dir->tree;

	if (dir->listing)
		tree->stats.hidden_keys -= listing_hidden_keys(dir->listing);
	tree->bytes -= listing_weight(dir->listing);
	listing_unref(dir->listing);
	dir->listing = listing;
	dir->walk.next = 0;
	tree->bytes += listing_weight(listing);
	if (listing)
		tree->stats.hidden_keys += listing_hidden_keys(listing);
}

static void dir_free(struct dir *dir)
{
	struct tree *tree = dir->tree;

	ahead_forgotten(dir);
	map_remove(&tree->dirs, &dir->node);
	list_remove(&dir->lru);
	dir_install(dir, NULL);
	free(dir->path);
	free(dir);
}

void dirs_trim(struct tree *tree, size_t max_bytes, const struct dir *keep)
{
	check(lock_held(&tree->lock));
	list_for_each_safe (link, after, &tree->dirs_lru) {
		struct dir *dir = container_of(link, struct dir, lru);

		if (tree->bytes <= max_bytes && tree->dirs.count <= DIRS_MAX)
			return;
		if (dir != keep && !dir->asking && !dir->saving && !dir->pinned)
			dir_free(dir);
	}
}

void dirs_forget(struct tree *tree)
{
	check(lock_held(&tree->lock));
	/* Also of what is being asked for anew, which may need the room of the answer before. */
	list_for_each (link, &tree->dirs_lru) {
		struct dir *dir = container_of(link, struct dir, lru);

		if (!dir->listing || dir->saving)
			continue;
		dir_install(dir, NULL);
		dir->index_read = false;
		/* The index may tell of all its names. */
		dir->large &= dir->asking;
	}
}

struct dir *dir_find(struct tree *tree, const char *path, size_t path_size)
{
	const struct dir_key key = {.path = path, .size = path_size};
	struct map_node *node;

	check(lock_held(&tree->lock));
	node = map_find(&tree->dirs, hash64(path, path_size), dir_equal, &key);
	return node ? container_of(node, struct dir, node) : NULL;
}

const char *dir_name(const struct dir *dir)
{
	const char *slash = strrchr(dir->path, '/');

	return slash ? slash + 1 : dir->path;
}

struct dir *dir_get(struct tree *tree, const char *path, size_t path_size)
{
	struct dir *dir = dir_find(tree, path, path_size);

	if (dir) {
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
	map_insert(&tree->dirs, &dir->node, hash64(path, path_size));
	dirs_trim(tree, TREE_BYTES_MAX, dir);
	return dir;
}

void dirs_free(struct tree *tree)
{
	list_for_each_safe (link, after, &tree->dirs_lru)
		dir_free(container_of(link, struct dir, lru));
	map_destroy(&tree->dirs);
}
