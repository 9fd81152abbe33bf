#include "index/index.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"
#include "records.h"

/* A reader slot is held for the time of one read, so this is the number of threads that read at
 * once. */
#define READERS_MAX 1024u

int lmdb_error(int e)
{
	switch (e) {
	case MDB_SUCCESS:
		return 0;
	case MDB_NOTFOUND:
		return -ENOENT;
	case MDB_MAP_FULL:
	case MDB_TXN_FULL:
		return -ENOSPC;
	case MDB_CORRUPTED:
	case MDB_PAGE_NOTFOUND:
	case MDB_INVALID:
	case MDB_INCOMPATIBLE:
		return -EUCLEAN;
	case MDB_VERSION_MISMATCH:
		return -EPROTONOSUPPORT;
	case MDB_READERS_FULL:
	case MDB_TLS_FULL:
	case MDB_MAP_RESIZED:
		return -EIO;
	default:
		/* LMDB's other codes are of what a right file can't lead to. */
		return e > 0 ? -e : -EUCLEAN;
	}
}

void id_key(struct id128 id, uint8_t key[ID_KEY_SIZE])
{
	uint64_t hi = htobe64(id.hi), lo = htobe64(id.lo);

	memcpy(key, &hi, sizeof hi);
	memcpy(key + sizeof hi, &lo, sizeof lo);
}

struct id128 id_of_key(const uint8_t key[ID_KEY_SIZE])
{
	uint64_t hi, lo;

	memcpy(&hi, key, sizeof hi);
	memcpy(&lo, key + sizeof hi, sizeof lo);
	return (struct id128){.hi = be64toh(hi), .lo = be64toh(lo)};
}

void group_key(struct id128 id, uint32_t group, uint8_t key[GROUP_KEY_SIZE])
{
	id_key(id, key);
	group = htobe32(group);
	memcpy(key + ID_KEY_SIZE, &group, sizeof group);
}

int value_get(MDB_txn *txn, MDB_dbi dbi, const void *key, size_t key_size, MDB_val *ret)
{
	MDB_val k = {.mv_size = key_size, .mv_data = (void *)key};

	return lmdb_error(mdb_get(txn, dbi, &k, ret));
}

int value_put(
	MDB_txn *txn, MDB_dbi dbi, const void *key, size_t key_size, const void *bytes, size_t size)
{
	MDB_val k = {.mv_size = key_size, .mv_data = (void *)key};
	MDB_val v = {.mv_size = size, .mv_data = (void *)bytes};

	return lmdb_error(mdb_put(txn, dbi, &k, &v, 0));
}

int snapshot_begin(struct index *index, MDB_txn **ret)
{
	return lmdb_error(mdb_txn_begin(index->env, NULL, MDB_RDONLY, ret));
}

int value_read(struct index *index, MDB_dbi dbi, const void *key, size_t key_size,
	int (*take)(const MDB_val *value, void *arg), void *arg)
{
	WITHIN_LMDB(index);
	MDB_txn *txn;
	MDB_val value;
	int r = snapshot_begin(index, &txn);

	if (r < 0)
		return r;
	r = value_get(txn, dbi, key, key_size, &value);
	if (r == 0)
		r = take(&value, arg);
	mdb_txn_abort(txn);
	return r;
}

/*
 * A page of the map beyond the file's end would be SIGBUS to who reads it. A file that was cut gets
 * its length back, so that LMDB finds empty pages there and says that they are damaged. Also a
 * whole file may be too short: pages that were used and freed in one transaction are never written.
 */
static int cover_pages(MDB_env *env)
{
	MDB_envinfo info;
	MDB_stat page;
	struct stat st;
	off_t size;
	int fd, e = mdb_env_get_fd(env, &fd);

	if (!e)
		e = mdb_env_info(env, &info);
	if (!e)
		e = mdb_env_stat(env, &page);
	if (e)
		return lmdb_error(e);
	size = (off_t)(info.me_last_pgno + 1) * (off_t)page.ms_psize;
	if (fstat(fd, &st) < 0 || (st.st_size < size && ftruncate(fd, size) < 0))
		return -errno;
	return 0;
}

