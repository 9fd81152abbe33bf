#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "records.h"

/* A copy of the blob without its sum, malloc'ed. */
static int copy_listing(const MDB_val *value, void **ret_bytes, size_t *ret_size)
{
	const uint8_t *bytes = value->mv_data;
	size_t size;
	void *copy;

	if (record_verify(bytes, value->mv_size) < 0)
		return -EUCLEAN;
	size = value->mv_size - RECORD_SUM_SIZE;
	copy = malloc(size + 1); /* never of 0 bytes */
	if (!copy)
		return -ENOMEM;
	memcpy(copy, bytes + RECORD_SUM_SIZE, size);
	*ret_bytes = copy;
	*ret_size = size;
	return 0;
}

int index_get_listing(
	struct index *index, struct id128 directory, void **ret_bytes, size_t *ret_size)
{
	uint8_t key[ID_KEY_SIZE];
	MDB_txn *txn;
	MDB_val value;
	int r = snapshot_begin(index, &txn);

	if (r < 0)
		return r;
	id_key(directory, key);
	r = value_get(txn, index->listing, key, sizeof key, &value);
	if (r == 0)
		r = copy_listing(&value, ret_bytes, ret_size);
	mdb_txn_abort(txn);
	return r;
}

static int put_listing(
	struct index_txn *txn, struct id128 directory, const void *bytes, size_t size)
{
	uint8_t key_bytes[ID_KEY_SIZE];
	MDB_val key = {.mv_size = sizeof key_bytes, .mv_data = key_bytes};
	MDB_val value = {.mv_size = RECORD_SUM_SIZE + size};
	int r;

	if (size > LISTING_SIZE_MAX)
		return -EFBIG;
	id_key(directory, key_bytes);
	/* Straight into LMDB's page: no second copy of what may be tens of MiB. */
	r = lmdb_error(mdb_put(txn->txn, txn->index->listing, &key, &value, MDB_RESERVE));
	if (r < 0)
		return r;
	if (size > 0)
		memcpy((uint8_t *)value.mv_data + RECORD_SUM_SIZE, bytes, size);
	record_seal(value.mv_data, value.mv_size);
	return 0;
}

int index_put_listing(struct index_txn *txn, struct id128 directory, const void *bytes, size_t size)
{
	return txn_failed(txn, put_listing(txn, directory, bytes, size));
}

int index_delete_listing(struct index_txn *txn, struct id128 directory)
{
	uint8_t bytes[ID_KEY_SIZE];
	MDB_val key = {.mv_size = sizeof bytes, .mv_data = bytes};
	int r;

	id_key(directory, bytes);
	r = lmdb_error(mdb_del(txn->txn, txn->index->listing, &key, NULL));
	return r == -ENOENT ? 0 : txn_failed(txn, r);
}
