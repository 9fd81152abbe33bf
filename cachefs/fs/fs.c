#include "fs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"

#define REQUEST_MAX    (1u << 20)
#define MAX_BACKGROUND 4096
/* FUSE_PASSTHROUGH of INIT's flags, since 6.9. */
#define INIT_PASSTHROUGH (1ull << 37)

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

/* The nodes and handles of a predecessor; of none: a root. */
static int fill(struct fs *fs, bool adopted, struct why *why)
{
	int r = adopted ? nodes_restore(&fs->nodes, fs->table, why)
			: nodes_init(&fs->nodes, fs->table, clock_wall_ns());

	if (r)
		return r;
	r = handles_init(&fs->handles, &fs->nodes);
	if (r) {
		nodes_free(&fs->nodes);
		return r;
	}
	if (adopted)
		r = handles_restore(&fs->handles, why);
	if (!r && adopted)
		r = nodes_settle(&fs->nodes, why);
	if (r) {
		handles_free(&fs->handles);
		nodes_free(&fs->nodes);
	}
	return r;
}

/* A request that was failed since it can't come again: its handle, if it got one, is of nobody. */
static void on_lost(void *owner, uint64_t unique)
{
	struct fs *fs = owner;

	fs_drop_handle(fs, handles_take_fh(&fs->handles, unique));
}

static int make_parts(struct fs *fs, int device, bool adopted, struct why *why)
{
	_cleanup_(closep) int own = device;
	int r = fill(fs, adopted, why);

	if (r)
		return r;
	r = parking_init(&fs->parking);
	if (!r) {
		r = session_new(
			steal_fd(&own), fs->table, fs->config.calls, &fs_ops, fs, &fs->session);
		if (r)
			parking_close(&fs->parking);
	}
	if (r) {
		handles_free(&fs->handles);
		nodes_free(&fs->nodes);
	}
	return r;
}

/* Takes over the table and the device, also on failure. */
static int make(const struct fs_config *config, int device, struct table *table, bool adopted,
	struct fs **ret, struct why *why)
{
	struct fs *fs = calloc(1, sizeof *fs);
	int r;

	if (!fs) {
		close(device);
		table_free(table);
		return why_set(why, -ENOMEM, "out of memory");
	}
	fs->config = *config;
	fs->table = table;
	r = make_parts(fs, device, adopted, why);
	if (r) {
		table_free(table);
		free(fs);
		return r == -EUCLEAN ? r : why_set(why, r, "making the mount: %s", strerror(-r));
	}
	session_on_lost(fs->session, on_lost);
	if (config->forgo_resend)
		session_forgo_resend(fs->session);
	sweeper_init(&fs->sweeper);
	stale_opens_init(&fs->stale_opens, table_stale_slots(fs->table));
	*ret = fs;
	return 0;
}

int fs_new(const struct fs_config *config, int device, struct fs **ret)
{
	_cleanup_(closep) int own = device;
	struct table *table;
	int r = table_new(config->max_nodes ? config->max_nodes : FS_MAX_NODES,
		config->max_handles ? config->max_handles : FS_MAX_HANDLES, &table);

	return r ? r : make(config, steal_fd(&own), table, false, ret, NULL);
}

int fs_resume(
	const struct fs_config *config, int device, int table_fd, struct fs **ret, struct why *why)
{
	_cleanup_(closep) int own = device;
	struct table *table;
	int r = table_adopt(table_fd, &table, why);

	if (r)
		return r;
	return make(config, steal_fd(&own), table, true, ret, why);
}

int fs_start(struct fs *fs, struct why *why)
{
	int r;

	fs->taken_over = session_init_flags(fs->session);
	r = fs->taken_over ? sweep_backing(fs) : 0;

	if (r)
		return why_set(why, r, "taking over a mount: %s", strerror(-r));
	r = session_start(fs->session, why);
	if (r)
		return r;
	r = sweeper_start(&fs->sweeper, fs);
	/* Without it some memory is lost, no more. */
	if (r)
		log_warn("sweeper_not_started", "error=%s", strerror(-r));
	return 0;
}

void fs_wait(struct fs *fs)
{
	session_join(fs->session);
	sweeper_end(&fs->sweeper);
}

void fs_stop(struct fs *fs)
{
	/* First, since the kernel may ask something before it answers the sweeper. */
	sweeper_end(&fs->sweeper);
	session_stop(fs->session);
	parking_abandon(&fs->parking);
	nodes_freeze(&fs->nodes);
}

bool fs_is_stopped(const struct fs *fs)
{
	return session_is_stopped(fs->session);
}

int fs_table_fd(const struct fs *fs)
{
	return table_fd(fs->table);
}

void fs_free(struct fs *fs)
{
	/* Closing comes after the last answer, and nodes and handles after the last request. */
	parking_close(&fs->parking);
	sweeper_free(&fs->sweeper);
	session_free(fs->session);
	stale_opens_destroy(&fs->stale_opens);
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

/* What a predecessor negotiated holds, whatever has become of store and options since. */
static void negotiate_passthrough(struct fs *fs, struct fuse_conn_info *conn)
{
	uint64_t before = session_init_flags(fs->session);
	bool wanted = before ? before & INIT_PASSTHROUGH : fs->config.passthrough;

	if (!wanted || !want(conn, FUSE_CAP_PASSTHROUGH))
		return;
	conn->max_backing_stack_depth = fs->config.backing_depth;
	fs->passthrough = true;
}

void op_init(void *userdata, struct fuse_conn_info *conn)
{
	struct fs *fs = session_owner_of(userdata);

	conn->max_write = REQUEST_MAX;
	conn->max_readahead = REQUEST_MAX;
	conn->max_background = MAX_BACKGROUND;
	conn->congestion_threshold = MAX_BACKGROUND / 4 * 3;
	want(conn, FUSE_CAP_ASYNC_READ);
	/* The kernel tells nobody that who waits for an asynchronous O_DIRECT read was killed. */
	fuse_unset_feature_flag(conn, FUSE_CAP_ASYNC_DIO);
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
	negotiate_passthrough(fs, conn);
}
