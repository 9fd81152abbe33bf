/*
 * One chunk on its way: states and their transitions, into the store, and out of it.
 *
 *   1. absent -> fetching      fetch_start
 *   2. fetching, PHASE_FETCH   bytes come (fetch.c); waiters whose bytes are there are served
 *   3. fetching, PHASE_KEEP    chunk_keep: checksum, room, write; by a keep thread what may block
 *   4. fetching -> written     kept; the commit queue has it
 *      fetching -> absent      no room, the disk refused, or the fetch failed
 *   5. written -> present      commit.c, after data and index are durable
 *   6. written/present, PHASE_LOAD   chunk_load: read, checked, served
 *   7. written/present -> evicting   found bad; commit.c takes it out of the index
 *   8. evicting -> absent      and whoever waited begins at 1
 */
#include "chunks.h"

#include <errno.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "commit.h"
#include "objects.h"
#include "reads.h"
#include "resident.h"
#include "space.h"
#include "store/store.h"
#include "whole.h"

uint32_t chunk_size(const struct object *object, uint32_t chunk)
{
	uint64_t left = object->size_bytes - (uint64_t)chunk * CHUNK_SIZE;

	check(chunk < object->n_chunks);
	return left < CHUNK_SIZE ? (uint32_t)left : CHUNK_SIZE;
}

uint64_t chunk_disk_size(const struct chunk *chunk)
{
	return ((uint64_t)chunk->size_bytes + 4095) & ~4095ull;
}

static struct group *group_of(struct object *object, uint32_t chunk)
{
	struct group *group;

	check(lock_held(&object->lock));
	check(chunk < object->n_chunks);
	group = object->groups[chunk / INDEX_GROUP_CHUNKS];
	check(group);
	return group;
}

enum chunk_state chunk_state_of(struct object *object, uint32_t chunk)
{
	return group_of(object, chunk)->state[chunk % INDEX_GROUP_CHUNKS];
}

void chunk_state_set(struct object *object, uint32_t chunk, enum chunk_state to)
{
	static const bool allowed[5][5] = {
		[CHUNK_ABSENT] = {[CHUNK_FETCHING] = true},
		[CHUNK_FETCHING] = {[CHUNK_WRITTEN] = true, [CHUNK_ABSENT] = true},
		[CHUNK_WRITTEN] = {[CHUNK_PRESENT] = true, [CHUNK_EVICTING] = true},
		[CHUNK_PRESENT] = {[CHUNK_EVICTING] = true},
		[CHUNK_EVICTING] = {[CHUNK_ABSENT] = true},
	};
	struct group *group = group_of(object, chunk);
	uint8_t *state = &group->state[chunk % INDEX_GROUP_CHUNKS];

	check(allowed[*state][to]);
	*state = (uint8_t)to;
}

struct chunk *chunk_busy(struct object *object, uint32_t chunk)
{
	return group_of(object, chunk)->busy[chunk % INDEX_GROUP_CHUNKS];
}

struct chunk *chunk_begin(struct object *object, uint32_t index, enum chunk_phase phase)
{
	struct group *group = group_of(object, index);
	struct chunk *chunk = calloc(1, sizeof *chunk);
	struct cache *cache = object->cache;

	if (!chunk)
		return NULL;
	check(!group->busy[index % INDEX_GROUP_CHUNKS]);
	group->busy[index % INDEX_GROUP_CHUNKS] = chunk;
	chunk->object = object_ref(object);
	chunk->index = index;
	chunk->size_bytes = chunk_size(object, index);
	chunk->phase = phase;
	list_init(&chunk->waiters);
	list_init(&chunk->queued);
	lock_take(&cache->fetches_lock);
	cache->busy_chunks++;
	lock_drop(&cache->fetches_lock);
	return chunk;
}

void chunk_detach(struct chunk *chunk)
{
	struct group *group = group_of(chunk->object, chunk->index);

	check(group->busy[chunk->index % INDEX_GROUP_CHUNKS] == chunk);
	check(list_empty(&chunk->waiters));
	group->busy[chunk->index % INDEX_GROUP_CHUNKS] = NULL;
}

void chunk_drop(struct chunk *chunk)
{
	struct object *object = chunk->object;

	chunk_state_set(object, chunk->index, CHUNK_EVICTING);
	chunk->phase = PHASE_DROP;
	chunk->drop = true;
	object->complete = false;
	object->pending_drops++;
}

