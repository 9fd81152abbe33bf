/*
 * store: the cache directory on NVMe: its lock, its format, its space, and the raw files in it.
 *
 *     DIR/FORMAT            "cachefs-store 1\n"; written last when a store is made
 *     DIR/lock              OFD lock (fcntl(2), F_OFD_SETLK) of the one daemon; its pid is in it
 *     DIR/index/            the index's LMDB environment
 *     DIR/raw/ab/<32 hex>   raw files: one version of one object, at its own offsets, sparse,
 *                           exactly as long as the object
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
 * Makes the store if DIR is missing (its parent must exist) or empty but for lost+found, else opens
 * it. DIR may be a symbolic link, nothing in it may. Refused with why and nothing changed: a
 * directory with other contents (-ENOTEMPTY), another format (-EPROTONOSUPPORT), another daemon's
 * lock (-EBUSY, names its pid) that it has not given up after wait_ms, not writable (-EACCES,
 * -EROFS), a file system without room for a minimal new store (-ENOSPC).
 */
int store_open(const char *dir, unsigned wait_ms, struct store **ret, struct why *why);
/* 0 if store_open would understand what is there (also nothing); takes no lock, changes nothing. */
int store_check(const char *dir, struct why *why);
/* NULL is allowed. */
void store_close(struct store *store);

/* Absolute. */
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

struct raw; /* an open raw file: two descriptors, one O_DIRECT; gone before store_close */

/* Opens it, or with make makes it if there is none (sparse, size_bytes long). 0, -ENOENT, -ENOSPC,
 * -EIO, …; -EUCLEAN when there is one whose length is not size_bytes (an orphan: raw_remove it). */
int raw_open(
	struct store *store, struct id128 object, uint64_t size_bytes, bool make, struct raw **ret);
/* Closes both descriptors. NULL is allowed. */
void raw_close(struct raw *raw);

/*
 * The descriptor for IO on [offset, offset + size): the O_DIRECT one when offset and size are
 * multiples of 4096 (reads may round size up past the end of the file), else the buffered one.
 * Never blocks. The memory must be aligned to 4096.
 */
int raw_fd(const struct raw *raw, uint64_t offset, uint64_t size_bytes);
/* The descriptor to give to FUSE_DEV_IOC_BACKING_OPEN: the buffered one. Its mode grants nothing:
 * the kernel opens the file anew with the mode of each FUSE open. Never blocks. */
int raw_backing_fd(const struct raw *raw);
/* Bytes, length, extents and the file's name are durable after it. Any thread. */
int raw_sync(struct raw *raw);

struct raw_state {
	uint64_t size_bytes;
	uint64_t disk_bytes; /* blocks really used */
	int64_t ctime_ns;    /* changes with every write by whomever */
};
int raw_stat(const struct raw *raw, struct raw_state *ret);

/* Takes away what somebody wrote beyond the object's end, which no reader is told of, and which is
 * no chunk's. 0, also when the file isn't longer, or -errno. */
int raw_cut(struct raw *raw, uint64_t size_bytes);

/*
 * Removes the file unless anyone has it open or mapped (passthrough handles and mappings that
 * outlived them included), which a write lease tells (fcntl(2), F_SETLEASE). No struct raw of it
 * may exist; the caller lets nobody open the object meanwhile, and has the index forget it after: a
 * record without a file is found out when it is opened, a file without a record only takes room.
 * Where the file system has no leases, the file goes at once and its blocks when its last user lets
 * go. 0 (also if there is none), -EBUSY, -EIO.
 */
int raw_remove(struct store *store, struct id128 object, uint64_t *ret_freed_bytes);

/* Calls each for every raw file there is (for verify --all: files without a record). Stops at the
 * first non-zero, and returns it. */
int raw_each(struct store *store, int (*each)(void *arg, struct id128 object), void *arg);
/* The same for those of one of the directories that they lie in, of roughly as many each. */
#define RAW_DIRECTORIES 256u
int raw_each_in(struct store *store, unsigned directory,
	int (*each)(void *arg, struct id128 object), void *arg);

#endif
