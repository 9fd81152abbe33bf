#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "internal.h"

/* An index and a few files: less than this is no cache. Only asked when a store is made, since a
 * full one goes on serving what it has. */
#define MINIMAL_BYTES (16ull << 20)

#define LOCK_PAUSE_MS 5

#define PROBE_NAME "probe"
#define PROBE_SIZE 4096u

/* The pid's text has one size, so that a full disk takes the next daemon's pid too. */
#define LOCK_TEXT_SIZE 16

/* Durable: what a store promises to keep depends on its own name too. */
static int make_dir(const char *dir)
{
	_cleanup_(closep) int fd = -1;
	_cleanup_(closep) int parent_fd = -1;

	if (mkdir(dir, 0700) < 0)
		return -errno;
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	parent_fd = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (parent_fd < 0 || fsync(parent_fd) < 0)
		return -errno;
	return 0;
}

static int open_dir(struct store *store, const char *dir, bool *ret_created, struct why *why)
{
	int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
	int r;

	*ret_created = false;
	store->dir_fd = open(dir, flags);
	if (store->dir_fd < 0 && errno == ENOENT) {
		r = make_dir(dir);
		if (r < 0)
			return why_set(why, r,
				"store %s: can't make the directory: %s; make its parent, or give "
				"another directory",
				dir, strerror(-r));
		*ret_created = true;
		store->dir_fd = open(dir, flags);
	}
	if (store->dir_fd < 0) {
		r = -errno;
		return why_set(why, r,
			"store %s: can't open the directory: %s; give a directory that the daemon "
			"may "
			"read and write",
			dir, strerror(-r));
	}
	return 0;
}

static int set_paths(struct store *store, const char *dir, struct why *why)
{
	store->dir = dir[0] == '/' ? strdup(dir) : realpath(dir, NULL);
	if (!store->dir || asprintf(&store->index_dir, "%s/" STORE_INDEX_DIR, store->dir) < 0) {
		store->index_dir = NULL;
		return why_set(why, -ENOMEM, "store %s: out of memory", dir);
	}
	return 0;
}

static int busy(int fd, const char *dir, struct why *why)
{
	char text[LOCK_TEXT_SIZE + 1] = "";
	ssize_t n = pread(fd, text, LOCK_TEXT_SIZE, 0);
	long pid = n > 0 ? strtol(text, NULL, 10) : 0;

	if (pid <= 0)
		return why_set(why, -EBUSY,
			"store %s: another daemon uses it; stop that one or give another directory",
			dir);
	return why_set(why, -EBUSY,
		"store %s: the daemon with pid %ld uses it; stop that one or give another "
		"directory",
		dir, pid);
}

static int write_pid(int fd)
{
	char text[LOCK_TEXT_SIZE + 1];
	ssize_t n;

	snprintf(text, sizeof text, "%-*d\n", LOCK_TEXT_SIZE - 1, (int)getpid());
	n = pwrite(fd, text, LOCK_TEXT_SIZE, 0);
	if (n < 0)
		return -errno;
	return n == LOCK_TEXT_SIZE ? 0 : -ENOSPC;
}

/* A predecessor that was killed lets go of its files in its own time: there is nothing to wait on
 * but the lock, and waiting for that in the kernel has no limit. */
static int lock_within(int fd, unsigned wait_ms)
{
	const struct timespec pause = {.tv_nsec = LOCK_PAUSE_MS * NS_PER_MS};
	uint64_t deadline_ns = clock_now_ns() + wait_ms * NS_PER_MS;
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	while (fcntl(fd, F_OFD_SETLK, &whole) < 0) {
		if ((errno != EAGAIN && errno != EACCES) || clock_now_ns() >= deadline_ns)
			return -errno;
		nanosleep(&pause, NULL);
	}
	return 0;
}

/* An OFD lock belongs to the descriptor, so a library's close of another descriptor of the file
 * can't lose it as it would lose a POSIX lock. */
