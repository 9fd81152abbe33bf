/*
 * dir: an origin that is a directory of this machine.
 *
 * Everything is opened relative to the root with openat2(2) and RESOLVE_BENEATH, so that no
 * symbolic link leads out of it. A link beneath it is what it leads to, but for one to a directory
 * that the link lies in, at whatever depth: so no walk is endless. Work is done on the engine's workers; a GET that is paused leaves
 * its worker and is posted again.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "base/cleanup.h"

#include "impl.h"
#include "later.h"
#include "name.h"

#define BLOCK_SIZE   (256u << 10)
#define PAGE_ENTRIES 1000

/* Demand has workers of its own. */
#define DEMAND_WORKERS 4
#define OTHER_WORKERS  2

struct dir {
	struct origin base;
	char *path;
	int fd;
	/* No other origin's: a file server that is gone stops whoever asks it. */
	struct work *demand, *other;
};

struct dir_get {
	struct job job;
	struct origin_get *get;
	struct origin *origin; /* a reference */
	int fd;
	uint64_t received;
	struct lock lock;
	bool working; /* lock: a worker has it, or will */
	bool resumed; /* lock: while it was working */
	_Atomic bool cancelled;
};

static struct dir *dir_of(const struct origin *origin)
{
	return container_of(origin, struct dir, base);
}

static void dir_post(struct origin *origin, struct job *job, enum origin_priority priority)
{
	struct dir *dir = dir_of(origin);

	work_post(priority == ORIGIN_DEMAND ? dir->demand : dir->other, job);
}

/* --- files --- */

static int open_beneath(const struct dir *dir, const char *path, uint64_t flags)
{
	struct open_how how = {
		.flags = flags | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
	};
	long fd;

	do {
		fd = syscall(SYS_openat2, dir->fd, *path ? path : ".", &how, sizeof how);
	} while (fd < 0 && (errno == EINTR || errno == EAGAIN));
	if (fd >= 0)
		return (int)fd;
	/* A link that leads out, or in a circle, and a path through a file are not there. */
	return errno == EXDEV || errno == ELOOP || errno == ENOTDIR ? -ENOENT : -errno;
}

