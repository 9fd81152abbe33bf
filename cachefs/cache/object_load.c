/*
 * What the index says of an object, and whether the store's file backs it. What doesn't fit is
 * forgotten, durably, before anything new is written under the object's id.
 */
#include "objects.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "chunks.h"
#include "space.h"
#include "store/store.h"
#include "whole.h"

void object_record(struct object *object, struct index_object_record *ret)
{
	check(lock_held(&object->lock));
	*ret = (struct index_object_record){
		.object =
			{
				.size_bytes = object->size_bytes,
				.disk_bytes = object->disk_bytes,
				.mtime_ns = object->mtime_ns,
				.opened_wall_ns = object->opened_wall_ns,
				.pinned_until_ns = object->pinned_until_ns,
				.ctime_ns = object->ctime_ns,
				.verified_epoch =
					object->verified ? index_epoch(object->cache->index) : 0,
				.n_chunks = object->n_chunks,
				.n_present = object->n_present,
				.complete = object->complete,
				.strong = object->version.strong,
			},
	};
	/* The name fits: object_open_start refuses longer ones. */
	memcpy(ret->name, object->name, strlen(object->name) + 1);
	memcpy(ret->version, object->version.text, sizeof ret->version);
}

/* Everything of the object goes out of the index, durably, but for its pin. */
static int forget_chunks(struct object *object, struct index_object_record *record)
{
	struct index_txn *txn;
	int r = index_begin(object->cache->index, &txn);

	if (r)
		return r;
	r = index_delete_object(txn, object->id);
	if (!r && record->object.pinned_until_ns) {
		record->object.disk_bytes = record->object.n_present = 0;
		record->object.ctime_ns = 0;
		record->object.complete = false;
		r = index_put_object(txn, object->id, record);
	}
	if (r) {
		index_abort(txn);
		return r;
	}
	return index_commit(txn);
}

/*
 * The record says what the file can't back. A file that is gone or of another length is forgotten,
 * before anything new is written under this id. One that could not be opened for now (no
 * descriptors, a disk that fails), or whose record stays, is let alone: chunks added to it would
 * revive what the record says, so in this life of the daemon the object is not kept.
 */
static void record_unbacked(struct object *object, struct index_object_record *record, int error)
{
	struct cache *cache = object->cache;
	uint64_t disk_bytes = record->object.disk_bytes;
	bool lost = error == -ENOENT || error == -EUCLEAN;

	log_warn(lost ? "store_file_bad" : "store_file_unreadable",
		"object=%s version=%s reason=%s", object->name, object->version.text,
		strerror(-error));
	/* A file that is gone was damaged by nobody: its eviction was cut off before the records
	 * went. */
	if (error == -EUCLEAN)
		atomic_fetch_add(&cache->counters.checksum_failures, 1);
	else if (!lost)
		atomic_fetch_add(&cache->counters.store_errors, 1);
	object->load_error = error;
	object->pinned_until_ns = record->object.pinned_until_ns;
	if (!lost || forget_chunks(object, record)) {
		object->unkept = true;
		return;
	}
	object->has_record = record->object.pinned_until_ns != 0;
	space_give(cache, disk_bytes);
	raw_remove(cache->store, object->id, &(uint64_t){0});
}

/*
 * Nobody can say what the file has, and the groups of such a record are not to be believed either:
 * they go, with the file. A record that can't be read for now may be right: the object is not kept
 * in this life of the daemon, as in record_unbacked.
 */
static void record_unread(struct object *object, int error)
{
	struct index_object_record nothing = {0};
	uint64_t freed;

	log_error("index_read_failed", "object=%s error=%s", object->name, strerror(-error));
	if (error != -EUCLEAN || forget_chunks(object, &nothing)) {
		object->unkept = true;
		return;
	}
	if (!raw_remove(object->cache->store, object->id, &freed))
		space_give(object->cache, freed);
}

/* What the file uses was more or less than the record says, as after a crash; whoever evicts the
 * object later counts by the record. */
static void correct_record(
	struct object *object, struct index_object_record *record, uint64_t disk_bytes)
{
	struct cache *cache = object->cache;
	uint64_t before = record->object.disk_bytes;
	struct index_txn *txn;
	int r = index_begin(cache->index, &txn);

	if (r)
		return;
	/* A pin may have come since. */
	r = index_txn_get_object(txn, object->id, record);
	if (!r) {
		record->object.disk_bytes = disk_bytes;
		r = index_put_object(txn, object->id, record);
	}
	if (r)
		index_abort(txn);
	else
		r = index_commit(txn);
	if (r)
		record->object.disk_bytes = before;
	else
		space_correct(cache, before, disk_bytes);
}

void object_load(struct object *object)
{
	struct cache *cache = object->cache;
	struct index_object_record record;
	struct raw_state state = {0};
	struct raw *raw = NULL;
	int r = index_get_object(cache->index, object->id, &record);

	if (r) {
		if (r != -ENOENT)
			record_unread(object, r);
		return;
	}
	if (record.object.n_present) {
		r = raw_open(cache->store, object->id, object->size_bytes, false, &raw);
		if (!r)
			r = raw_stat(raw, &state);
		if (r) {
			raw_close(raw);
			record_unbacked(object, &record, r);
			return;
		}
		if (record.object.disk_bytes != state.disk_bytes)
			correct_record(object, &record, state.disk_bytes);
	}
	lock_take(&object->lock);
	object->has_record = true;
	object->raw = raw;
	object->disk_bytes = record.object.disk_bytes;
	object->n_present = record.object.n_present;
	object->pinned_until_ns = record.object.pinned_until_ns;
	object->opened_wall_ns = record.object.opened_wall_ns;
	object->ctime_ns = record.object.ctime_ns;
	object->complete = object->was_whole = record.object.complete;
	/* A file that somebody wrote to while it was not open here is to be verified, also when the
	 * rest of it comes only now. */
	object->verified = !record.object.n_present ||
			   (record.object.verified_epoch == index_epoch(cache->index) &&
				   record.object.ctime_ns == state.ctime_ns);
	lock_drop(&object->lock);
}

int object_load_group(struct object *object, uint32_t n)
{
	struct index_group stored;
	struct group *group;
	bool known, has_record;
	int r;

	lock_take(&object->lock);
	known = object->groups[n] != NULL;
	has_record = object->has_record;
	lock_drop(&object->lock);
	if (known)
		return 0;
	group = calloc(1, sizeof *group);
	if (!group)
		return -ENOMEM;
	r = has_record ? index_get_group(object->cache->index, object->id, n, &stored) : -ENOENT;
	for (uint32_t i = 0; !r && i < INDEX_GROUP_CHUNKS; i++) {
		if (stored.present[i / 64] >> (i % 64) & 1)
			group->state[i] = CHUNK_PRESENT;
		group->sum[i] = stored.sum[i];
	}
	if (r && r != -ENOENT)
		log_error("index_read_failed", "object=%s error=%s", object->name, strerror(-r));
	lock_take(&object->lock);
	if (!object->groups[n]) {
		/* An index that can't be read is as good as an empty one: the bytes come from the
		 * origin again, and the next commit counts what there is. */
		object->complete = object->complete && (!r || r == -ENOENT);
		object->groups[n] = group;
		group = NULL;
	}
	lock_drop(&object->lock);
	free(group);
	return 0;
}
