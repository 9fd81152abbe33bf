/*
 * Commit: the one thread that makes chunks durable, in groups: data of each object, then one index
 * transaction for all.
 *
 * Invariant: nothing is in the index before raw_sync of its file returned.
 */
#include "commit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/work.h"
#include "chunks.h"
#include "index/index.h"
#include "objects.h"
#include "reads.h"
#include "space.h"
#include "whole.h"

/* A group is committed when it is this large or this old, or completes an object. */
#define COMMIT_BYTES (256u << 20)
#define COMMIT_NS    (200ull * NS_PER_MS)
/* So many new times of opening are brought to the index without waiting for a group. */
#define TOUCHED_MANY 512

static void group_by_object(struct list *chunks, struct list *batches)
{
	struct list *link;

	while ((link = list_pop(chunks))) {
		struct chunk *chunk = container_of(link, struct chunk, queued);
		struct batch *batch = &chunk->object->batch;

		if (!batch->object) {
			*batch = (struct batch){.object = object_ref(chunk->object)};
			list_init(&batch->chunks);
			list_append(batches, &batch->link);
		}
		if (!chunk->drop)
			batch->n_written++;
		list_append(&batch->chunks, &chunk->queued);
	}
}

static void batch_sync(struct batch *batch)
{
	struct object *object = batch->object;
	struct raw *raw;
	int r = 0;

	lock_take(&object->lock);
	raw = object->raw;
	lock_drop(&object->lock);
	if (batch->n_written) {
		check(raw);
		r = raw_sync(raw);
	}
	if (!r && raw)
		r = raw_stat(raw, &batch->state);
	batch->synced = !r;
	if (r)
		trouble_note(object->cache, "store_sync_failed", object->name, r);
}

/* A damaged group is an empty one. */
static int group_get(
	struct index_txn *txn, struct id128 id, uint32_t n, struct index_group *ret, bool *damaged)
{
	int r = index_txn_get_group(txn, id, n, ret);

	if (r && r != -ENOENT && r != -EUCLEAN)
		return r;
	if (r)
		*ret = (struct index_group){0};
	*damaged = *damaged || r == -EUCLEAN;
	return 0;
}

/* How many chunks the groups really say are present. */
static int count_present(struct index_txn *txn, const struct object *object, uint32_t *ret)
{
	uint32_t present = 0;
	bool damaged = false;

	for (uint32_t n = 0; n * INDEX_GROUP_CHUNKS < object->n_chunks; n++) {
		struct index_group group;
		int r = group_get(txn, object->id, n, &group, &damaged);

		if (r)
			return r;
		for (unsigned i = 0; i < INDEX_GROUP_CHUNKS / 64; i++)
			present += (uint32_t)__builtin_popcountll(group.present[i]);
	}
	*ret = present;
	return 0;
}

/* Puts the batch's chunks into the groups of the transaction, and counts. 0 or -errno. */
static int batch_put_groups(struct batch *batch, struct index_txn *txn, uint32_t *ret_present)
{
	struct id128 id = batch->object->id;
	struct index_group group;
	bool damaged = false;
	uint32_t loaded = UINT32_MAX, present = *ret_present;
	int r = 0;

	list_for_each (link, &batch->chunks) {
		struct chunk *chunk = container_of(link, struct chunk, queued);
		uint32_t n = chunk->index / INDEX_GROUP_CHUNKS,
			 i = chunk->index % INDEX_GROUP_CHUNKS;
		uint64_t bit = 1ull << (i % 64);

		if (!chunk->drop && !batch->synced)
			continue;
		if (n != loaded) {
			r = loaded == UINT32_MAX ? 0 : index_put_group(txn, id, loaded, &group);
			if (r)
				return r;
			r = group_get(txn, id, n, &group, &damaged);
			if (r)
				return r;
			loaded = n;
		}
		if (group.present[i / 64] & bit)
			present--;
		if (chunk->drop) {
			group.present[i / 64] &= ~bit;
			group.sum[i] = 0;
		} else {
			group.present[i / 64] |= bit;
			group.sum[i] = chunk->sum;
			present++;
		}
	}
	*ret_present = present;
	r = loaded == UINT32_MAX ? 0 : index_put_group(txn, id, loaded, &group);
	/* The count before had the damaged group's chunks in it. */
	return r || !damaged ? r : count_present(txn, batch->object, ret_present);
}

