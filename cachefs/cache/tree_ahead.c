/*
 * Listing ahead of who walks a tree: find, ls -R, a loader that looks into each class's directory.
 *
 *   1. somebody lists a directory, then two of its children one after the other: a walk
 *   2. the children that follow are asked for, ever more of them while the walk goes on, and never
 *      more than were walked; behind everything that somebody waits for
 *   3. each child that the walk comes to lets the next ones be asked for; when it stops, so does this
 *
 * In a child of a directory that is walked itself, one is enough for a beginning.
 */
#include "tree_private.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"

/* Of a tree: questions under way. */
#define AHEAD_AT_ONCE 16
/* Of a directory: children asked for that the walk didn't come to yet. */
#define AHEAD_UNUSED_MAX 32
/* What one step looks at. */
#define AHEAD_SCAN 1024
/* Who comes later than this after the child before isn't walking. */
#define WALK_PAUSE_NS (10 * NS_PER_SEC)
#define INHERITED     4

static struct dir *parent_of(const struct dir *dir)
{
	const char *slash = strrchr(dir->path, '/');

	return *dir->path ? dir_find(dir->tree, dir->path, slash ? (size_t)(slash - dir->path) : 0)
			  : NULL;
}

static bool is_walked(const struct dir *dir, uint64_t now)
{
	return dir->walk.children > 1 && now - dir->walk.last_ns < WALK_PAUSE_NS;
}

static bool is_worth_asking(struct dir *dir)
{
	const struct tree *tree = dir->tree;
	uint64_t left_ms;

	return !dir->asking && !dir->failed_ns &&
	       !tree_fresh(dir->missing_from_ns, tree->config.negative_ttl_ms, &left_ms) &&
	       !(dir->listing && tree_fresh(dir->fresh_from_ns, tree->config.ttl_ms, &left_ms));
}

static void ask_child(struct dir *parent, const struct listing_entry *entry, struct todo *todo)
{
	struct tree *tree = parent->tree;
	char path[ORIGIN_PATH_MAX];
	struct dir *child;
	int n = snprintf(
		path, sizeof path, "%s%s%s", parent->path, *parent->path ? "/" : "", entry->name);

	if (n < 0 || (size_t)n >= sizeof path)
		return;
	child = dir_get(tree, path, (size_t)n);
	if (!child || !is_worth_asking(child))
		return;
	parent->walk.unused += !child->unused;
	child->unused = child->ahead = true;
	tree->n_ahead++;
	dir_begin(child, todo);
}

/* Asks for children from this entry on. */
static void ask_next(struct dir *parent, size_t from, unsigned most, struct todo *todo)
{
	/* dir_get may forget the parent's. */
	struct listing *listing = listing_ref(parent->listing);
	size_t end = listing_count(listing);

	if (parent->walk.next > from && parent->walk.next - from < AHEAD_SCAN)
		from = parent->walk.next;
	if (from > end)
		from = end;
	if (end - from > AHEAD_SCAN)
		end = from + AHEAD_SCAN;
	parent->pinned = true;
	while (from < end && parent->walk.unused < most && parent->tree->n_ahead < AHEAD_AT_ONCE) {
		struct listing_entry entry;

		listing_get(listing, from++, &entry);
		if (entry.attr.kind == ORIGIN_DIR)
			ask_child(parent, &entry, todo);
	}
	parent->walk.next = from;
	parent->pinned = false;
	listing_unref(listing);
}

void ahead_step(struct dir *child, struct todo *todo)
{
	struct dir *parent = parent_of(child), *above = parent ? parent_of(parent) : NULL;
	uint64_t now = clock_now_ns();
	struct listing_entry entry;
	struct walk *walk;
	unsigned most;
	size_t at;

	check(lock_held(&child->tree->lock));
	if (!parent || !parent->listing || !origin_is_far(child->tree->origin) ||
		!listing_find(
			parent->listing, dir_name(child), strlen(dir_name(child)), &entry, &at))
		return;
	walk = &parent->walk;
	if (now - walk->last_ns >= WALK_PAUSE_NS)
		*walk = (struct walk){.begun_ns = now};
	if (child->unused && walk->unused)
		walk->unused--;
	child->unused = false;
	walk->last_ns = now;
	walk->children += child->walked_ns < walk->begun_ns;
	child->walked_ns = now;
	most = walk->children - 1;
	if (above && is_walked(above, now) && most < INHERITED)
		most = INHERITED;
	ask_next(parent, at + 1, most < AHEAD_UNUSED_MAX ? most : AHEAD_UNUSED_MAX, todo);
}

void ahead_forgotten(struct dir *child)
{
	struct dir *parent = child->unused ? parent_of(child) : NULL;

	if (parent && parent->walk.unused)
		parent->walk.unused--;
}

void ahead_wanted(struct dir *dir)
{
	check(lock_held(&dir->tree->lock));
	if (!dir->ahead)
		return;
	ahead_ended(dir);
	if (dir->growing)
		origin_list_promote(&dir->request);
}

void ahead_ended(struct dir *dir)
{
	if (!dir->ahead)
		return;
	dir->ahead = false;
	dir->tree->n_ahead--;
}
