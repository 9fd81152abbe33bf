/*
 * recorder: a file system with one file, `disk`, that writes down what is done to it, for power
 * losses that are played afterwards (tests/lib/power.py).
 *
 *     recorder MOUNTPOINT IMAGE LOG
 *
 * The file's bytes lie in IMAGE. A loop device on `disk` carries the file system whose power is to
 * fail, so everything that this one writes comes by here: data, journal, and what other processes
 * map. LOG gets one entry for each write and each flush, in the order in which they were done:
 *
 *     char kind ('W', 'F'), 7 bytes of zero, uint64_t offset, uint64_t size, `size` bytes
 *
 * An entry is in LOG before the kernel is told that the operation is done. One thread, so that there
 * is one order. Ends with its mount, or by SIGTERM.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define FUSE_USE_VERSION 318
#include <fuse_lowlevel.h>

#define DISK_INO  2
#define DISK_NAME "disk"
#define FOREVER_S 1e9
#define WRITE_MAX (1u << 20)

static int image_fd, log_fd;
static off_t disk_size;

static void die(const char *what)
{
	fprintf(stderr, "recorder: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* What can't be written down would be a hole in the record: there is no going on. */
static void note(char kind, off_t offset, void *bytes, size_t size)
{
	struct {
		char kind, zero[7];
		uint64_t offset, size;
	} head = {.kind = kind, .offset = (uint64_t)offset, .size = size};
	struct iovec iov[] = {
		{.iov_base = &head, .iov_len = sizeof head},
		{.iov_base = bytes, .iov_len = size},
	};

	if (writev(log_fd, iov, 2) != (ssize_t)(sizeof head + size))
		die("log");
}

static void fill_stat(fuse_ino_t ino, struct stat *ret)
{
	*ret = (struct stat){.st_ino = ino, .st_mode = S_IFDIR | 0700, .st_nlink = 2};
	if (ino == DISK_INO) {
		ret->st_mode = S_IFREG | 0600;
		ret->st_nlink = 1;
		ret->st_size = disk_size;
	}
}

static void disk_init(void *userdata, struct fuse_conn_info *conn)
{
	(void)userdata;
	conn->max_write = WRITE_MAX;
}

static void disk_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param entry = {
		.ino = DISK_INO, .attr_timeout = FOREVER_S, .entry_timeout = FOREVER_S};

	if (parent != FUSE_ROOT_ID || strcmp(name, DISK_NAME)) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	fill_stat(DISK_INO, &entry.attr);
	fuse_reply_entry(req, &entry);
}

static void disk_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	struct stat attr;

	(void)info;
	fill_stat(ino, &attr);
	fuse_reply_attr(req, &attr, FOREVER_S);
}

static void disk_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	if (ino != DISK_INO) {
		fuse_reply_err(req, EISDIR);
		return;
	}
	/* No page cache in between, which would put the order of writes into the kernel's hands. */
	info->direct_io = 1;
	fuse_reply_open(req, info);
}

static void disk_read(
	fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *info)
{
	static uint8_t bytes[WRITE_MAX];
	ssize_t n = pread(image_fd, bytes, size < sizeof bytes ? size : sizeof bytes, offset);

	(void)ino;
	(void)info;
	if (n < 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_buf(req, (const char *)bytes, (size_t)n);
}

static void disk_write(fuse_req_t req, fuse_ino_t ino, const char *bytes, size_t size, off_t offset,
	struct fuse_file_info *info)
{
	(void)ino;
	(void)info;
	if (offset + (off_t)size > disk_size) {
		fuse_reply_err(req, ENOSPC);
		return;
	}
	/* libfuse's own buffer, which writev takes as it is. */
	note('W', offset, (char *)bytes, size);
	if (pwrite(image_fd, bytes, size, offset) != (ssize_t)size)
		die("image");
	fuse_reply_write(req, size);
}

static void disk_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *info)
{
	(void)ino;
	(void)datasync;
	(void)info;
	note('F', 0, NULL, 0);
	fuse_reply_err(req, 0);
}

static const struct fuse_lowlevel_ops ops = {
	.init = disk_init,
	.lookup = disk_lookup,
	.getattr = disk_getattr,
	.open = disk_open,
	.read = disk_read,
	.write = disk_write,
	.fsync = disk_fsync,
};

int main(int argc, char **argv)
{
	char *fuse_argv[] = {argv[0], (char[]){"-ofsname=recorder"}, NULL};
	struct fuse_args args = FUSE_ARGS_INIT(2, fuse_argv);
	struct fuse_session *session;
	int r;

	if (argc != 4) {
		fprintf(stderr, "usage: recorder MOUNTPOINT IMAGE LOG\n");
		return 2;
	}
	image_fd = open(argv[2], O_RDWR | O_CLOEXEC);
	if (image_fd < 0)
		die(argv[2]);
	disk_size = lseek(image_fd, 0, SEEK_END);
	log_fd = open(argv[3], O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
	if (log_fd < 0)
		die(argv[3]);
	session = fuse_session_new(&args, &ops, sizeof ops, NULL);
	if (!session || fuse_set_signal_handlers(session) || fuse_session_mount(session, argv[1]))
		return 1;
	r = fuse_session_loop(session);
	fuse_session_unmount(session);
	fuse_remove_signal_handlers(session);
	fuse_session_destroy(session);
	return r < 0;
}
