#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "fs.h"

void fs_stat(const struct fs *fs, const struct origin_attr *attr, uint64_t ino, struct stat *ret)
{
	const struct volume_options *options = fs->config.options;
	bool directory = attr->kind == ORIGIN_DIR;
	mode_t mode = directory ? S_IFDIR | 0555 : S_IFREG | 0444;

	*ret = (struct stat){
		.st_ino = ino,
		.st_mode = mode & ~(options->umask & 0777),
		.st_nlink = 1,
		.st_uid = options->uid,
		.st_gid = options->gid,
		.st_size = (off_t)attr->size_bytes,
		.st_blocks = (blkcnt_t)((attr->size_bytes + 511) / 512),
		.st_blksize = CHUNK_SIZE,
		.st_mtim.tv_sec = attr->mtime_ns / (int64_t)NS_PER_SEC,
		.st_mtim.tv_nsec = attr->mtime_ns % (int64_t)NS_PER_SEC,
	};
	if (ret->st_mtim.tv_nsec < 0) {
		ret->st_mtim.tv_sec--;
		ret->st_mtim.tv_nsec += (long)NS_PER_SEC;
	}
	ret->st_atim = ret->st_ctim = ret->st_mtim;
}

void fs_stat_node(const struct fs *fs, const struct node *node, struct stat *ret)
{
	struct origin_attr attr;

	node_attr(&fs->nodes, node, &attr);
	fs_stat(fs, &attr, node->ino, ret);
}

uint64_t fs_fresh_until(uint64_t fresh_ms)
{
	uint64_t now = clock_now_ns();

	return fresh_ms > (UINT64_MAX - now) / NS_PER_MS ? UINT64_MAX : now + fresh_ms * NS_PER_MS;
}

double fs_entry_seconds(const struct fs *fs, uint64_t fresh_ms)
{
	return fs->config.options->strict ? 0 : (double)fresh_ms / 1000;
}

void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	struct fs *fs = fs_of(req);
	struct node *node = nodes_get(&fs->nodes, ino);
	struct stat st;
	double seconds;

	(void)info;
	if (!node) {
		fuse_reply_err(req, ESTALE);
		return;
	}
	fs_stat_node(fs, node, &st);
	seconds = node == fs->nodes.root ? fs_entry_seconds(fs, fs->config.options->ttl_ms)
					 : node_fresh_seconds(&fs->nodes, node);
	node_put(&fs->nodes, node);
	fuse_reply_attr(req, &st, seconds);
}

/* What the cache may hold and still has room for: the only numbers here that aren't made up. */
void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct fs *fs = fs_of(req);
	struct cache_stats stats;
	uint64_t used;
	struct statvfs st = {.f_bsize = 4096, .f_frsize = 4096, .f_namemax = TABLE_NAME_MAX};

	(void)ino;
	cache_stats(fs->config.cache, &stats);
	used = stats.used_bytes < stats.capacity_bytes ? stats.used_bytes : stats.capacity_bytes;
	st.f_blocks = stats.capacity_bytes / st.f_frsize;
	st.f_bfree = st.f_bavail = (stats.capacity_bytes - used) / st.f_frsize;
	fuse_reply_statfs(req, &st);
}