static int take_lock(struct store *store, const char *dir, unsigned wait_ms, struct why *why)
{
	int r;

	store->lock_fd = openat(store->dir_fd, "lock",
		O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (store->lock_fd < 0) {
		r = -errno;
		return why_set(why, r,
			"store %s: can't open %s/lock: %s; give a directory that the daemon may "
			"write "
			"to",
			dir, dir, strerror(-r));
	}
	r = lock_within(store->lock_fd, wait_ms);
	if (r == -EAGAIN || r == -EACCES)
		return busy(store->lock_fd, dir, why);
	if (r < 0) {
		return why_set(why, r,
			"store %s: can't lock %s/lock: %s; give a directory on a local file system",
			dir, dir, strerror(-r));
	}
	r = write_pid(store->lock_fd);
	if (r < 0)
		return why_set(why, r, "store %s: can't write %s/lock: %s; check the disk", dir,
			dir, strerror(-r));
	return 0;
}

static int check_room(const struct store *store, const char *dir, struct why *why)
{
	struct store_space space = {0};
	int r = store_space(store, &space);

	if (r < 0)
		return why_set(why, r, "store %s: can't ask for its free space: %s; check the disk",
			dir, strerror(-r));
	if (space.free_bytes < MINIMAL_BYTES)
		return why_set(why, -ENOSPC,
			"store %s: %llu KiB free, a store needs %llu KiB; free some or give a "
			"directory on another disk",
			dir, (unsigned long long)space.free_bytes >> 10, MINIMAL_BYTES >> 10);
	return 0;
}

/* True when a page went out and came back. A full disk says nothing about O_DIRECT; that the flag
 * was taken is then enough. 0 or -errno. */
static int try_page(int fd, void *page, bool *ret)
{
	if (pwrite(fd, page, PROBE_SIZE, 0) < 0 || pread(fd, page, PROBE_SIZE, 0) < 0) {
		if (errno != EINVAL && errno != ENOSPC && errno != EDQUOT)
			return -errno;
		*ret = errno != EINVAL;
		return 0;
	}
	*ret = true;
	return 0;
}

/* *ret: whether a real O_DIRECT write and read work. 0 or -errno. */
static int probe_direct(int dir_fd, bool *ret)
{
	_cleanup_(closep) int fd = -1;
	_cleanup_(freep) void *page = NULL;

	if (posix_memalign(&page, PROBE_SIZE, PROBE_SIZE))
		return -ENOMEM;
	memset(page, 0, PROBE_SIZE);
	fd = openat(dir_fd, PROBE_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_DIRECT, 0600);
	if (fd < 0 && errno != EINVAL)
		return -errno;
	/* Some file systems leave the name behind when they refuse the flag. */
	if (unlinkat(dir_fd, PROBE_NAME, 0) < 0 && errno != ENOENT)
		return -errno;
	if (fd < 0) {
		*ret = false;
		return 0;
	}
	return try_page(fd, page, ret);
}

static int open_raw_dir(struct store *store, const char *dir, struct why *why)
{
	int r;

	store->raw_fd = openat(
		store->dir_fd, STORE_RAW_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (store->raw_fd < 0) {
		r = -errno;
		return why_set(why, r,
			"store %s: can't open %s/" STORE_RAW_DIR ": %s; it must be a directory",
			dir, dir, strerror(-r));
	}
	r = probe_direct(store->dir_fd, &store->direct_io);
	if (r < 0)
		return why_set(why, r, "store %s: a test write in it failed: %s; check the disk",
			dir, strerror(-r));
	return 0;
}

/* The directory is open. Looks before it changes anything, and again under the lock, since another
 * daemon may have been here in between. */
static int open_locked(struct store *store, const char *dir, unsigned wait_ms, struct why *why)
{
	bool made;
	int r = making_inspect(store->dir_fd, dir, &made, why);

	if (r == 0 && !made)
		r = check_room(store, dir, why);
	if (r == 0)
		r = take_lock(store, dir, wait_ms, why);
	if (r == 0)
		r = making_inspect(store->dir_fd, dir, &made, why);
	if (r == 0)
		r = making_dirs(store->dir_fd, dir, why);
	if (r == 0 && !made)
		r = making_finish(store->dir_fd, dir, why);
	if (r == 0)
		r = open_raw_dir(store, dir, why);
	return r;
}

int store_check(const char *dir, struct why *why)
{
	_cleanup_(closep) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool made;

	if (fd < 0)
		return errno == ENOENT ? 0
				       : why_set(why, -errno, "store %s: can't open it: %s", dir,
						 strerror(errno));
	return making_inspect(fd, dir, &made, why);
}

int store_open(const char *dir, unsigned wait_ms, struct store **ret, struct why *why)
{
	struct store *store = calloc(1, sizeof *store);
	bool created = false;
	int r;

	if (!store)
		return why_set(why, -ENOMEM, "store %s: out of memory", dir);
	store->dir_fd = store->raw_fd = store->lock_fd = -1;
	r = open_dir(store, dir, &created, why);
	if (r == 0)
		r = set_paths(store, dir, why);
	if (r == 0)
		r = open_locked(store, dir, wait_ms, why);
	if (r < 0) {
		if (created)
			rmdir(dir); /* if nothing is in it yet */
		store_close(store);
		return r;
	}
	*ret = store;
	return 0;
}

void store_close(struct store *store)
{
	if (!store)
		return;
	closep(&store->raw_fd);
	closep(&store->dir_fd);
	/* Last: it lets the next daemon in. */
	closep(&store->lock_fd);
	free(store->index_dir);
	free(store->dir);
	free(store);
}

const char *store_dir(const struct store *store)
{
	return store->dir;
}

const char *store_index_dir(const struct store *store)
{
	return store->index_dir;
}

bool store_direct_io(const struct store *store)
{
	return store->direct_io;
}

int store_space(const struct store *store, struct store_space *ret)
{
	struct statvfs fs;

	if (fstatvfs(store->dir_fd, &fs) < 0)
		return -errno;
	ret->total_bytes = (uint64_t)fs.f_blocks * fs.f_frsize;
	ret->free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
	return 0;
}