static void version_of(const struct stat *st, struct origin_version *ret)
{
	snprintf(ret->text, sizeof ret->text, "%lld-%lld%09ld-%lld%09ld-%llu",
		(long long)st->st_size, (long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec,
		(long long)st->st_ctim.tv_sec, st->st_ctim.tv_nsec, (unsigned long long)st->st_ino);
	ret->strong = true;
}

/* False: neither a regular file nor a directory. */
static bool attr_of(const struct stat *st, struct origin_attr *ret)
{
	*ret = (struct origin_attr){.kind = ORIGIN_DIR,
		.mtime_ns = st->st_mtim.tv_sec * 1000000000ll + st->st_mtim.tv_nsec};
	if (S_ISDIR(st->st_mode))
		return true;
	ret->kind = ORIGIN_FILE;
	ret->size_bytes = (uint64_t)st->st_size;
	version_of(st, &ret->version);
	return S_ISREG(st->st_mode);
}

static int stat_at(const struct dir *dir, const char *path, uint64_t flags, struct stat *ret)
{
	_cleanup_(closep) int fd = open_beneath(dir, path, O_PATH | flags);

	if (fd < 0)
		return fd;
	return fstat(fd, ret) < 0 ? -errno : 0;
}

/* Whether the directory is one that the path leads through. 0 or -errno. */
static int is_above(
	const struct dir *dir, const char *path, const struct stat *directory, bool *ret_above)
{
	_cleanup_(freep) char *above = strdup(path);
	struct stat st;
	int r = above ? 0 : -ENOMEM;

	*ret_above = false;
	while (!r && !*ret_above && *above) {
		char *slash = strrchr(above, '/');

		*(slash ? slash : above) = '\0';
		r = stat_at(dir, above, 0, &st);
		*ret_above = !r && st.st_dev == directory->st_dev && st.st_ino == directory->st_ino;
	}
	return r;
}

/* What the link leads to. */
static int link_attr(const struct dir *dir, const char *path, struct origin_attr *ret)
{
	struct stat st;
	bool above = false;
	int r = stat_at(dir, path, 0, &st);

	if (!r && S_ISDIR(st.st_mode))
		r = is_above(dir, path, &st, &above);
	if (r)
		return r;
	return attr_of(&st, ret) && !above ? 0 : -ENOENT;
}

static int attr_at(const struct dir *dir, const char *path, struct origin_attr *ret)
{
	struct stat st;
	int r = stat_at(dir, path, O_NOFOLLOW, &st);

	if (!r && S_ISLNK(st.st_mode))
		return link_attr(dir, path, ret);
	if (r)
		return r;
	return attr_of(&st, ret) ? 0 : -ENOENT;
}

/* Counts one operation; its errors are the contract's. */
static int count(struct origin *origin, enum request_kind kind, const char *path, int error)
{
	struct verdict verdict;

	verdict_done(&verdict);
	if (error == -EPERM)
		error = -EACCES;
	if (error && error != -ENOENT && error != -ESTALE && error != -EACCES &&
		error != -ENAMETOOLONG && error != -ENOMEM)
		verdict_fail(
			&verdict, -EIO, ORIGIN_SERVER_ERROR, "%.100s: %s", path, strerror(-error));
	else if (error)
		verdict_fail(&verdict, error,
			error == -EACCES   ? ORIGIN_DENIED
			: error == -ESTALE ? ORIGIN_CHANGED
					   : ORIGIN_NOT_FOUND,
			"%.100s: %s", path, strerror(-error));
	origin_count(origin, kind, &verdict);
	return verdict.error;
}

/* --- GET --- */

static void get_free(struct dir_get *own)
{
	if (own->fd >= 0)
		close(own->fd);
	lock_destroy(&own->lock);
	free(own);
}

static void get_done(struct dir_get *own, int error)
{
	struct origin *origin = own->origin;
	struct origin_get *get = own->get;

	if (error != -ECANCELED)
		error = count(origin, REQUEST_GET, get->path, error);
	origin_count_running(origin, -1);
	get->done(get, error);
	/* Waits for a signal that is still inside. */
	lock_take(&own->lock);
	lock_drop(&own->lock);
	get_free(own);
	origin_unref(origin);
}

static int check_version(const struct dir_get *own)
{
	struct origin_version version;
	struct stat st;

	if (fstat(own->fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ESTALE;
	version_of(&st, &version);
	return strcmp(version.text, own->get->version.text) ? -ESTALE : 0;
}

/* Reads one block; what it gives away was read while the version was the right one. */
static int read_block(struct dir_get *own, uint8_t block[BLOCK_SIZE], size_t *ret_n)
{
	const struct origin_get *get = own->get;
	uint64_t missing = get->length - own->received;
	size_t n = missing < BLOCK_SIZE ? (size_t)missing : BLOCK_SIZE;
	ssize_t got;
	int r = check_version(own);

	if (r)
		return r;
	do {
		got = pread(own->fd, block, n, (off_t)(get->offset + own->received));
	} while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	r = check_version(own);
	if (r)
		return r;
	*ret_n = (size_t)got;
	return got ? 0 : -ESTALE;
}

/* 0: all given; -EAGAIN: paused. The block is of one run: GETs that wait for a worker or for their
 * caller, of which there may be many, hold none. */
static int get_run(struct dir_get *own)
{
	_cleanup_(freep) uint8_t *block = malloc(BLOCK_SIZE);
	struct origin_get *get = own->get;

	if (!block)
		return -ENOMEM;
	if (own->fd < 0)
		own->fd = open_beneath(dir_of(own->origin), get->path, O_RDONLY | O_NONBLOCK);
	if (own->fd < 0)
		return own->fd == -ENOENT ? -ESTALE : own->fd;
	while (own->received < get->length) {
		size_t n = 0, took;
		int r = atomic_load(&own->cancelled) ? -ECANCELED : read_block(own, block, &n);

		if (r)
			return r;
		atomic_fetch_add(&own->origin->bytes, n);
		took = get->data(get, block, n);
		check(took <= n);
		own->received += took;
		if (took < n)
			return -EAGAIN;
	}
	return 0;
}

/* Lets go of a paused GET; false when it was resumed or cancelled meanwhile. */
static bool get_rest(struct dir_get *own)
{
	bool rests;

	lock_take(&own->lock);
	rests = !own->resumed;
	own->resumed = false;
	own->working = !rests;
	lock_drop(&own->lock);
	return rests;
}

static void get_job(struct job *job)
{
	struct dir_get *own = container_of(job, struct dir_get, job);
	int r;

	while ((r = get_run(own)) == -EAGAIN) {
		if (get_rest(own))
			return;
	}
	get_done(own, r);
}

static void get_signal(struct origin_get *get, unsigned signal)
{
	struct dir_get *own = get->private.state;
	bool post;

	/* The workers know only two priorities, and what is posted stays where it is. */
	if (signal != SIGNAL_CANCEL && signal != SIGNAL_RESUME)
		return;
	if (signal == SIGNAL_CANCEL)
		atomic_store(&own->cancelled, true);
	lock_take(&own->lock);
	post = !own->working;
	own->working = true;
	own->resumed = !post;
	lock_drop(&own->lock);
	if (post)
		dir_post(get->origin, &own->job, get->priority);
}

static void dir_get(struct origin_get *get)
{
	struct dir_get *own = malloc(sizeof *own);

	if (!own) {
		later_get(get, -ENOMEM);
		return;
	}
	own->job.run = get_job;
	own->get = get;
	own->origin = origin_ref(get->origin);
	own->fd = -1;
	own->received = 0;
	lock_init(&own->lock);
	own->working = true;
	own->resumed = false;
	atomic_init(&own->cancelled, false);
	get->private.state = own;
	origin_count_running(own->origin, 1);
	dir_post(get->origin, &own->job, get->priority);
}

/* --- stat --- */

static void stat_job(struct job *job)
{
	struct origin_stat *stat = container_of(job, struct origin_stat, private.job);
	struct origin *origin = stat->origin;
	int r = attr_at(dir_of(origin), stat->path, &stat->attr);

	r = count(origin, REQUEST_HEAD, stat->path, r);
	stat->done(stat, r);
	origin_unref(origin);
}

static void dir_stat(struct origin_stat *stat)
{
	origin_ref(stat->origin);
	stat->private.job.run = stat_job;
	dir_post(stat->origin, &stat->private.job, ORIGIN_DEMAND);
}

/* --- list --- */

/* The link of this name in the directory. False, and 0: it isn't shown. */
static int give_link(
	const struct origin_list *list, const char *name, struct origin_attr *ret, bool *ret_shown)
{
	_cleanup_(freep) char *path = NULL;
	int r;

	*ret_shown = false;
	if (asprintf(&path, "%s%s%s", list->path, *list->path ? "/" : "", name) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	r = link_attr(dir_of(list->origin), path, ret);
	*ret_shown = !r;
	return r == -ENOENT || r == -EACCES || r == -ENAMETOOLONG ? 0 : r;
}

static int give_entry(struct origin_list *list, int fd, const char *name)
{
	struct origin_entry entry = {.name = name, .name_size = strlen(name), .attr_known = true};
	struct stat st;
	bool shown;
	int r = 0;

	if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (S_ISLNK(st.st_mode))
		r = give_link(list, name, &entry.attr, &shown);
	else
		shown = attr_of(&st, &entry.attr);
	if (r)
		return r;
	if (shown && name_valid(name, entry.name_size))
		list->entry(list, &entry);
	else
		list->hidden_keys++;
	return 0;
}

static int set_next(struct origin_list *list, long place)
{
	return asprintf(&list->next_token, "%ld", place) < 0 ? -ENOMEM : 0;
}

static int list_page(struct origin_list *list, DIR *stream)
{
	unsigned limit = list->limit ? list->limit : PAGE_ENTRIES, given = 0;
	struct dirent *entry;
	int r = 0;

	if (list->token)
		seekdir(stream, strtol(list->token, NULL, 10));
	while (!r) {
		long place = telldir(stream);

		errno = 0;
		entry = readdir(stream);
		if (!entry)
			return -errno;
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (given++ == limit)
			return set_next(list, place);
		r = give_entry(list, dirfd(stream), entry->d_name);
	}
	return r;
}

static int list_run(struct origin_list *list)
{
	int fd = open_beneath(dir_of(list->origin), list->path, O_RDONLY | O_DIRECTORY), r;
	DIR *stream;

	if (fd < 0)
		return fd;
	stream = fdopendir(fd);
	if (!stream) {
		close(fd);
		return -ENOMEM;
	}
	r = list_page(list, stream);
	closedir(stream);
	return r;
}

static void list_job(struct job *job)
{
	struct origin_list *list = container_of(job, struct origin_list, private.job);
	struct origin *origin = list->origin;
	int r = count(origin, REQUEST_LIST, list->path, list_run(list));

	if (r) {
		free(list->next_token);
		list->next_token = NULL;
	}
	list->done(list, r);
	origin_unref(origin);
}

static void dir_list(struct origin_list *list)
{
	origin_ref(list->origin);
	list->private.job.run = list_job;
	dir_post(list->origin, &list->private.job, ORIGIN_DEMAND);
}

/* --- the origin --- */

static int object_name(const struct origin *origin, const char *path, char *name, size_t size)
{
	int n = snprintf(name, size, "file://%s/%s", dir_of(origin)->path, path);

	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

static void destroy(struct origin *origin)
{
	struct dir *dir = dir_of(origin);

	/* This may be one of their jobs. */
	work_release(dir->demand);
	work_release(dir->other);
	if (dir->fd >= 0)
		close(dir->fd);
	free(dir->path);
	free(dir);
}

static const struct origin_ops dir_ops = {
	.get = dir_get,
	.get_signal = get_signal,
	.stat = dir_stat,
	.list = dir_list,
	.object_name = object_name,
	.destroy = destroy,
};

int dir_open(const struct source *source, struct origin **ret, struct why *why)
{
	struct dir *dir = calloc(1, sizeof *dir);
	int r = 0;

	if (!dir)
		return -ENOMEM;
	origin_setup(&dir->base, &dir_ops);
	dir->path = strdup(source->path);
	dir->fd = open(*source->path ? source->path : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir->fd < 0)
		r = why_set(why, -errno, "%s can't be opened as a directory: %s; give file:///dir",
			source->text, strerror(errno));
	else if (!dir->path)
		r = -ENOMEM;
	if (!r)
		r = work_new("origin-dir", DEMAND_WORKERS, &dir->demand);
	if (!r)
		r = work_new("origin-dir-bg", OTHER_WORKERS, &dir->other);
	if (r) {
		origin_unref(&dir->base);
		return r;
	}
	*ret = &dir->base;
	return 0;
}