/* LMDB marks its other descriptors only. */
static int close_on_exec(MDB_env *env)
{
	int fd, e = mdb_env_get_fd(env, &fd);

	if (e)
		return lmdb_error(e);
	return fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 ? -errno : 0;
}

static int env_open(struct index *index, const char *dir, uint64_t map_bytes)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	int e, r, dead;

	if (map_bytes < page)
		return -EINVAL;
	index->map_bytes = map_bytes - map_bytes % page;
	r = pages_check(dir, index->map_bytes);
	if (r < 0)
		return r;
	e = mdb_env_create(&index->env);
	if (e)
		return lmdb_error(e);
	e = mdb_env_set_mapsize(index->env, index->map_bytes);
	if (!e)
		e = mdb_env_set_maxreaders(index->env, READERS_MAX);
	if (!e)
		e = mdb_env_set_maxdbs(index->env, 4);
	/* Readers are of any thread; the kernel's readahead of a random access map is waste. */
	if (!e)
		e = mdb_env_open(index->env, dir, MDB_NOTLS | MDB_NORDAHEAD, 0600);
	/* Slots of a daemon that was killed would keep old pages for ever. */
	if (!e)
		e = mdb_reader_check(index->env, &dead);
	r = lmdb_error(e);
	if (r == 0)
		r = close_on_exec(index->env);
	if (r == 0)
		r = cover_pages(index->env);
	return r;
}

static int env_why(int r, const char *dir, struct why *why)
{
	switch (r) {
	case -EPROTONOSUPPORT:
		return why_set(why, r,
			"index %s: was made by another version of LMDB; use the cachefs that made "
			"it, "
			"or remove the whole store to start with an empty one",
			dir);
	case -EUCLEAN:
		return why_set(why, r, "index %s: its data.mdb is damaged; check the disk", dir);
	default:
		return why_set(why, r,
			"index %s: can't be opened: %s; check its permissions, its disk and the "
			"room "
			"there",
			dir, strerror(-r));
	}
}

static int prepare(const char *dir, const char *boot_id_path, struct index **ret, struct why *why)
{
	struct index *index;

	if (guard_deaths(dir) >= GUARD_DEATHS_MAX)
		return why_set(why, -EUCLEAN,
			"index %s: daemons died while they read it: its data.mdb is damaged", dir);
	index = calloc(1, sizeof *index);
	if (!index)
		return why_set(why, -ENOMEM, "index %s: out of memory", dir);
	if ((size_t)snprintf(index->mark, sizeof index->mark, "%s/" GUARD_MARK, dir) >=
		sizeof index->mark) {
		free(index);
		return why_set(why, -ENAMETOOLONG, "index %s: the path is too long", dir);
	}
	boot_id_read(boot_id_path, index->boot_id);
	guard_install();
	*ret = index;
	return 0;
}

static int begin(struct index *index, const char *dir, uint64_t map_bytes, struct why *why)
{
	WITHIN_LMDB(index);
	int r = env_open(index, dir, map_bytes);

	return r < 0 ? env_why(r, dir, why) : meta_start(index, dir, why);
}

int index_open_booted(const char *dir, uint64_t map_bytes, const char *boot_id_path,
	struct index **ret, struct why *why)
{
	struct index *index = NULL;
	int r = prepare(dir, boot_id_path, &index, why);

	if (r < 0)
		return r;
	r = begin(index, dir, map_bytes, why);
	if (r < 0) {
		mdb_env_close(index->env);
		free(index);
		return r;
	}
	*ret = index;
	return 0;
}

int index_check(const char *dir, struct why *why)
{
	struct index index = {0};
	int e = mdb_env_create(&index.env), r;

	if (e)
		return env_why(lmdb_error(e), dir, why);
	e = mdb_env_set_maxdbs(index.env, 4);
	if (!e)
		e = mdb_env_open(index.env, dir, MDB_RDONLY | MDB_NOTLS, 0);
	r = lmdb_error(e);
	if (r == 0)
		r = meta_check(&index, dir, why);
	else if (r == -ENOENT)
		r = 0;
	else
		env_why(r, dir, why);
	mdb_env_close(index.env);
	return r;
}

