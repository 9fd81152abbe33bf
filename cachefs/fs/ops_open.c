#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/crash.h"
#include "base/list.h"
#include "base/log.h"
#include "fs.h"

struct open_request {
	struct parked parked;
	struct fs *fs;
	struct node *node; /* one reference */
	bool settle;       /* no ESTALE any more */
	char *path;
	uint64_t fh;
	struct fuse_file_info info;
	struct tree_lookup tree; /* strict */
	struct object_open open;
};

static void end(struct open_request *request)
{
	node_put(&request->fs->nodes, request->node);
	free(request->path);
	parked_end(&request->parked);
	free(request);
}

/* A new backing id, or 0 when the file can't be passed through. */
static int backing_open(struct fs *fs, struct object *object)
{
	int fd = object_backing_fd(object);
	int id = fd >= 0 ? session_backing_open(fs->session, fd) : 0;

	if (id >= 0)
		return id;
	/* Too many descriptors pass; anything else will be refused again. */
	if (id != -ENFILE && id != -EMFILE && id != -ENOMEM &&
		atomic_exchange(&fs->passthrough, false))
		log_warn("passthrough_refused", "error=%s reads go through the daemon",
			strerror(-id));
	return 0;
}

/* Decides the handle's mode and counts it: the node's own, if it has one. */
static enum claim claim_mode(
	struct fs *fs, struct node *node, struct object *object, bool settle, int *ret_backing_id)
{
	bool warm = fs->passthrough && object_backing_fd(object) >= 0;
	enum claim claim = node_claim(&fs->nodes, node, warm, settle, 0, ret_backing_id);
	int own;

	if (claim != CLAIM_NEEDS_BACKING)
		return claim;
	own = backing_open(fs, object);
	claim = node_claim(&fs->nodes, node, own > 0, settle, own, ret_backing_id);
	if (own && (claim != CLAIM_PASSTHROUGH || *ret_backing_id != own))
		session_backing_close(fs->session, own);
	return claim;
}

static void count_open(struct fs *fs, enum table_mode mode)
{
	struct cache_account *account = fs->config.account;

	atomic_fetch_add(&account->opens, 1);
	if (mode == TABLE_PASSTHROUGH)
		atomic_fetch_add(&account->passthrough_opens, 1);
}

static void reply_stale(struct open_request *request)
{
	struct fs *fs = request->fs;

	atomic_fetch_add(&fs->counters.estale_opens, 1);
	stale_opens_note(&fs->stale_opens, request->parked.pid, request->node->ino, request->fh);
	crash_point("after_table");
	fuse_reply_err(request->parked.req, ESTALE);
}

/* The mode is claimed: makes the handle and answers. Takes over the reference of object. */
static void reply_opened(
	struct open_request *request, enum table_mode mode, int backing_id, struct object *object)
{
	struct fs *fs = request->fs;
	struct node *node = request->node;
	struct handle *handle;
	int r;

	node_ref(&fs->nodes, node);
	handle = handle_new(&fs->handles, node, mode, object, NULL);
	r = handle ? handles_add(&fs->handles, handle, request->fh, (uint32_t)request->info.flags)
		   : -ENOMEM;
	handle_put(&fs->handles, handle);
	if (r) {
		fs_unclaim(fs, node, mode);
		fuse_reply_err(request->parked.req, -r);
		return;
	}
	count_open(fs, mode);
	crash_point("after_table");
	fs_reply_open(fs, request->parked.req, &request->info,
		&(struct opened){.ino = node->id,
			.fh = request->fh,
			.mode = mode,
			.backing_id = backing_id});
}

static void finish(struct open_request *request, struct object *object)
{
	int backing_id = 0;
	enum claim claim =
		claim_mode(request->fs, request->node, object, request->settle, &backing_id);

	if (claim == CLAIM_STALE) {
		object_unref(object);
		reply_stale(request);
		return;
	}
	reply_opened(request, claim == CLAIM_PASSTHROUGH ? TABLE_PASSTHROUGH : TABLE_CACHED,
		backing_id, object);
}

static void opened(struct object_open *open, int error)
{
	struct open_request *request = container_of(open, struct open_request, open);

	if (!parked_claim(&request->parked)) {
		if (!error)
			object_unref(open->object);
	} else if (error) {
		fuse_reply_err(request->parked.req, -error);
	} else {
		finish(request, open->object);
	}
	end(request);
}

