#include "store/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/cleanup.h"
#include "internal.h"
#include "lease.h"

#define DIRECT_ALIGN 4096u

struct raw {
	struct store *store;
	struct id128 object;
	int buffered_fd;
	int direct_fd; /* -1 where the file system takes no O_DIRECT */
	atomic_bool name_durable;
};

/* "ab/<32 hex>", relative to the store's raw directory. */
struct raw_name {
	char sub[3];
	char path[3 + ID128_HEX_SIZE];
};

static struct raw_name name_of(struct id128 object)
{
	struct raw_name name;
	char hex[ID128_HEX_SIZE];

	id128_to_hex(object, hex);
	memcpy(name.sub, hex, 2);
	name.sub[2] = '\0';
	memcpy(name.path, name.sub, 2);
	name.path[2] = '/';
	memcpy(name.path + 3, hex, sizeof hex);
	return name;
}

/* Makes the file and its sub-directory if need be. A descriptor, or -errno (-EEXIST). */
static int create(const struct store *store, const struct raw_name *name, uint64_t size_bytes)
{
	int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	_cleanup_(closep) int fd = openat(store->raw_fd, name->path, flags, 0600);
	int r;

	if (fd < 0 && errno == ENOENT) {
		if (mkdirat(store->raw_fd, name->sub, 0700) < 0 && errno != EEXIST)
			return -errno;
		fd = openat(store->raw_fd, name->path, flags, 0600);
	}
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)size_bytes) < 0) {
		r = -errno;
		unlinkat(store->raw_fd, name->path, 0);
		return r;
	}
	return steal_fd(&fd);
}

/* A descriptor, or -errno. */
static int open_sized(const struct store *store, const struct raw_name *name, uint64_t size_bytes)
{
	_cleanup_(closep) int fd =
		openat(store->raw_fd, name->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != size_bytes)
		return -EUCLEAN;
	return steal_fd(&fd);
}

static int open_both(struct raw *raw, uint64_t size_bytes, bool make)
{
	struct raw_name name = name_of(raw->object);
	int fd = make ? create(raw->store, &name, size_bytes) : -EEXIST;

	if (fd == -EEXIST)
		fd = open_sized(raw->store, &name, size_bytes);
	if (fd < 0)
		return fd;
	raw->buffered_fd = fd;
	if (!raw->store->direct_io)
		return 0;
	raw->direct_fd =
		openat(raw->store->raw_fd, name.path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_DIRECT);
	return raw->direct_fd < 0 ? -errno : 0;
}

/* Raw files take what origins, sockets and clients need too; who gets none here is read uncached,
 * where a failed connection would be an error. */
static bool descriptors_run_short(const struct store *store)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
	       atomic_load(&store->n_raw) * 2 >= limit.rlim_cur / 4 * 3;
}

int raw_open(
	struct store *store, struct id128 object, uint64_t size_bytes, bool make, struct raw **ret)
{
	struct raw *raw;
	int r;

	if (size_bytes > INT64_MAX)
		return -EFBIG;
	if (descriptors_run_short(store))
		return -EMFILE;
	raw = calloc(1, sizeof *raw);
	if (!raw)
		return -ENOMEM;
	atomic_init(&raw->name_durable, false);
	raw->store = store;
	raw->object = object;
	raw->buffered_fd = raw->direct_fd = -1;
	atomic_fetch_add(&store->n_raw, 1);
	r = open_both(raw, size_bytes, make);
	if (r < 0) {
		raw_close(raw);
		return r;
	}
	*ret = raw;
	return 0;
}

void raw_close(struct raw *raw)
{
	if (!raw)
		return;
	closep(&raw->direct_fd);
	closep(&raw->buffered_fd);
	atomic_fetch_sub(&raw->store->n_raw, 1);
	free(raw);
}

int raw_fd(const struct raw *raw, uint64_t offset, uint64_t size_bytes)
{
	bool aligned = offset % DIRECT_ALIGN == 0 && size_bytes % DIRECT_ALIGN == 0;

	return aligned && raw->direct_fd >= 0 ? raw->direct_fd : raw->buffered_fd;
}

int raw_backing_fd(const struct raw *raw)
{
	return raw->buffered_fd;
}

