#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "records.h"

struct copy {
	void *bytes;
	size_t size;
};

/* The blob without its sum, malloc'ed. */
static int take_copy(const MDB_val *value, void *ret)
{
	const uint8_t *bytes = value->mv_data;
	struct copy *copy = ret;

	if (record_verify(bytes, value->mv_size) < 0)
		return -EUCLEAN;
	copy->size = value->mv_size - RECORD_SUM_SIZE;
	copy->bytes = malloc(copy->size + 1); /* never of 0 bytes */
	if (!copy->bytes)
		return -ENOMEM;
	memcpy(copy->bytes, bytes + RECORD_SUM_SIZE, copy->size);
	return 0;
}

int index_get_listing(
	struct index *index, struct id128 directory, void **ret_bytes, size_t *ret_size)
{
	uint8_t key[ID_KEY_SIZE];
	struct copy copy;
	int r;

	id_key(directory, key);
	r = value_read(index, index->listing, key, sizeof key, take_copy, &copy);
	if (r < 0)
		return r;
	*ret_bytes = copy.bytes;
	*ret_size = copy.size;
	return 0;
}

static int put_listing(
	struct index_txn *txn, struct id128 directory, const struct iovec *parts, size_t n_parts)
{
	uint8_t key_bytes[ID_KEY_SIZE];
	MDB_val key = {.mv_size = sizeof key_bytes, .mv_data = key_bytes};
	MDB_val value;
	uint8_t *at;
	size_t size = 0;
	int r;

	for (size_t i = 0; i < n_parts; i++)
		size += parts[i].iov_len;
	value.mv_size = RECORD_SUM_SIZE + size;

	if (size > LISTING_SIZE_MAX)
		return -EFBIG;
	id_key(directory, key_bytes);
	/* Straight into LMDB's page: no second copy of what may be tens of MiB. */
	r = lmdb_error(mdb_put(txn->txn, txn->index->listing, &key, &value, MDB_RESERVE));
	if (r < 0)
		return r;
	at = (uint8_t *)value.mv_data + RECORD_SUM_SIZE;
	for (size_t i = 0; i < n_parts; i++) {
		if (parts[i].iov_len)
			memcpy(at, parts[i].iov_base, parts[i].iov_len);
		at += parts[i].iov_len;
	}
	record_seal(value.mv_data, value.mv_size);
	return 0;
}

int index_put_listing(
	struct index_txn *txn, struct id128 directory, const struct iovec *parts, size_t n_parts)
{
	WITHIN_LMDB(txn->index);

	return txn_failed(txn, put_listing(txn, directory, parts, n_parts));
}

static int listings_bytes(struct index_txn *txn, uint64_t *ret)
{
	MDB_stat stat;
	int e = mdb_stat(txn->txn, txn->index->listing, &stat);

	if (e)
		return lmdb_error(e);
	*ret = (stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages) *
	       (uint64_t)stat.ms_psize;
	return 0;
}

/* The listing whose key follows, round the end; keys are hashes, so that it is any. -ENOENT: there
 * is no other. */
static int delete_next(MDB_cursor *cursor, const uint8_t own[ID_KEY_SIZE])
{
	MDB_val key = {.mv_size = ID_KEY_SIZE, .mv_data = (void *)own}, value;
	int e = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);

	if (!e && !memcmp(key.mv_data, own, ID_KEY_SIZE))
		e = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
	if (e == MDB_NOTFOUND)
		e = mdb_cursor_get(cursor, &key, &value, MDB_FIRST);
	if (!e && !memcmp(key.mv_data, own, ID_KEY_SIZE))
		e = MDB_NOTFOUND;
	return lmdb_error(e ? e : mdb_cursor_del(cursor, 0));
}

static int trim_listings(struct index_txn *txn, struct id128 directory, uint64_t max_bytes)
{
	uint8_t own[ID_KEY_SIZE];
	MDB_cursor *cursor;
	uint64_t bytes = 0;
	int r = lmdb_error(mdb_cursor_open(txn->txn, txn->index->listing, &cursor));

	if (r < 0)
		return r;
	id_key(directory, own);
	while (!(r = listings_bytes(txn, &bytes)) && bytes > max_bytes) {
		r = delete_next(cursor, own);
		if (r < 0)
			break;
	}
	mdb_cursor_close(cursor);
	return r == -ENOENT ? 0 : r;
}

int index_trim_listings(struct index_txn *txn, struct id128 directory, uint64_t max_bytes)
{
	WITHIN_LMDB(txn->index);

	return txn_failed(txn, trim_listings(txn, directory, max_bytes));
}
