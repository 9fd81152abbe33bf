#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/list.h"
#include "fs.h"

struct read_request {
	struct parked parked;
	struct fs *fs;
	struct handle *handle; /* one reference */
	struct node *node;     /* when the object had to be opened for this read: one reference */
	char *path;            /* the node's */
	struct object_open open;
	struct object_read read;
};

static void end(struct read_request *request)
{
	handle_put(&request->fs->handles, request->handle);
	free(request->path);
	parked_end(&request->parked);
	free(request);
}

/* The node's version is gone from the origin: who opens next is to see another one. */
static void distrust(struct fs *fs, struct node *node)
{
	char *path;

	node->suspect = true;
	if (node_path(&fs->nodes, node, NULL, 0, &path))
		return;
	tree_forget(fs->config.tree, path);
	free(path);
}

static void fail(struct read_request *request, int error)
{
	if (error == -ENOENT)
		error = -ESTALE;
	if (error == -ESTALE && request->handle)
		distrust(request->fs, request->handle->node);
	if (parked_claim(&request->parked))
		fuse_reply_err(request->parked.req, -error);
	end(request);
}

static void done(struct object_read *read, int error, const struct iovec *iov, int count)
{
	struct read_request *request = container_of(read, struct read_request, read);

	if (error) {
		fail(request, error);
		return;
	}
	if (parked_claim(&request->parked)) {
		if (count)
			fuse_reply_iov(request->parked.req, iov, count);
		else
			fuse_reply_buf(request->parked.req, NULL, 0);
	}
	end(request);
}

/* Made at the first READ: passthrough handles mostly see none. */
static int get_reader(struct fs *fs, struct handle *handle, struct reader **ret)
{
	struct reader *none = NULL, *made = atomic_load(&handle->reader);
	char *path;
	int r;

	*ret = made;
	if (made)
		return 0;
	r = node_path(&fs->nodes, handle->node, NULL, 0, &path);
	if (r)
		return r;
	r = reader_new(
		atomic_load(&handle->object), fs->config.origin, path, fs->config.account, &made);
	free(path);
	if (r)
		return r;
	*ret = made;
	if (!atomic_compare_exchange_strong(&handle->reader, &none, made)) {
		reader_free(made);
		*ret = none;
	}
	return 0;
}

static void start(struct read_request *request)
{
	int r = get_reader(request->fs, request->handle, &request->read.reader);

	if (r) {
		fail(request, r);
		return;
	}
	request->read.done = done;
	object_read_start(&request->read);
}

static void opened(struct object_open *open, int error)
{
	struct read_request *request = container_of(open, struct read_request, open);
	struct node *node = steal_pointer(&request->node);

	if (error) {
		node_put(&request->fs->nodes, node);
		fail(request, error);
		return;
	}
	if (request->handle) {
		handle_give_object(request->handle, open->object);
		node_put(&request->fs->nodes, node);
	} else {
		request->handle =
			handle_new(&request->fs->handles, node, TABLE_CACHED, open->object, NULL);
	}
	if (request->handle)
		start(request);
	else
		fail(request, -ENOMEM);
}

/* By a handle that a daemon before this one gave out, or by none: the node tells what to read. Takes
 * over the node's reference. */
static int start_by_node(struct read_request *request, fuse_req_t req, struct node *node)
{
	struct fs *fs = request->fs;
	struct object_open *open = &request->open;
	int r = node_path(&fs->nodes, node, NULL, 0, &request->path);

	if (r)
		return r;
	open->cache = fs->config.cache;
	open->origin = fs->config.origin;
	open->path = request->path;
	node_attr(&fs->nodes, node, &open->attr);
	open->done = opened;
	request->node = node;
	parked_begin(&fs->parking, &request->parked, req);
	object_open_start(open);
	return 0;
}

/* 0: the read owns the FUSE request. */
static int begin(struct read_request *request, fuse_req_t req, fuse_ino_t ino, uint64_t fh)
{
	struct fs *fs = request->fs;
	struct node *node;
	int r;

	request->handle = handles_get(&fs->handles, fh, ino);
	if (request->handle && atomic_load(&request->handle->object)) {
		parked_begin(&fs->parking, &request->parked, req);
		start(request);
		return 0;
	}
	node = nodes_get(&fs->nodes, ino);
	r = !node ? -ESTALE : node_is_directory(node) ? -EISDIR : 0;
	if (!r)
		r = start_by_node(request, req, node);
	if (r)
		node_put(&fs->nodes, node);
	return r;
}

void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *info)
{
	struct fs *fs = fs_of(req);
	struct read_request *request = calloc(1, sizeof *request);
	int r = -ENOMEM;

	atomic_fetch_add_explicit(&fs->counters.reads, 1, memory_order_relaxed);
	if (request) {
		request->fs = fs;
		request->read.offset = (uint64_t)offset;
		request->read.size_bytes =
			size < OBJECT_READ_MAX ? (uint32_t)size : OBJECT_READ_MAX;
		r = begin(request, req, ino, info->fh);
	}
	if (!r)
		return;
	if (request)
		handle_put(&fs->handles, request->handle);
	free(request);
	fuse_reply_err(req, -r);
}