static void open_object(struct open_request *request)
{
	struct fs *fs = request->fs;

	request->open.cache = fs->config.cache;
	request->open.origin = fs->config.origin;
	request->open.path = request->path;
	node_attr(&fs->nodes, request->node, &request->open.attr);
	request->open.done = opened;
	object_open_start(&request->open);
}

static bool is_current(
	const struct open_request *request, int error, const struct origin_attr *attr)
{
	return !error && attr->kind == ORIGIN_FILE &&
	       node_has_version(&request->fs->nodes, request->node, &attr->version);
}

static void revalidated(struct tree_lookup *tree, int error)
{
	struct open_request *request = container_of(tree, struct open_request, tree);

	if (is_current(request, error, &tree->attr)) {
		open_object(request);
		return;
	}
	if (!error || error == -ENOENT)
		nodes_supersede(&request->fs->nodes, request->node);
	if (parked_claim(&request->parked)) {
		if (!error || error == -ENOENT)
			reply_stale(request);
		else
			fuse_reply_err(request->parked.req, -error);
	}
	end(request);
}

static void revalidate(struct open_request *request)
{
	request->tree.tree = request->fs->config.tree;
	request->tree.path = request->path;
	request->tree.account = request->fs->config.account;
	request->tree.revalidate = true;
	request->tree.done = revalidated;
	tree_lookup_start(&request->tree);
}

/* True: the kernel has to look the name up again. */
static bool is_outdated(struct open_request *request, enum stale_try try)
{
	struct fs *fs = request->fs;
	struct origin_attr attr;
	int r;

	/* A predecessor found so. */
	if (try == STALE_SAME)
		return true;
	if (request->node->suspect) {
		nodes_supersede(&fs->nodes, request->node);
		return true;
	}
	r = tree_peek(fs->config.tree, request->path, &attr);
	if (r == -EAGAIN || is_current(request, r, &attr))
		return false;
	nodes_supersede(&fs->nodes, request->node);
	return true;
}

/*
 * An open of a superseded node is of who holds it already, by /proc/self/fd or in a race: it gets
 * what the node is, since looking the name up again would lead elsewhere. So does the second try
 * after an ESTALE, whose lookup was a moment ago.
 */
static void start(struct open_request *request, fuse_req_t req)
{
	struct fs *fs = request->fs;
	enum stale_try try;
	bool pinned;

	parked_begin(&fs->parking, &request->parked, req);
	try = stale_opens_try(
		&fs->stale_opens, request->parked.pid, request->node->ino, request->fh);
	request->settle = try == STALE_SECOND;
	pinned = request->settle || (try == STALE_FIRST && node_is_superseded(request->node));
	if (!pinned && is_outdated(request, try)) {
		if (parked_claim(&request->parked))
			reply_stale(request);
		end(request);
	} else if (!pinned && fs->config.options->strict) {
		revalidate(request);
	} else {
		open_object(request);
	}
}

static int prepare(
	struct fs *fs, fuse_ino_t ino, const struct fuse_file_info *info, struct open_request **ret)
{
	struct node *node = nodes_get(&fs->nodes, ino);
	struct open_request *request = NULL;
	int r = node ? 0 : -ESTALE;

	if (!r && node_is_directory(node))
		r = -EISDIR;
	if (!r && (info->flags & O_ACCMODE) != O_RDONLY)
		r = -EROFS;
	if (!r) {
		request = calloc(1, sizeof *request);
		r = request ? node_path(&fs->nodes, node, NULL, 0, &request->path) : -ENOMEM;
	}
	if (r) {
		node_put(&fs->nodes, node);
		free(request);
		return r;
	}
	request->fs = fs;
	request->node = node;
	request->info = *info;
	request->fh = session_unique();
	*ret = request;
	return 0;
}

void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	struct fs *fs = fs_of(req);
	struct open_request *request;
	int r;

	atomic_fetch_add_explicit(&fs->counters.opens, 1, memory_order_relaxed);
	if (fs_open_again(fs, req, ino, info))
		return;
	r = prepare(fs, ino, info, &request);
	if (r)
		fuse_reply_err(req, -r);
	else
		start(request, req);
}