int index_open(const char *dir, uint64_t map_bytes, struct index **ret, struct why *why)
{
	return index_open_booted(dir, map_bytes, "/proc/sys/kernel/random/boot_id", ret, why);
}

static int end(struct index *index)
{
	WITHIN_LMDB(index);
	int r = meta_stop(index);

	mdb_env_close(index->env);
	return r;
}

void index_close(struct index *index)
{
	if (!index)
		return;
	/* A stop that can't be written is an unclean one, which is the safe side. */
	if (!end(index))
		unlink(index->mark);
	free(index);
}

bool index_was_unclean(const struct index *index)
{
	return index->unclean;
}

uint64_t index_epoch(const struct index *index)
{
	return index->epoch;
}

static int take_object(const MDB_val *value, void *ret)
{
	return object_decode(value->mv_data, value->mv_size, ret);
}

int index_get_object(struct index *index, struct id128 id, struct index_object_record *ret)
{
	uint8_t key[ID_KEY_SIZE];

	id_key(id, key);
	return value_read(index, index->object, key, sizeof key, take_object, ret);
}

static int take_group(const MDB_val *value, void *ret)
{
	return group_decode(value->mv_data, value->mv_size, ret);
}

int index_get_group(struct index *index, struct id128 id, uint32_t group, struct index_group *ret)
{
	uint8_t key[GROUP_KEY_SIZE];

	group_key(id, group, key);
	return value_read(index, index->group, key, sizeof key, take_group, ret);
}

static int each_object(MDB_cursor *cursor,
	int (*each)(void *arg, struct id128 id, const struct index_object_record *record),
	void *arg)
{
	struct index_object_record record;
	MDB_val key, value;
	int e;

	while ((e = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0) {
		int r;

		if (key.mv_size != ID_KEY_SIZE)
			return -EUCLEAN;
		if (object_decode(value.mv_data, value.mv_size, &record) < 0)
			continue;
		{
			/* What it does is none of LMDB's. */
			WITHIN_LMDB(NULL);
			r = each(arg, id_of_key(key.mv_data), &record);
		}
		if (r)
			return r;
	}
	return e == MDB_NOTFOUND ? 0 : lmdb_error(e);
}

int index_each_object(struct index *index,
	int (*each)(void *arg, struct id128 id, const struct index_object_record *record),
	void *arg)
{
	WITHIN_LMDB(index);
	MDB_cursor *cursor;
	MDB_txn *txn;
	int r = snapshot_begin(index, &txn);

	if (r < 0)
		return r;
	r = lmdb_error(mdb_cursor_open(txn, index->object, &cursor));
	if (r == 0) {
		r = each_object(cursor, each, arg);
		mdb_cursor_close(cursor);
	}
	mdb_txn_abort(txn);
	return r;
}

static int totals_in(struct index *index, MDB_txn *txn, struct index_totals *ret)
{
	MDB_envinfo info;
	MDB_stat objects, env;
	uint64_t disk_bytes;
	int e, r = disk_total_get(index, txn, &disk_bytes);

	if (r < 0)
		return r;
	e = mdb_stat(txn, index->object, &objects);
	if (!e)
		e = mdb_env_info(index->env, &info);
	if (!e)
		e = mdb_env_stat(index->env, &env);
	if (e)
		return lmdb_error(e);
	*ret = (struct index_totals){
		.objects = objects.ms_entries,
		.disk_bytes = disk_bytes,
		.map_used_bytes = (uint64_t)(info.me_last_pgno + 1) * env.ms_psize,
		.map_bytes = info.me_mapsize,
	};
	return 0;
}

int index_totals(struct index *index, struct index_totals *ret)
{
	WITHIN_LMDB(index);
	MDB_txn *txn;
	int r = snapshot_begin(index, &txn);

	if (r < 0)
		return r;
	r = totals_in(index, txn, ret);
	mdb_txn_abort(txn);
	return r;
}
