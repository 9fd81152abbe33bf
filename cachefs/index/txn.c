#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "records.h"

int index_begin(struct index *index, struct index_txn **ret)
{
	WITHIN_LMDB(index);
	struct index_txn *txn = calloc(1, sizeof *txn);
	int r;

	if (!txn)
		return -ENOMEM;
	txn->index = index;
	r = lmdb_error(mdb_txn_begin(index->env, NULL, 0, &txn->txn));
	if (r < 0) {
		free(txn);
		return r;
	}
	r = disk_total_get(index, txn->txn, &txn->disk_bytes);
	if (r < 0) {
		index_abort(txn);
		return r;
	}
	*ret = txn;
	return 0;
}

int index_commit(struct index_txn *txn)
{
	WITHIN_LMDB(txn->index);
	int r = txn->error;

	if (r == 0)
		r = disk_total_put(txn->index, txn->txn, txn->disk_bytes);
	if (r < 0) {
		index_abort(txn);
		return r;
	}
	r = lmdb_error(mdb_txn_commit(txn->txn));
	free(txn);
	return r;
}

void index_abort(struct index_txn *txn)
{
	WITHIN_LMDB(txn->index);
	mdb_txn_abort(txn->txn);
	free(txn);
}

int txn_failed(struct index_txn *txn, int r)
{
	if (r < 0 && txn->error == 0)
		txn->error = r;
	return r;
}

int index_txn_get_object(struct index_txn *txn, struct id128 id, struct index_object_record *ret)
{
	WITHIN_LMDB(txn->index);
	uint8_t key[ID_KEY_SIZE];
	MDB_val value;
	int r;

	id_key(id, key);
	r = value_get(txn->txn, txn->index->object, key, sizeof key, &value);
	return r < 0 ? r : object_decode(value.mv_data, value.mv_size, ret);
}

int index_txn_get_group(
	struct index_txn *txn, struct id128 id, uint32_t group, struct index_group *ret)
{
	WITHIN_LMDB(txn->index);
	uint8_t key[GROUP_KEY_SIZE];
	MDB_val value;
	int r;

	group_key(id, group, key);
	r = value_get(txn->txn, txn->index->group, key, sizeof key, &value);
	return r < 0 ? r : group_decode(value.mv_data, value.mv_size, ret);
}

/* The total anew, when a damaged record can't say what it had added to it. */
static int recount_disk(struct index_txn *txn)
{
	struct index_object_record record;
	MDB_cursor *cursor;
	MDB_val key, value;
	int e = mdb_cursor_open(txn->txn, txn->index->object, &cursor);

	if (e)
		return lmdb_error(e);
	txn->disk_bytes = 0;
	while ((e = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0) {
		if (object_decode(value.mv_data, value.mv_size, &record) == 0)
			txn->disk_bytes += record.object.disk_bytes;
	}
	mdb_cursor_close(cursor);
	return e == MDB_NOTFOUND ? 0 : lmdb_error(e);
}

/* What the record that is to be replaced adds to the total. *ret_damaged: nobody knows. */
static int old_disk(struct index_txn *txn, struct id128 id, uint64_t *ret, bool *ret_damaged)
{
	struct index_object_record old;
	int r = index_txn_get_object(txn, id, &old);

	*ret_damaged = r == -EUCLEAN;
	*ret = r == 0 ? old.object.disk_bytes : 0;
	return r == -ENOENT || r == -EUCLEAN ? 0 : r;
}

static int put_object(
	struct index_txn *txn, struct id128 id, const struct index_object_record *record)
{
	uint8_t key[ID_KEY_SIZE], bytes[OBJECT_SIZE_MAX];
	size_t size = object_encode(record, bytes);
	uint64_t before;
	bool damaged;
	int r = old_disk(txn, id, &before, &damaged);

	if (r < 0)
		return r;
	id_key(id, key);
	r = value_put(txn->txn, txn->index->object, key, sizeof key, bytes, size);
	if (r < 0)
		return r;
	if (damaged)
		return recount_disk(txn);
	txn->disk_bytes += record->object.disk_bytes - before;
	return 0;
}

int index_put_object(
	struct index_txn *txn, struct id128 id, const struct index_object_record *record)
{
	WITHIN_LMDB(txn->index);

	return txn_failed(txn, put_object(txn, id, record));
}

int index_put_group(
	struct index_txn *txn, struct id128 id, uint32_t group, const struct index_group *value)
{
	WITHIN_LMDB(txn->index);
	uint8_t key[GROUP_KEY_SIZE], bytes[GROUP_SIZE_MAX];
	size_t size = group_encode(value, bytes);

	group_key(id, group, key);
	return txn_failed(
		txn, value_put(txn->txn, txn->index->group, key, sizeof key, bytes, size));
}

static int delete_groups(struct index_txn *txn, struct id128 id)
{
	uint8_t first[GROUP_KEY_SIZE];
	MDB_cursor *cursor;
	MDB_val value;
	int e = mdb_cursor_open(txn->txn, txn->index->group, &cursor);

	if (e)
		return lmdb_error(e);
	group_key(id, 0, first);
	for (;;) {
		MDB_val key = {.mv_size = sizeof first, .mv_data = first};

		e = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
		if (e || key.mv_size != GROUP_KEY_SIZE ||
			memcmp(key.mv_data, first, ID_KEY_SIZE) != 0)
			break;
		e = mdb_cursor_del(cursor, 0);
		if (e)
			break;
	}
	mdb_cursor_close(cursor);
	return e == MDB_NOTFOUND ? 0 : lmdb_error(e);
}

static int delete_object(struct index_txn *txn, struct id128 id)
{
	uint8_t bytes[ID_KEY_SIZE];
	MDB_val key = {.mv_size = sizeof bytes, .mv_data = bytes};
	uint64_t before;
	bool damaged;
	int r = old_disk(txn, id, &before, &damaged);

	if (r < 0)
		return r;
	id_key(id, bytes);
	r = lmdb_error(mdb_del(txn->txn, txn->index->object, &key, NULL));
	if (r < 0 && r != -ENOENT)
		return r;
	r = delete_groups(txn, id);
	if (r < 0)
		return r;
	if (damaged)
		return recount_disk(txn);
	txn->disk_bytes -= before;
	return 0;
}

int index_delete_object(struct index_txn *txn, struct id128 id)
{
	WITHIN_LMDB(txn->index);

	return txn_failed(txn, delete_object(txn, id));
}
