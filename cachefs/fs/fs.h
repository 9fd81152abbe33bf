/*
 * fs: the side of one volume that answers the kernel: session, nodes, handles and operations.
 *
 * No operation blocks: what must wait for the origin or the store is parked (parked.h), and
 * answered from the cache's done callback.
 *
 * Locks, outermost first: the volumes' lock; libfuse's lock of a request; parking->lock;
 * nodes->lock. The last two are leaves to each other; the sweeper's is before nodes->lock. None is
 * held across a reply, a callback, an ioctl or a call of another room. References are dropped before
 * the reply where the reply may be what the end of the session waits for.
 */
#ifndef FS_FS_H
#define FS_FS_H

#include "cache/tree.h"
#include "handles.h"
#include "nodes.h"
#include "fs/options.h"
#include "parked.h"
#include "session.h"
#include "stale.h"
#include "sweep.h"

#define FS_MAX_NODES   (512u * 1024)
#define FS_MAX_HANDLES (128u * 1024)

struct fs_config {
	/* All borrowed, and outlive the fs. */
	struct cache *cache;
	struct origin *origin;
	struct tree *tree;
	struct cache_account *account;
	const struct volume_options *options;
	const struct device_calls *calls;
	bool passthrough;       /* the kernel may have it */
	bool forgo_resend;      /* as if the kernel had no FUSE_NOTIFY_RESEND */
	unsigned backing_depth; /* file systems stacked below a raw file's: 0, on overlayfs 1 */
	uint32_t max_nodes, max_handles; /* 0: FS_MAX_… */
};

struct fs_counters {
	_Atomic uint64_t requests, lookups, reads, opens, estale_opens;
};

struct fs {
	struct fs_config config;
	struct table *table;
	struct nodes nodes;
	struct handles handles;
	struct parking parking;
	struct session *session;
	struct sweeper sweeper;
	bool taken_over; /* constant once started */
	struct fs_counters counters;
	struct stale_opens stale_opens;
	_Atomic bool passthrough; /* negotiated, and no BACKING_OPEN was refused for good */
};

/* Owns device from now on, also on failure. 0 or -errno. */
int fs_new(const struct fs_config *config, int device, struct fs **ret);
/* What another daemon served, who must have ended or stopped. Owns device and table (a memfd), also
 * on failure. 0 or -errno with why. */
int fs_resume(
	const struct fs_config *config, int device, int table, struct fs **ret, struct why *why);
/* Answers INIT, or takes over from the one who did, and starts the threads. 0 or -errno with why. */
int fs_start(struct fs *fs, struct why *why);
/* Returns when the threads have ended: with the device, or by fs_stop. */
void fs_wait(struct fs *fs);
/*
 * For a hand-over: when this returns, no request is read any more, no reply will be written, and the
 * table stays as it is. Requests that wait are left to the successor.
 */
void fs_stop(struct fs *fs);
bool fs_is_stopped(const struct fs *fs);
/* After fs_wait, or if fs_start failed. Returns when everything that was parked has ended. */
void fs_free(struct fs *fs);
int fs_table_fd(const struct fs *fs);

extern const struct fuse_lowlevel_ops fs_ops;

/* --- shared by the operations --- */

/* Of the request, counted. */
struct fs *fs_of(fuse_req_t req);
/* What stat(2) says. */
void fs_stat(const struct fs *fs, const struct origin_attr *attr, uint64_t ino, struct stat *ret);
void fs_stat_node(const struct fs *fs, const struct node *node, struct stat *ret);
/* When something that is fresh for fresh_ms from now ends to be so. */
uint64_t fs_fresh_until(uint64_t fresh_ms);
/* One handle less of the node, and its backing id closed if that was the last one. */
void fs_unclaim(struct fs *fs, struct node *node, enum table_mode mode);
/* The same of a handle that was taken out of the handles, with its reference. NULL is allowed. */
void fs_drop_handle(struct fs *fs, struct handle *handle);
/* A handle that was made for an OPEN or OPENDIR. */
struct opened {
	fuse_ino_t ino;
	uint64_t fh;
	enum table_mode mode;
	int backing_id;
};
/* The answer to the open that was asked for; the handle goes if nobody takes it. */
void fs_reply_open(struct fs *fs, fuse_req_t req, const struct fuse_file_info *asked,
	const struct opened *opened);
/* True if a predecessor made the handle and perhaps answered: the kernel has got the same once more. */
bool fs_open_again(
	struct fs *fs, fuse_req_t req, fuse_ino_t ino, const struct fuse_file_info *info);
/* How long the kernel may keep a name; 0 with strict. */
double fs_entry_seconds(const struct fs *fs, uint64_t fresh_ms);

void op_init(void *userdata, struct fuse_conn_info *conn);
void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n);
void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info);
void op_statfs(fuse_req_t req, fuse_ino_t ino);
void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info);
void op_readdir(
	fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *info);
void op_readdirplus(
	fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *info);
void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info);
void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info);
void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info);
void op_read(
	fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *info);

#endif
