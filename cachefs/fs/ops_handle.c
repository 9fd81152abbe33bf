/* What OPEN and OPENDIR have in common: how they are answered, once and again, and undone. */
#include "base/crash.h"
#include "fs.h"

void fs_unclaim(struct fs *fs, struct node *node, enum table_mode mode)
{
	int backing_id = node_unclaim(&fs->nodes, node, mode);

	if (!backing_id)
		return;
	crash_point("before_backing_close");
	session_backing_close(fs->session, backing_id);
}

void fs_drop_handle(struct fs *fs, struct handle *handle)
{
	if (!handle)
		return;
	if (handle->mode != TABLE_DIRECTORY)
		fs_unclaim(fs, handle->node, handle->mode);
	handle_put(&fs->handles, handle);
}

static void fill_info(
	struct fuse_file_info *info, uint64_t fh, enum table_mode mode, int backing_id)
{
	info->fh = fh;
	if (mode == TABLE_DIRECTORY)
		return;
	/* Nothing to flush; and a process killed in a flush would wait for it. */
	info->noflush = 1;
	if (mode == TABLE_PASSTHROUGH)
		info->backing_id = backing_id;
	else
		info->keep_cache = 1; /* a node's pages are of its one version */
}

void fs_reply_open(struct fs *fs, fuse_req_t req, const struct fuse_file_info *asked,
	const struct opened *opened)
{
	struct fuse_file_info info = *asked;

	fill_info(&info, opened->fh, opened->mode, opened->backing_id);
	/* Nobody to tell: no RELEASE will come. */
	if (fuse_reply_open(req, &info) < 0)
		fs_drop_handle(fs, handles_take(&fs->handles, opened->fh, opened->ino));
}

bool fs_open_again(struct fs *fs, fuse_req_t req, fuse_ino_t ino, const struct fuse_file_info *info)
{
	struct handle *handle =
		session_is_resent() ? handles_get(&fs->handles, session_unique(), ino) : NULL;

	if (!handle)
		return false;
	fs_reply_open(fs, req, info,
		&(struct opened){.ino = ino,
			.fh = handle->fh,
			.mode = handle->mode,
			.backing_id = handle->mode == TABLE_PASSTHROUGH
					      ? node_backing_id(handle->node)
					      : 0});
	handle_put(&fs->handles, handle);
	return true;
}

static void release(fuse_req_t req, fuse_ino_t ino, uint64_t fh)
{
	struct fs *fs = fs_of(req);

	fs_drop_handle(fs, handles_take(&fs->handles, fh, ino));
	fuse_reply_err(req, 0);
}

void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	release(req, ino, info->fh);
}

void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	release(req, ino, info->fh);
}
