/* meta: what the index says of itself: its format, how it was left, and its totals. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "internal.h"
#include "records.h"

#define FORMAT 1u

#define STATE_KEY  "state"
#define STATE_SIZE (RECORD_SUM_SIZE + 4 + 4 + 8 + BOOT_ID_SIZE)
#define DISK_KEY   "disk"
#define DISK_SIZE  (RECORD_SUM_SIZE + 8)

struct state {
	uint32_t format;
	bool clean;
	uint64_t epoch;
	uint8_t boot_id[BOOT_ID_SIZE];
};

void boot_id_read(const char *path, uint8_t ret[BOOT_ID_SIZE])
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || read(fd, ret, BOOT_ID_SIZE) != BOOT_ID_SIZE)
		memset(ret, 0, BOOT_ID_SIZE);
}

static int state_get(struct index *index, MDB_txn *txn, struct state *ret)
{
	const uint8_t *at;
	MDB_val value;
	int r = value_get(txn, index->meta, STATE_KEY, strlen(STATE_KEY), &value);

	if (r < 0)
		return r;
	if (record_verify(value.mv_data, value.mv_size) < 0 || value.mv_size < RECORD_SUM_SIZE + 4)
		return -EUCLEAN;
	at = (const uint8_t *)value.mv_data + RECORD_SUM_SIZE;
	ret->format = get_u32(&at);
	/* What follows is ours to read only in our own format. */
	if (ret->format != FORMAT)
		return -EPROTONOSUPPORT;
	if (value.mv_size != STATE_SIZE)
		return -EUCLEAN;
	ret->clean = get_u32(&at) != 0;
	ret->epoch = get_u64(&at);
	memcpy(ret->boot_id, at, BOOT_ID_SIZE);
	return 0;
}

static int state_put(struct index *index, MDB_txn *txn, bool clean)
{
	uint8_t bytes[STATE_SIZE];
	uint8_t *at = bytes + RECORD_SUM_SIZE;

	put_u32(&at, FORMAT);
	put_u32(&at, clean);
	put_u64(&at, index->epoch);
	memcpy(at, index->boot_id, BOOT_ID_SIZE);
	record_seal(bytes, sizeof bytes);
	return value_put(txn, index->meta, STATE_KEY, strlen(STATE_KEY), bytes, sizeof bytes);
}

int disk_total_get(struct index *index, MDB_txn *txn, uint64_t *ret)
{
	const uint8_t *at;
	MDB_val value;
	int r = value_get(txn, index->meta, DISK_KEY, strlen(DISK_KEY), &value);

	if (r < 0)
		return r == -ENOENT ? -EUCLEAN : r;
	if (value.mv_size != DISK_SIZE || record_verify(value.mv_data, value.mv_size) < 0)
		return -EUCLEAN;
	at = (const uint8_t *)value.mv_data + RECORD_SUM_SIZE;
	*ret = get_u64(&at);
	return 0;
}

int disk_total_put(struct index *index, MDB_txn *txn, uint64_t total)
{
	uint8_t bytes[DISK_SIZE];
	uint8_t *at = bytes + RECORD_SUM_SIZE;

	put_u64(&at, total);
	record_seal(bytes, sizeof bytes);
	return value_put(txn, index->meta, DISK_KEY, strlen(DISK_KEY), bytes, sizeof bytes);
}

/* True when the machine, not only the daemon, went down since the state was written: what was in
 * memory then is lost. An unknown boot is another one. */
static bool machine_went_down(const struct index *index, const struct state *state)
{
	static const uint8_t unknown[BOOT_ID_SIZE];

	if (state->clean)
		return false;
	return memcmp(index->boot_id, unknown, BOOT_ID_SIZE) == 0 ||
	       memcmp(index->boot_id, state->boot_id, BOOT_ID_SIZE) != 0;
}

