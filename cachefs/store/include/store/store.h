/*
 * store: the cache directory on NVMe: its lock, its format, its space, and the raw files in it.
 *
 *     DIR/FORMAT            "cachefs-store 1\n"; written last when a store is made
 *     DIR/lock              OFD lock (fcntl(2), F_OFD_SETLK) of the one daemon, whose pid stands in
 * it DIR/index/            the index's LMDB environment DIR/raw/ab/<32 hex>   raw files: one
 * version of one object, at its own offsets, sparse, exactly as long as the object
 *
 * Everything here may block (open, fallocate, fsync) unless it says otherwise; call it from a
 * worker.
 */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/hash.h"
#include "base/why.h"

struct store;

/*
 * Makes the store if DIR is missing or empty, else opens it. Refused with why and nothing changed:
 * a directory with other contents, another format (-EPROTONOSUPPORT), another daemon's lock
 * (-EBUSY, names its pid), not writable (-EACCES, -EROFS), a file system without room for a minimal
 * store (-ENOSPC).
 */
int store_open(const char *dir, struct store **ret, struct why *why);
void store_close(struct store *store);

const char *store_dir(const struct store *store);
/* DIR/index, made by store_open. */
const char *store_index_dir(const struct store *store);
/* False: the file system takes no O_DIRECT; all IO is buffered then. */
bool store_direct_io(const struct store *store);

struct store_space {
	uint64_t total_bytes, free_bytes; /* of the file system, free to an unprivileged user */
};
int store_space(const struct store *store, struct store_space *ret);

/* --- raw files --- */

struct raw; /* an open raw file: two descriptors, one O_DIRECT; reference counted */

/* Opens it, or with create makes it (sparse, ftruncate'd to size_bytes). 0, -ENOENT, -ENOSPC, -EIO,
 * …; -EUCLEAN when its length is not size_bytes. */
int raw_open(struct store *store, struct id128 object, uint64_t size_bytes, bool create,
	struct raw **ret);
struct raw *raw_ref(struct raw *raw);
/* The last reference closes both descriptors. NULL is allowed. */
void raw_unref(struct raw *raw);

/*
 * The descriptor for IO on [offset, offset + size): the O_DIRECT one when offset and size are
 * multiples of 4096 (reads may round size up past the end of the file), else the buffered one.
 * Never blocks. The memory must be aligned to 4096.
 */
int raw_fd(const struct raw *raw, uint64_t offset, uint64_t size_bytes);
/* The descriptor to give to FUSE_DEV_IOC_BACKING_OPEN: buffered, read-only. Never blocks. */
int raw_backing_fd(const struct raw *raw);
/* fdatasync: bytes, length and extents are durable after it. */
int raw_sync(struct raw *raw);

struct raw_state {
	uint64_t size_bytes;
	uint64_t disk_bytes; /* blocks really used */
	int64_t ctime_ns;    /* changes with every write by whomever */
};
int raw_stat(const struct raw *raw, struct raw_state *ret);
/* Gives the blocks of a range back to the file system (fallocate PUNCH_HOLE). The caller holds the
 * only reference and has checked raw_is_idle. */
int raw_punch(struct raw *raw, uint64_t offset, uint64_t size_bytes);

/*
 * Removes the file unless anyone has it open or mapped (passthrough handles and mappings that
 * outlived them included), which a write lease tells (fcntl(2), F_SETLEASE). No struct raw of it
 * may exist. 0 (also if there is none), -EBUSY, -EIO.
 */
int raw_remove(struct store *store, struct id128 object, uint64_t *ret_freed_bytes);

/* Calls each for every raw file there is (for verify --all: files without a record). Stops at the
 * first non-zero, and returns it. */
int raw_each(struct store *store, int (*each)(void *arg, struct id128 object), void *arg);

#endif
