#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs.h"

#define PREFIX "user.cachefs."

static const char names[] = PREFIX "version\0" PREFIX "warm\0" PREFIX "upload";

static void reply_bytes(fuse_req_t req, const char *bytes, size_t n, size_t size)
{
	if (!size)
		fuse_reply_xattr(req, n);
	else if (size < n)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, bytes, n);
}

static int is_warm(struct fs *fs, const struct node *node, const struct origin_attr *attr)
{
	struct object_status status;
	char *path;
	int r = node_path(&fs->nodes, node, NULL, 0, &path);

	if (r)
		return r;
	r = cache_object_status(fs->config.cache, fs->config.origin, path, attr, &status);
	free(path);
	return r ? r : status.warm;
}

/* The text of a file's attribute: 0 or -errno. */
static int get(struct fs *fs, uint64_t ino, const char *name, char text[ORIGIN_VERSION_MAX])
{
	struct node *node;
	struct origin_attr attr;
	int r = 0;

	/* The kernel asks for security.capability and the like: not worth a look at the node. */
	if (strncmp(name, PREFIX, strlen(PREFIX)))
		return -ENODATA;
	name += strlen(PREFIX);
	node = nodes_get(&fs->nodes, ino);
	if (!node)
		return -ESTALE;
	node_attr(&fs->nodes, node, &attr);
	if (node_is_directory(node)) {
		r = -ENODATA;
	} else if (!strcmp(name, "version")) {
		strcpy(text, attr.version.text);
	} else if (!strcmp(name, "warm")) {
		r = is_warm(fs, node, &attr);
		if (r >= 0)
			strcpy(text, r ? "yes" : "no");
	} else if (!strcmp(name, "upload")) {
		strcpy(text, "clean");
	} else {
		r = -ENODATA;
	}
	node_put(&fs->nodes, node);
	return r < 0 ? r : 0;
}

void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	char text[ORIGIN_VERSION_MAX] = "";
	int r = get(fs_of(req), ino, name, text);

	if (r)
		fuse_reply_err(req, -r);
	else
		reply_bytes(req, text, strlen(text), size);
}

void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct fs *fs = fs_of(req);
	struct node *node = nodes_get(&fs->nodes, ino);
	size_t n = node && !node_is_directory(node) ? sizeof names : 0;

	node_put(&fs->nodes, node);
	if (node)
		reply_bytes(req, names, n, size);
	else
		fuse_reply_err(req, ESTALE);
}
