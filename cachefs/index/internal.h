/*
 * internal: what the files of this room share.
 *
 * The environment's named databases:
 *     meta     "state" -> format, clean mark, epoch and boot id; "disk" -> sum of disk_bytes
 *     object   id (16 bytes, big-endian) -> object record
 *     group    id, number (4 bytes, big-endian) -> group record
 *     listing  id of the directory -> blob
 */
#ifndef INDEX_INTERNAL_H
#define INDEX_INTERNAL_H

#include <lmdb.h>
#include <stdbool.h>
#include <stdint.h>

#include "guard.h"
#include "index/index.h"

#define ID_KEY_SIZE    16u
#define GROUP_KEY_SIZE 20u

#define BOOT_ID_SIZE 36u

/* Immutable between index_open and index_close. */
struct index {
	MDB_env *env;
	MDB_dbi meta, object, group, listing;
	uint64_t map_bytes;
	uint64_t epoch;
	bool unclean;
	uint8_t boot_id[BOOT_ID_SIZE];
	char mark[PATH_MAX]; /* the file that says that a thread died within LMDB */
};

/* Owned by the thread that began it. */
struct index_txn {
	struct index *index;
	MDB_txn *txn;
	uint64_t disk_bytes; /* the total, written at commit */
	int error;           /* the first one; commit gives it back and writes nothing */
};

/* What an LMDB call returned, as 0 or -errno. */
int lmdb_error(int e);

void id_key(struct id128 id, uint8_t key[ID_KEY_SIZE]);
struct id128 id_of_key(const uint8_t key[ID_KEY_SIZE]);
void group_key(struct id128 id, uint32_t group, uint8_t key[GROUP_KEY_SIZE]);

/* A value, valid until the transaction ends or writes. 0, -ENOENT, -EUCLEAN, -EIO. */
int value_get(MDB_txn *txn, MDB_dbi dbi, const void *key, size_t key_size, MDB_val *ret);
int value_put(MDB_txn *txn, MDB_dbi dbi, const void *key, size_t key_size, const void *bytes,
	size_t size);

/* Gives the value to take, within a snapshot of its own. 0, what take returned, or -errno. */
int value_read(struct index *index, MDB_dbi dbi, const void *key, size_t key_size,
	int (*take)(const MDB_val *value, void *arg), void *arg);

/* A read-only snapshot. End it with mdb_txn_abort. 0 or -errno. */
int snapshot_begin(struct index *index, MDB_txn **ret);

/* Keeps the first error, so that a commit after it can't write half a change. Returns r. */
int txn_failed(struct index_txn *txn, int r);

/* 0, or -EUCLEAN: what the file says of its size can't be. Also when there is none. */
int pages_check(const char *dir, uint64_t map_bytes);

/* --- meta.c --- */

/* The file's boot id, or zeros when it can't be read: then every unclean stop counts as a crash. */
void boot_id_read(const char *path, uint8_t ret[BOOT_ID_SIZE]);
/* Opens or makes the databases, finds out about a crash and writes, durably, that the index is in
 * use. index->env is open. dir is for the text. */
int meta_start(struct index *index, const char *dir, struct why *why);
/* index->env is open, for reading. Changes nothing. */
int meta_check(struct index *index, const char *dir, struct why *why);
/* Writes, durably, that the index was closed. */
int meta_stop(struct index *index);
int disk_total_get(struct index *index, MDB_txn *txn, uint64_t *ret);
int disk_total_put(struct index *index, MDB_txn *txn, uint64_t total);

/* index_open with a boot id from elsewhere, so that a test can go through a reboot. */
int index_open_booted(const char *dir, uint64_t map_bytes, const char *boot_id_path,
	struct index **ret, struct why *why);

#endif
