#include "fs.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"

#define REQUEST_MAX    (1u << 20)
#define MAX_BACKGROUND 4096

/* No operation that locks (the kernel's own survive the daemon's death) and none that writes. */
const struct fuse_lowlevel_ops fs_ops = {
	.init = op_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.getattr = op_getattr,
	.statfs = op_statfs,
	.getxattr = op_getxattr,
	.listxattr = op_listxattr,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.releasedir = op_releasedir,
	.open = op_open,
	.release = op_release,
	.read = op_read,
};

int fs_new(const struct fs_config *config, int device, struct fs **ret)
{
	struct fs *fs = calloc(1, sizeof *fs);
	uint32_t max_nodes = config->max_nodes ? config->max_nodes : FS_MAX_NODES;
	uint32_t max_handles = config->max_handles ? config->max_handles : FS_MAX_HANDLES;
	int r;

	if (!fs) {
		close(device);
		return -ENOMEM;
	}
	fs->config = *config;
	r = table_new(max_nodes, max_handles, &fs->table);
	if (r)
		goto fail_table;
	r = nodes_init(&fs->nodes, fs->table, clock_wall_ns());
	if (r)
		goto fail_nodes;
	r = handles_init(&fs->handles, &fs->nodes, max_handles);
	if (r)
		goto fail_handles;
	r = parking_init(&fs->parking);
	if (r)
		goto fail_parking;
	r = session_new(steal_fd(&device), fs->table, config->calls, &fs_ops, fs, &fs->session);
	if (!r) {
		*ret = fs;
		return 0;
	}
	parking_close(&fs->parking);
fail_parking:
	handles_free(&fs->handles);
fail_handles:
	nodes_free(&fs->nodes);
fail_nodes:
	table_free(fs->table);
fail_table:
	if (device >= 0)
		close(device);
	free(fs);
	return r;
}

int fs_start(struct fs *fs)
{
	return session_start(fs->session);
}

void fs_wait(struct fs *fs)
{
	session_join(fs->session);
}

void fs_free(struct fs *fs)
{
	/* Closing comes after the last answer, and nodes and handles after the last request. */
	parking_close(&fs->parking);
	session_free(fs->session);
	handles_free(&fs->handles);
	nodes_free(&fs->nodes);
	table_free(fs->table);
	free(fs);
}

struct fs *fs_of(fuse_req_t req)
{
	struct fs *fs = session_owner(req);

	atomic_fetch_add_explicit(&fs->counters.requests, 1, memory_order_relaxed);
	return fs;
}

static bool want(struct fuse_conn_info *conn, uint64_t flag)
{
	return fuse_set_feature_flag(conn, flag);
}

void op_init(void *userdata, struct fuse_conn_info *conn)
{
	struct fs *fs = session_owner_of(userdata);

	fs->init_flags = conn->capable_ext;
	conn->max_write = REQUEST_MAX;
	conn->max_readahead = REQUEST_MAX;
	conn->max_background = MAX_BACKGROUND;
	conn->congestion_threshold = MAX_BACKGROUND / 4 * 3;
	want(conn, FUSE_CAP_ASYNC_READ);
	want(conn, FUSE_CAP_ATOMIC_O_TRUNC);
	want(conn, FUSE_CAP_PARALLEL_DIROPS);
	want(conn, FUSE_CAP_HANDLE_KILLPRIV_V2);
	want(conn, FUSE_CAP_NO_EXPORT_SUPPORT);
	/* A listing of 100,000 costs twenty times as much when the kernel chooses. */
	want(conn, FUSE_CAP_READDIRPLUS);
	fuse_unset_feature_flag(conn, FUSE_CAP_READDIRPLUS_AUTO);
	/* A node's version never changes, nor do its pages. */
	fuse_unset_feature_flag(conn, FUSE_CAP_AUTO_INVAL_DATA);
	fuse_unset_feature_flag(conn, FUSE_CAP_OVER_IO_URING);
	if (fs->config.passthrough && want(conn, FUSE_CAP_PASSTHROUGH)) {
		conn->max_backing_stack_depth = fs->config.backing_depth;
		fs->passthrough = true;
	}
}
