/*
 * index: what survives a restart: which chunks of which objects are in the store, with their
 * checksums; pins; listings. One LMDB environment (http://www.lmdb.tech/doc/). The only user of
 * <lmdb.h>.
 *
 * Invariant: the index says that a chunk is present only after its bytes were made durable
 * (raw_sync before index_commit).
 *
 * Reads: any thread, consistent, a few microseconds; they may fault pages of the map in. Writes:
 * one transaction at a time, begun and committed on one thread; commit returns when it is durable.
 */
#ifndef INDEX_INDEX_H
#define INDEX_INDEX_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/hash.h"
#include "base/why.h"

#define INDEX_GROUP_CHUNKS 128u
#define INDEX_NAME_MAX     8192u

struct index;

/*
 * map_bytes: ceiling of the map (address space, not memory). -EPROTONOSUPPORT: made by another
 * version; -EUCLEAN: damaged, or two daemons died while they read it; each with why. The map's
 * ceiling reached later is -ENOSPC of the write that met it. Installs handlers of SIGSEGV, SIGBUS
 * and SIGABRT, which note a death within LMDB and then let it happen.
 */
int index_open(const char *dir, uint64_t map_bytes, struct index **ret, struct why *why);
/* 0 if index_open would understand what is there (also nothing); writes nothing, and is right while
 * another process has it open. */
int index_check(const char *dir, struct why *why);
/*
 * A damaged index, which nobody has open, gets another name, DIR.damaged, then DIR.damaged-2 and so
 * on, and DIR is empty. It is for people to look at: nothing reads it any more. 0, or -errno with
 * why; -EEXIST: all names are taken, and a disk that damages as many is not to be gone on with.
 */
#define INDEX_ASIDE     ".damaged"
#define INDEX_ASIDE_MAX 9u
int index_set_aside(const char *dir, char ret_name[PATH_MAX], struct why *why);
/* How many lie beside DIR. */
unsigned index_count_aside(const char *dir);
/* Marks the stop as clean. NULL is allowed. */
void index_close(struct index *index);

/* True when it was not closed by who had it last, or is new: the store may have files that it
 * doesn't know. */
bool index_was_unclean(const struct index *index);
/* Counts how often the machine went down while the store was in use (another boot id and no clean
 * mark): complete objects are to be verified before passthrough. An object verified in this epoch has
 * this number. */
uint64_t index_epoch(const struct index *index);

/* One object version. Fixed part of the record; the strings follow it. */
struct index_object {
	uint64_t size_bytes;
	uint64_t disk_bytes;     /* blocks it uses in the store, as last measured */
	int64_t mtime_ns;        /* at the origin */
	int64_t opened_wall_ns;  /* last open, for eviction */
	int64_t pinned_until_ns; /* wall clock; 0: not pinned; INT64_MAX: for ever */
	int64_t ctime_ns;        /* of the raw file after our last write to it */
	uint64_t verified_epoch; /* index_epoch() when all its bytes were last checked */
	uint32_t n_chunks;
	uint32_t n_present;
	bool complete;
	bool strong; /* of the version */
};

struct index_object_record {
	struct index_object object;
	char name[INDEX_NAME_MAX]; /* origin_object_name */
	char version[128];
};

/* Presence and checksums of INDEX_GROUP_CHUNKS chunks. */
struct index_group {
	uint64_t present[INDEX_GROUP_CHUNKS / 64];
	uint64_t sum[INDEX_GROUP_CHUNKS]; /* XXH3-64 of the chunk's bytes; meaningful where present
					   */
};

/* 0, -ENOENT, -EUCLEAN, -EIO. */
int index_get_object(struct index *index, struct id128 id, struct index_object_record *ret);
int index_get_group(struct index *index, struct id128 id, uint32_t group, struct index_group *ret);
/* Visits every object in one snapshot, in the order of ids; a non-zero result stops and is
 * returned. Damaged records are passed over. Space that is freed meanwhile is not used again before
 * it ends. */
int index_each_object(struct index *index,
	int (*each)(void *arg, struct id128 id, const struct index_object_record *record),
	void *arg);

/* A listing of a directory as one opaque blob, malloc'ed for the caller. 0, -ENOENT, -ENOMEM,
 * -EUCLEAN, -EIO. */
int index_get_listing(
	struct index *index, struct id128 directory, void **ret_bytes, size_t *ret_size);

struct index_totals {
	uint64_t objects, disk_bytes; /* sum of all records' disk_bytes, kept with them in the same
					 transactions */
	uint64_t map_used_bytes, map_bytes; /* used: also what is free for reuse within the file */
};
int index_totals(struct index *index, struct index_totals *ret);

struct index_txn;
/* Waits for the transaction before. 0 or -errno. */
int index_begin(struct index *index, struct index_txn **ret);
/* Within a transaction; after an error only index_abort is allowed. Gets see the transaction's own
 * writes. */
int index_txn_get_object(struct index_txn *txn, struct id128 id, struct index_object_record *ret);
int index_txn_get_group(
	struct index_txn *txn, struct id128 id, uint32_t group, struct index_group *ret);
int index_put_object(
	struct index_txn *txn, struct id128 id, const struct index_object_record *record);
int index_put_group(
	struct index_txn *txn, struct id128 id, uint32_t group, const struct index_group *value);
/* The object, damaged or not, and all its groups. 0 also when there is none. */
int index_delete_object(struct index_txn *txn, struct id128 id);
/* The parts, one after the other. -EFBIG beyond 256 MiB. */
int index_put_listing(
	struct index_txn *txn, struct id128 directory, const struct iovec *parts, size_t n_parts);
/* Deletes listings of other directories, any of them, until all take at most max_bytes. */
int index_trim_listings(struct index_txn *txn, struct id128 directory, uint64_t max_bytes);
/* Durable on return 0. The transaction is gone either way. */
int index_commit(struct index_txn *txn);
void index_abort(struct index_txn *txn);

#endif