void chunk_free(struct chunk *chunk)
{
	struct cache *cache = chunk->object->cache;

	pool_buffer_unref(chunk->buffer);
	object_unref(chunk->object);
	free(chunk);
	lock_take(&cache->fetches_lock);
	if (--cache->busy_chunks == 0)
		cond_broadcast(&cache->fetches_gone);
	lock_drop(&cache->fetches_lock);
}

/* Keeps the buffer's bytes for the next reader, unless somebody waits for memory. */
static void leave_resident(struct chunk *chunk)
{
	struct object *object = chunk->object;
	struct cache *cache = object->cache;
	bool spent;

	if (pool_wanted(cache->pool))
		return;
	lock_take(&object->lock);
	spent = chunk->spent;
	lock_drop(&object->lock);
	resident_put(
		&cache->resident, object->id, chunk->index, pool_buffer_ref(chunk->buffer), spent);
	/* Who began to wait in between found no resident to take. */
	if (pool_wanted(cache->pool))
		resident_drop(&cache->resident, object->id, chunk->index);
}

/* --- into the store --- */

/* Phase KEEP ends without the store having the chunk: it was only passing by. */
static void keep_failed(struct chunk *chunk)
{
	struct object *object = chunk->object;

	leave_resident(chunk);
	if (!chunk->again)
		atomic_fetch_add(&object->cache->counters.uncached_bytes, chunk->size_bytes);
	lock_take(&object->lock);
	chunk_state_set(object, chunk->index, CHUNK_ABSENT);
	chunk_detach(chunk);
	lock_drop(&object->lock);
	chunk_free(chunk);
}

static void kept(struct ring_io *io, int result)
{
	struct chunk *chunk = container_of(io, struct chunk, io);
	struct object *object = chunk->object;
	struct cache *cache = object->cache;

	if (result != (int)chunk->size_bytes) {
		if (result == -ENOSPC || result == -EDQUOT) {
			space_refused(cache);
		} else {
			trouble_note(cache, "store_write_failed", object->name,
				result < 0 ? result : -EIO);
		}
		space_give(cache, chunk_disk_size(chunk));
		keep_failed(chunk);
		return;
	}
	atomic_fetch_add(&cache->counters.written_bytes, chunk->size_bytes);
	leave_resident(chunk);
	lock_take(&object->lock);
	object->groups[chunk->index / INDEX_GROUP_CHUNKS]->sum[chunk->index % INDEX_GROUP_CHUNKS] =
		chunk->sum;
	object->disk_bytes += chunk_disk_size(chunk);
	chunk_state_set(object, chunk->index, CHUNK_WRITTEN);
	chunk_detach(chunk);
	lock_drop(&object->lock);
	pool_buffer_unref(chunk->buffer);
	chunk->buffer = NULL;
	commit_chunk(cache, chunk);
}

/* Its room is taken. */
static void keep_in(struct chunk *chunk, struct raw *raw)
{
	uint64_t offset = (uint64_t)chunk->index * CHUNK_SIZE;

	chunk->io = (struct ring_io){
		.op = RING_WRITE,
		.fd = raw_fd(raw, offset, chunk->size_bytes),
		.bytes = chunk->buffer->bytes,
		.size_bytes = chunk->size_bytes,
		.offset = offset,
		.done = kept,
	};
	ring_submit(chunk->object->cache->ring, &chunk->io);
}

static void keep_run(struct job *job)
{
	struct chunk *chunk = container_of(job, struct chunk, job);
	struct object *object = chunk->object;
	struct cache *cache = object->cache;
	struct raw *raw;

	if (trouble_forbids_writes(cache) || !space_take(cache, chunk_disk_size(chunk))) {
		keep_failed(chunk);
		return;
	}
	raw = object_make_raw(object);
	if (!raw) {
		space_give(cache, chunk_disk_size(chunk));
		keep_failed(chunk);
		return;
	}
	keep_in(chunk, raw);
}

/* False: something has to be made, evicted or asked for first, which blocks. */
static bool keep_at_once(struct chunk *chunk)
{
	struct object *object = chunk->object;
	struct cache *cache = object->cache;
	struct raw *raw;

	lock_take(&object->lock);
	raw = object->raw;
	lock_drop(&object->lock);
	if (!raw || trouble_forbids_writes(cache) ||
		!space_take_at_once(cache, chunk_disk_size(chunk)))
		return false;
	keep_in(chunk, raw);
	return true;
}