/* An environment that has anything but no state of ours has lost it. */
static int open_meta(struct index *index, MDB_txn *txn)
{
	MDB_stat stat;
	MDB_dbi main;
	int e = mdb_dbi_open(txn, "meta", 0, &index->meta);

	if (e != MDB_NOTFOUND)
		return lmdb_error(e);
	e = mdb_dbi_open(txn, NULL, 0, &main);
	if (!e)
		e = mdb_stat(txn, main, &stat);
	if (e)
		return lmdb_error(e);
	if (stat.ms_entries > 0)
		return -EUCLEAN;
	e = mdb_dbi_open(txn, "meta", MDB_CREATE, &index->meta);
	if (e)
		return lmdb_error(e);
	index->unclean = true;
	index->epoch = 1; /* 0 is "never verified" in the objects' records */
	return disk_total_put(index, txn, 0);
}

static int open_others(struct index *index, MDB_txn *txn)
{
	int e = mdb_dbi_open(txn, "object", MDB_CREATE, &index->object);

	if (!e)
		e = mdb_dbi_open(txn, "group", MDB_CREATE, &index->group);
	if (!e)
		e = mdb_dbi_open(txn, "listing", MDB_CREATE, &index->listing);
	return lmdb_error(e);
}

static int start_in(struct index *index, MDB_txn *txn)
{
	struct state state;
	uint64_t disk_bytes;
	int r = open_meta(index, txn);

	if (r < 0)
		return r;
	if (index->epoch == 0) {
		r = state_get(index, txn, &state);
		if (r < 0)
			return r == -ENOENT ? -EUCLEAN : r;
		/* Every write will need it. */
		r = disk_total_get(index, txn, &disk_bytes);
		if (r < 0)
			return r;
		index->unclean = !state.clean;
		index->epoch = state.epoch + (machine_went_down(index, &state) ? 1 : 0);
	}
	r = open_others(index, txn);
	if (r < 0)
		return r;
	return state_put(index, txn, false);
}

static int start(struct index *index)
{
	MDB_txn *txn;
	int r = lmdb_error(mdb_txn_begin(index->env, NULL, 0, &txn));

	if (r < 0)
		return r;
	r = start_in(index, txn);
	if (r < 0) {
		mdb_txn_abort(txn);
		return r;
	}
	return lmdb_error(mdb_txn_commit(txn));
}

static int meta_why(int r, const char *dir, struct why *why)
{
	if (r == -EPROTONOSUPPORT)
		return why_set(why, r,
			"index %s: was made by another version of cachefs, this one knows format "
			"%u; "
			"use that version, or remove the whole store to start with an empty one",
			dir, FORMAT);
	if (r == -EUCLEAN)
		return why_set(why, r, "index %s: is damaged; check the disk", dir);
	return why_set(why, r, "index %s: can't be used: %s; check the disk and the room there",
		dir, strerror(-r));
}

int meta_start(struct index *index, const char *dir, struct why *why)
{
	int r = start(index);

	return r < 0 ? meta_why(r, dir, why) : 0;
}

int meta_check(struct index *index, const char *dir, struct why *why)
{
	struct state state;
	MDB_txn *txn;
	int e = mdb_txn_begin(index->env, NULL, MDB_RDONLY, &txn);
	int r = lmdb_error(e);

	if (e)
		return meta_why(r, dir, why);
	e = mdb_dbi_open(txn, "meta", 0, &index->meta);
	/* A new one, in which nothing is written yet. */
	r = e == MDB_NOTFOUND ? 0 : e ? lmdb_error(e) : state_get(index, txn, &state);
	mdb_txn_abort(txn);
	return r < 0 ? meta_why(r, dir, why) : 0;
}

int meta_stop(struct index *index)
{
	MDB_txn *txn;
	int r = lmdb_error(mdb_txn_begin(index->env, NULL, 0, &txn));

	if (r < 0)
		return r;
	r = state_put(index, txn, true);
	if (r < 0) {
		mdb_txn_abort(txn);
		return r;
	}
	return lmdb_error(mdb_txn_commit(txn));
}