static int batch_put(struct batch *batch, struct index_txn *txn)
{
	struct object *object = batch->object;
	struct index_object_record record;
	int r;

	lock_take(&object->lock);
	object_record(object, &record);
	lock_drop(&object->lock);
	r = batch_put_groups(batch, txn, &record.object.n_present);
	if (r)
		return r;
	batch->n_present = record.object.n_present;
	batch->completes = batch->synced && record.object.n_present == object->n_chunks &&
			   batch->state.size_bytes == object->size_bytes;
	record.object.complete = batch->completes;
	if (batch->completes)
		record.object.disk_bytes = batch->state.disk_bytes;
	if (batch->synced && batch->n_written)
		record.object.ctime_ns = batch->state.ctime_ns;
	return index_put_object(txn, object->id, &record);
}

static int commit_index(struct cache *cache, struct list *batches)
{
	struct index_txn *txn;
	int r = index_begin(cache->index, &txn);

	if (r)
		return r;
	list_for_each (link, batches) {
		r = batch_put(container_of(link, struct batch, link), txn);
		if (r) {
			index_abort(txn);
			return r;
		}
	}
	return index_commit(txn);
}

/* The chunk after its group: error is that of the index. object.lock held. */
static void chunk_finish(struct chunk *chunk, int error, struct list *waiters)
{
	struct object *object = chunk->object;
	uint64_t bytes = chunk_disk_size(chunk);

	if (chunk->drop) {
		chunk_state_set(object, chunk->index, CHUNK_ABSENT);
		list_splice(waiters, &chunk->waiters);
		chunk_detach(chunk);
		object->pending_drops--;
		return;
	}
	/* Found bad since it was written: its drop is queued behind. */
	if (chunk_state_of(object, chunk->index) != CHUNK_WRITTEN)
		return;
	if (!error && object->batch.synced) {
		chunk_state_set(object, chunk->index, CHUNK_PRESENT);
		return;
	}
	/* What the disk or the index refused is as if it had never been written. */
	chunk_state_set(object, chunk->index, CHUNK_EVICTING);
	chunk_state_set(object, chunk->index, CHUNK_ABSENT);
	object->disk_bytes -= bytes < object->disk_bytes ? bytes : object->disk_bytes;
	space_give(object->cache, bytes);
}

static void batch_finish(struct batch *batch, int error)
{
	struct object *object = batch->object;
	struct list done, waiters;
	struct list *link;

	list_init(&done);
	list_init(&waiters);
	lock_take(&object->lock);
	if (!error) {
		object->has_record = true;
		object->n_present = batch->n_present;
		object->complete = batch->completes;
		object->was_whole |= batch->completes;
		if (batch->completes) {
			space_correct(object->cache, object->disk_bytes, batch->state.disk_bytes);
			object->disk_bytes = batch->state.disk_bytes;
		}
		if (batch->synced && batch->n_written)
			object->ctime_ns = batch->state.ctime_ns;
	}
	while ((link = list_pop(&batch->chunks))) {
		chunk_finish(container_of(link, struct chunk, queued), error, &waiters);
		list_append(&done, link);
	}
	batch->object = NULL;
	lock_drop(&object->lock);
	pieces_restart(&waiters);
	complete_look(object);
	while ((link = list_pop(&done)))
		chunk_free(container_of(link, struct chunk, queued));
	object_unref(object);
}

static void commit_group(struct cache *cache, struct list *chunks)
{
	struct list batches;
	struct list *link;
	int r;

	list_init(&batches);
	group_by_object(chunks, &batches);
	list_for_each (b, &batches)
		batch_sync(container_of(b, struct batch, link));
	r = commit_index(cache, &batches);
	if (r)
		trouble_note(cache, "index_write_failed", "", r);
	atomic_fetch_add(&cache->counters.commits, 1);
	while ((link = list_pop(&batches)))
		batch_finish(container_of(link, struct batch, link), r);
}

/* Brings the records' times of last open up to date. What fails is only a worse guess at eviction.
 */
void commit_touches(struct cache *cache)
{
	struct commit *commit = &cache->commit;
	struct index_txn *txn;
	size_t n;
	int r;

	lock_take(&commit->lock);
	n = commit->n_touched;
	lock_drop(&commit->lock);
	if (!n)
		return;
	if (index_begin(cache->index, &txn)) {
		lock_take(&commit->lock);
		commit->n_touched = 0;
		lock_drop(&commit->lock);
		return;
	}
	r = 0;
	lock_take(&commit->lock);
	while (!r && commit->n_touched) {
		struct index_object_record record;
		struct id128 id = commit->touched[--commit->n_touched].id;
		int64_t opened_wall_ns = commit->touched[commit->n_touched].opened_wall_ns;

		lock_drop(&commit->lock);
		r = index_txn_get_object(txn, id, &record);
		if (!r) {
			record.object.opened_wall_ns = opened_wall_ns;
			r = index_put_object(txn, id, &record);
		} else if (r == -ENOENT || r == -EUCLEAN) {
			r = 0;
		}
		lock_take(&commit->lock);
	}
	lock_drop(&commit->lock);
	if (r)
		index_abort(txn);
	else
		index_commit(txn);
}

