/* What commands ask of one version: its state, and pins. */

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "commit.h"
#include "evict.h"
#include "index/index.h"
#include "objects.h"
#include "usage.h"
#include "whole.h"

static int name_and_id(const struct origin *origin, const char *path,
	const struct origin_attr *attr, char name[INDEX_NAME_MAX], struct id128 *ret)
{
	int r = origin_object_name(origin, path, name, INDEX_NAME_MAX);

	if (!r)
		object_id(name, &attr->version, attr->size_bytes, ret);
	return r;
}

int cache_object_status(struct cache *cache, const struct origin *origin, const char *path,
	const struct origin_attr *attr, struct object_status *ret)
{
	struct index_object_record record;
	char name[INDEX_NAME_MAX];
	struct object *object;
	struct id128 id;
	int r = name_and_id(origin, path, attr, name, &id);

	if (r)
		return r;
	object = object_find(cache, id);
	if (object) {
		lock_take(&object->lock);
		object_record(object, &record);
		lock_drop(&object->lock);
		object_unref(object);
	} else {
		r = index_get_object(cache->index, id, &record);
		if (r && r != -ENOENT)
			return r;
	}
	*ret = (struct object_status){.size_bytes = attr->size_bytes, .warm = !attr->size_bytes};
	if (r)
		return 0;
	ret->cached_bytes = usage_of_object(&record.object);
	ret->disk_bytes = record.object.disk_bytes;
	ret->warm = record.object.complete &&
		    (!record.object.n_chunks ||
			    record.object.verified_epoch == index_epoch(cache->index));
	ret->pinned_until_ns = record.object.pinned_until_ns;
	ret->pinned = ret->pinned_until_ns > clock_wall_ns();
	return 0;
}

/* The record of the transaction, or a new one of a version that nothing was cached of. */
static int record_get(struct index_txn *txn, struct id128 id, const char *name,
	const struct origin_attr *attr, struct index_object_record *ret)
{
	int r = index_txn_get_object(txn, id, ret);

	if (r != -ENOENT)
		return r;
	*ret = (struct index_object_record){
		.object =
			{
				.size_bytes = attr->size_bytes,
				.mtime_ns = attr->mtime_ns,
				.n_chunks = (uint32_t)((attr->size_bytes + CHUNK_SIZE - 1) /
						       CHUNK_SIZE),
				.complete = !attr->size_bytes,
				.strong = attr->version.strong,
			},
	};
	memcpy(ret->name, name, strlen(name) + 1);
	memcpy(ret->version, attr->version.text, sizeof ret->version);
	return 0;
}

/* Ends the transaction. */
static int put_pin(struct index_txn *txn, struct object *object, const char *name,
	const struct origin_attr *attr, int64_t until_ns)
{
	struct index_object_record record;
	int64_t before_ns;
	bool had_record, nothing = false; /* the record would say nothing any more */
	int r = record_get(txn, object->id, name, attr, &record);

	if (!r) {
		record.object.pinned_until_ns = until_ns;
		nothing = !until_ns && !record.object.n_present && !record.object.disk_bytes;
		r = nothing ? index_delete_object(txn, object->id)
			    : index_put_object(txn, object->id, &record);
	}
	if (r) {
		index_abort(txn);
		return r;
	}
	lock_take(&object->lock);
	before_ns = object->pinned_until_ns;
	had_record = object->has_record;
	object->pinned_until_ns = until_ns;
	object->has_record = !nothing;
	lock_drop(&object->lock);
	r = index_commit(txn);
	if (r) {
		lock_take(&object->lock);
		object->pinned_until_ns = before_ns;
		object->has_record = had_record;
		lock_drop(&object->lock);
	}
	return r;
}

int cache_object_pin(struct cache *cache, const struct origin *origin, const char *path,
	const struct origin_attr *attr, int64_t until_ns)
{
	char name[INDEX_NAME_MAX];
	struct object *object;
	struct index_txn *txn;
	struct id128 id;
	int r = name_and_id(origin, path, attr, name, &id);

	if (r)
		return r;
	/* Open, so that nobody evicts it meanwhile, and that the pin gets into memory within the
	 * transaction: a commit that comes later writes what stands there. */
	r = object_open_wait(cache, name, attr, &object);
	if (r)
		return r;
	r = index_begin(cache->index, &txn);
	if (!r)
		r = put_pin(txn, object, name, attr, until_ns);
	object_unref(object);
	return r;
}

int cache_object_evict(struct cache *cache, const struct origin *origin, const char *path,
	const struct origin_attr *attr, uint64_t *ret_freed_bytes)
{
	char name[INDEX_NAME_MAX];
	struct id128 id;
	int r = name_and_id(origin, path, attr, name, &id);

	if (r)
		return r;
	*ret_freed_bytes = 0;
	return evict_object(cache, id, ret_freed_bytes);
}