void chunk_keep(struct chunk *chunk)
{
	chunk->sum = hash64(chunk->buffer->bytes, chunk->size_bytes);
	if (!chunk->again)
		pool_buffer_fetched(chunk->buffer);
	if (keep_at_once(chunk))
		return;
	chunk->job.run = keep_run;
	work_post(chunk->object->cache->keeps, &chunk->job);
}

struct chunk *chunk_keep_again(struct object *object, uint32_t index, struct pool_buffer *buffer)
{
	struct chunk *chunk;

	check(lock_held(&object->lock));
	if (object->unkept || trouble_forbids_writes(object->cache) ||
		!space_has_hope(object->cache))
		return NULL;
	chunk = chunk_begin(object, index, PHASE_KEEP);
	if (!chunk)
		return NULL;
	chunk_state_set(object, index, CHUNK_FETCHING);
	chunk->buffer = pool_buffer_ref(buffer);
	chunk->filled = chunk->size_bytes;
	chunk->again = true;
	return chunk;
}

/* --- out of the store --- */

/* The chunk's bytes in the store are not what they were: it goes out of the index, then its waiters
 * fetch it. */
static void load_failed(struct chunk *chunk, const char *why)
{
	struct object *object = chunk->object;
	struct list waiters;
	bool gone;

	log_warn("chunk_bad", "object=%s version=%s chunk=%u reason=%s", object->name,
		object->version.text, chunk->index, why);
	atomic_fetch_add(&object->cache->counters.checksum_failures, 1);
	pool_buffer_unref(chunk->buffer);
	chunk->buffer = NULL;
	list_init(&waiters);
	lock_take(&object->lock);
	/* Its commit may have failed meanwhile, which already took it back. */
	gone = chunk_state_of(object, chunk->index) == CHUNK_ABSENT;
	if (gone) {
		list_splice(&waiters, &chunk->waiters);
		chunk_detach(chunk);
	} else {
		chunk_drop(chunk);
	}
	lock_drop(&object->lock);
	if (gone) {
		pieces_restart(&waiters);
		chunk_free(chunk);
	} else {
		commit_chunk(object->cache, chunk);
	}
}

static void loaded(struct ring_io *io, int result)
{
	struct chunk *chunk = container_of(io, struct chunk, io);
	struct object *object = chunk->object;
	struct list waiters;

	if (result < 0)
		trouble_note(object->cache, "store_read_failed", object->name, result);
	if (result < (int)chunk->size_bytes) {
		load_failed(chunk, result < 0 ? strerror(-result) : "file is short");
		return;
	}
	if (hash64(chunk->buffer->bytes, chunk->size_bytes) != chunk->sum) {
		load_failed(chunk, "checksum differs");
		return;
	}
	leave_resident(chunk);
	list_init(&waiters);
	lock_take(&object->lock);
	list_splice(&waiters, &chunk->waiters);
	chunk_detach(chunk);
	lock_drop(&object->lock);
	pieces_ready(&waiters, chunk->buffer);
	chunk_free(chunk);
}

static void load_with(struct chunk *chunk, struct pool_buffer *buffer)
{
	struct object *object = chunk->object;
	uint64_t offset = (uint64_t)chunk->index * CHUNK_SIZE;
	/* O_DIRECT reads whole blocks; the end of the file cuts them. */
	uint32_t size_bytes = (chunk->size_bytes + 4095) & ~4095u;
	struct raw *raw;

	chunk->buffer = buffer;
	lock_take(&object->lock);
	raw = object->raw;
	lock_drop(&object->lock);
	check(raw);
	chunk->io = (struct ring_io){
		.op = RING_READ,
		.fd = raw_fd(raw, offset, size_bytes),
		.bytes = buffer->bytes,
		.size_bytes = size_bytes,
		.offset = offset,
		.done = loaded,
	};
	ring_submit(object->cache->ring, &chunk->io);
}

static void load_got(struct pool_waiter *wait, struct pool_buffer *buffer)
{
	load_with(container_of(wait, struct chunk, wait), buffer);
}

void chunk_load(struct chunk *chunk)
{
	struct cache *cache = chunk->object->cache;
	struct pool_buffer *buffer = buffer_get(cache, POOL_READ, NULL);

	if (buffer) {
		load_with(chunk, buffer);
		return;
	}
	chunk->wait = (struct pool_waiter){.use = POOL_READ, .got = load_got};
	buffer_wait(cache, &chunk->wait);
}
