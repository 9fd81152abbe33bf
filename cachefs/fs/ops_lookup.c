#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/crash.h"
#include "base/list.h"
#include "fs.h"

struct lookup {
	struct parked parked;
	struct fs *fs;
	struct node *parent; /* immortal, no reference */
	struct tree_lookup tree;
	char *path;
	const char *name; /* the path's last component */
};

static void reply_missing(struct lookup *lookup)
{
	const struct volume_options *options = lookup->fs->config.options;
	uint64_t fresh_ms = lookup->tree.fresh_ms;
	struct fuse_entry_param entry = {0};

	if (fresh_ms > options->negative_ttl_ms)
		fresh_ms = options->negative_ttl_ms;
	entry.entry_timeout = fs_entry_seconds(lookup->fs, fresh_ms);
	if (entry.entry_timeout > 0)
		fuse_reply_entry(lookup->parked.req, &entry);
	else
		fuse_reply_err(lookup->parked.req, ENOENT);
}

static void reply_found(struct lookup *lookup)
{
	struct fs *fs = lookup->fs;
	uint64_t fresh_ms = lookup->tree.fresh_ms;
	struct fuse_entry_param entry = {
		.entry_timeout = fs_entry_seconds(fs, fresh_ms),
		.attr_timeout = fs_entry_seconds(fs, fresh_ms),
	};
	struct node_name name = {
		.parent = lookup->parent,
		.name = lookup->name,
		.name_size = strlen(lookup->name),
		.ino = path_ino(lookup->path),
	};
	struct node *node;
	int r = nodes_lookup(
		&fs->nodes, &name, &lookup->tree.attr, fs_fresh_until(fresh_ms), &node);

	if (r) {
		fuse_reply_err(lookup->parked.req, -r);
		return;
	}
	entry.ino = node->id;
	fs_stat_node(fs, node, &entry.attr);
	crash_point("after_table");
	/* Nobody to tell: nobody will forget it. */
	if (fuse_reply_entry(lookup->parked.req, &entry) < 0)
		nodes_forget(&fs->nodes, entry.ino, 1);
	node_put(&fs->nodes, node);
	if (nodes_are_crowded(&fs->nodes))
		sweeper_wake(&fs->sweeper);
}

static void done(struct tree_lookup *tree, int error)
{
	struct lookup *lookup = container_of(tree, struct lookup, tree);

	if (parked_claim(&lookup->parked)) {
		if (!error)
			reply_found(lookup);
		else if (error == -ENOENT)
			reply_missing(lookup);
		else
			fuse_reply_err(lookup->parked.req, -error);
	}
	free(lookup->path);
	parked_end(&lookup->parked);
	free(lookup);
}

/* 0: the lookup owns the request. */
static int start(struct fs *fs, fuse_req_t req, fuse_ino_t parent, const char *name)
{
	size_t name_size = strlen(name);
	struct node *node = nodes_get(&fs->nodes, parent);
	struct lookup *lookup;
	int r;

	if (!node)
		return -ESTALE;
	r = node_is_directory(node) ? 0 : -ENOTDIR;
	node_put(&fs->nodes, node); /* a directory stays */
	if (r)
		return r;
	if (name_size > TABLE_NAME_MAX)
		return -ENAMETOOLONG;
	lookup = calloc(1, sizeof *lookup);
	if (!lookup)
		return -ENOMEM;
	r = node_path(&fs->nodes, node, name, name_size, &lookup->path);
	if (r) {
		free(lookup);
		return r;
	}
	lookup->fs = fs;
	lookup->parent = node;
	lookup->name = lookup->path + strlen(lookup->path) - name_size;
	lookup->tree.tree = fs->config.tree;
	lookup->tree.path = lookup->path;
	lookup->tree.account = fs->config.account;
	lookup->tree.done = done;
	parked_begin(&fs->parking, &lookup->parked, req);
	tree_lookup_start(&lookup->tree);
	return 0;
}

void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fs *fs = fs_of(req);
	int r;

	atomic_fetch_add_explicit(&fs->counters.lookups, 1, memory_order_relaxed);
	r = start(fs, req, parent, name);
	if (r)
		fuse_reply_err(req, -r);
}

void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
	nodes_forget(&fs_of(req)->nodes, ino, n);
	fuse_reply_none(req);
}

void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	struct fs *fs = fs_of(req);

	for (size_t i = 0; i < count; i++)
		nodes_forget(&fs->nodes, forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}