/* The file's name in its sub-directory and that one's in raw/. */
static int sync_names(const struct raw *raw)
{
	struct raw_name name = name_of(raw->object);
	_cleanup_(closep) int sub_fd = openat(
		raw->store->raw_fd, name.sub, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (sub_fd < 0 || fsync(sub_fd) < 0 || fsync(raw->store->raw_fd) < 0)
		return -errno;
	return 0;
}

int raw_sync(struct raw *raw)
{
	int r;

	if (fdatasync(raw->buffered_fd) < 0)
		return -errno;
	/* Also for files found, not made: a daemon that was killed may have left the name behind
	 * in memory only. */
	if (atomic_load(&raw->name_durable))
		return 0;
	r = sync_names(raw);
	if (r == 0)
		atomic_store(&raw->name_durable, true);
	return r;
}

static uint64_t disk_bytes(const struct stat *st)
{
	return (uint64_t)st->st_blocks * 512;
}

int raw_stat(const struct raw *raw, struct raw_state *ret)
{
	struct stat st;

	if (fstat(raw->buffered_fd, &st) < 0)
		return -errno;
	ret->size_bytes = (uint64_t)st.st_size;
	ret->disk_bytes = disk_bytes(&st);
	ret->ctime_ns = st.st_ctim.tv_sec * 1000000000ll + st.st_ctim.tv_nsec;
	return 0;
}

int raw_cut(struct raw *raw, uint64_t size_bytes)
{
	struct stat st;

	if (fstat(raw->buffered_fd, &st) < 0)
		return -errno;
	if ((uint64_t)st.st_size <= size_bytes)
		return 0;
	return ftruncate(raw->buffered_fd, (off_t)size_bytes) < 0 ? -errno : 0;
}

/* A descriptor that may get the lease, or -errno. O_NONBLOCK: another's lease is -EBUSY, not a
 * wait. */
static int open_for_lease(const struct store *store, const struct raw_name *name, int mode)
{
	int fd = openat(store->raw_fd, name->path, mode | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0)
		return fd;
	return errno == EWOULDBLOCK ? -EBUSY : -errno;
}

int raw_remove(struct store *store, struct id128 object, uint64_t *ret_freed_bytes)
{
	struct raw_name name = name_of(object);
	_cleanup_(closep) int fd = open_for_lease(store, &name, O_RDONLY);
	struct stat st;
	int r;

	if (fd == -ENOENT) {
		*ret_freed_bytes = 0;
		return 0;
	}
	if (fd < 0)
		return fd;
	r = lease_take(fd);
	/* Without leases a user of the file keeps its bytes until he lets go: only the count of
	 * what was freed is early then. */
	if (r < 0 && r != -EOPNOTSUPP)
		return r;
	if (fstat(fd, &st) < 0 || unlinkat(store->raw_fd, name.path, 0) < 0)
		return -errno;
	*ret_freed_bytes = disk_bytes(&st);
	return 0;
}

/* The objects of one sub-directory; names that are no raw file's are passed over. */
static int each_in(struct store *store, const char *sub,
	int (*each)(void *arg, struct id128 object), void *arg)
{
	int fd = openat(store->raw_fd, sub, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct dirent *entry;
	struct id128 object;
	DIR *stream;
	int r = 0;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	stream = fdopendir(fd);
	if (!stream) {
		close(fd);
		return -ENOMEM;
	}
	while (r == 0) {
		errno = 0;
		entry = readdir(stream);
		if (!entry) {
			r = -errno;
			break;
		}
		if (strncmp(entry->d_name, sub, 2) == 0 &&
			id128_from_hex(entry->d_name, &object) == 0)
			r = each(arg, object);
	}
	closedir(stream);
	return r;
}

int raw_each_in(struct store *store, unsigned directory,
	int (*each)(void *arg, struct id128 object), void *arg)
{
	char sub[12];

	check(directory < RAW_DIRECTORIES);
	snprintf(sub, sizeof sub, "%02x", directory);
	return each_in(store, sub, each, arg);
}

int raw_each(struct store *store, int (*each)(void *arg, struct id128 object), void *arg)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < RAW_DIRECTORIES; i++)
		r = raw_each_in(store, i, each, arg);
	return r;
}