/* Waits until there is a group worth committing, or many objects were opened. False: the end. */
static bool next_group(struct commit *commit, struct list *chunks)
{
	bool more;

	lock_take(&commit->lock);
	commit->ended = commit->begun;
	cond_broadcast(&commit->idle);
	while (list_empty(&commit->chunks) && !commit->ending && commit->n_touched < TOUCHED_MANY)
		cond_wait(&commit->wake, &commit->lock);
	while (!list_empty(&commit->chunks) && !commit->urgent && !commit->ending &&
		commit->bytes < COMMIT_BYTES &&
		!cond_wait_until(&commit->wake, &commit->lock, commit->oldest_ns + COMMIT_NS))
		;
	list_splice(chunks, &commit->chunks);
	commit->bytes = 0;
	commit->urgent = false;
	commit->begun++;
	more = !list_empty(chunks) || !commit->ending;
	lock_drop(&commit->lock);
	return more;
}

static void *commit_loop(void *arg)
{
	struct cache *cache = arg;
	struct list chunks;

	list_init(&chunks);
	while (next_group(&cache->commit, &chunks)) {
		if (!list_empty(&chunks))
			commit_group(cache, &chunks);
		commit_touches(cache);
	}
	return NULL;
}

void commit_chunk(struct cache *cache, struct chunk *chunk)
{
	struct commit *commit = &cache->commit;
	struct object *object = chunk->object;
	bool urgent, wake;

	lock_take(&object->lock);
	/* The chunk that may complete its object shouldn't make the next open wait. */
	urgent = chunk->drop || object->n_present + 1 >= object->n_chunks ||
		 chunk->index + 1 == object->n_chunks;
	lock_drop(&object->lock);
	lock_take(&commit->lock);
	wake = list_empty(&commit->chunks);
	if (wake)
		commit->oldest_ns = clock_now_ns();
	list_append(&commit->chunks, &chunk->queued);
	commit->bytes += chunk->size_bytes;
	wake = wake || commit->bytes >= COMMIT_BYTES || (urgent && !commit->urgent);
	commit->urgent = commit->urgent || urgent;
	/* Else the thread wakes by itself, when the oldest has waited its time. */
	if (wake)
		cond_signal(&commit->wake);
	lock_drop(&commit->lock);
}

void commit_touch(struct cache *cache, struct id128 id, int64_t opened_wall_ns)
{
	struct commit *commit = &cache->commit;

	lock_take(&commit->lock);
	if (commit->n_touched < sizeof commit->touched / sizeof commit->touched[0]) {
		commit->touched[commit->n_touched].id = id;
		commit->touched[commit->n_touched++].opened_wall_ns = opened_wall_ns;
	}
	if (commit->n_touched == TOUCHED_MANY)
		cond_signal(&commit->wake);
	lock_drop(&commit->lock);
}

void commit_flush(struct cache *cache)
{
	struct commit *commit = &cache->commit;
	uint64_t last;

	lock_take(&commit->lock);
	/* The group under way and, if anything is queued, the next: not all that others add after. */
	last = commit->begun + !list_empty(&commit->chunks);
	while (commit->ended < last) {
		commit->urgent = commit->urgent || !list_empty(&commit->chunks);
		cond_signal(&commit->wake);
		cond_wait(&commit->idle, &commit->lock);
	}
	lock_drop(&commit->lock);
}

int commit_start(struct cache *cache)
{
	struct commit *commit = &cache->commit;
	int r;

	lock_init(&commit->lock);
	cond_init(&commit->wake);
	cond_init(&commit->idle);
	list_init(&commit->chunks);
	r = thread_start(&commit->thread, "commit", commit_loop, cache);
	commit->started = !r;
	return r;
}

void commit_stop(struct cache *cache)
{
	struct commit *commit = &cache->commit;

	if (!commit->started)
		return;
	lock_take(&commit->lock);
	commit->ending = true;
	cond_signal(&commit->wake);
	lock_drop(&commit->lock);
	pthread_join(commit->thread, NULL);
	commit_touches(cache);
	commit->started = false;
}
