/*
 * Fetch: one range GET that covers a run of absent chunks of an object. Bytes go from the socket
 * into pool buffers, taken one chunk at a time when its first byte arrives, and from there to
 * waiting readers and to the store.
 */
#include "fetch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "chunks.h"
#include "complete.h"
#include "objects.h"
#include "reads.h"
#include "resident.h"
#include "whole.h"

/* A part: large enough that requests cost nothing, small enough that several share a link. */
#define PART_CHUNKS 16u
/* And of an origin whose connections become slow. */
#define PART_CHUNKS_AGING 2u

struct fetch {
	struct origin_get get;  /* its priority: object.lock */
	bool started;           /* object.lock */
	bool unpaced;           /* object.lock; another volume's reader waits for it */
	struct list in_fetches; /* cache.fetches_lock */
	struct object *object;
	struct completion *completion; /* whose part it is, or NULL; cache.fetches_lock */
	_Atomic bool awaited;          /* a reader came to wait for it */
	char *path;
	uint32_t first, count;
	uint32_t next; /* of count: the chunk that bytes go to; engine thread */
	uint64_t
		since_ns; /* when its first bytes came, or the chunk before was full; engine thread */
	struct chunk *chunks[PART_CHUNKS];
	struct pool_waiter wait;
	struct pool_buffer *spare; /* object.lock */
	bool waiting;              /* object.lock; `wait` is queued or being served */
	int error;                 /* what it ended with */
	bool finished; /* object.lock; done came while waiting: whoever is later frees */
	bool over;     /* cache.fetches_lock; done came: nothing may be asked of `get` any more */
	bool unwanted; /* cache.fetches_lock; its completion was cancelled */
};

static void fetch_free(struct fetch *fetch)
{
	struct cache *cache = fetch->object->cache;
	struct completion *completion;

	pool_buffer_unref(fetch->spare);
	object_unref(fetch->object);
	origin_unref(fetch->get.origin);
	lock_take(&cache->fetches_lock);
	completion = fetch->completion;
	fetch->completion = NULL;
	lock_drop(&cache->fetches_lock);
	if (completion)
		complete_part_ended(completion, fetch->error);
	lock_take(&cache->fetches_lock);
	list_remove(&fetch->in_fetches);
	if (list_empty(&cache->fetches))
		cond_broadcast(&cache->fetches_gone);
	lock_drop(&cache->fetches_lock);
	free(fetch->path);
	free(fetch);
}

static void got_buffer(struct pool_waiter *wait, struct pool_buffer *buffer)
{
	struct fetch *fetch = container_of(wait, struct fetch, wait);
	struct object *object = fetch->object;
	bool finished;

	lock_take(&object->lock);
	fetch->spare = buffer;
	fetch->waiting = false;
	finished = fetch->finished;
	/* Under the lock: done takes it first, so the request can't be freed meanwhile. */
	if (!finished)
		origin_get_resume(&fetch->get);
	lock_drop(&object->lock);
	if (finished)
		fetch_free(fetch);
}

/* The buffer for the current chunk; NULL: wait, got_buffer resumes. */
static struct pool_buffer *take_buffer(struct fetch *fetch)
{
	struct object *object = fetch->object;
	struct pool_buffer *buffer;

	lock_take(&object->lock);
	buffer = fetch->spare;
	fetch->spare = NULL;
	lock_drop(&object->lock);
	if (buffer)
		return buffer;
	buffer = buffer_get(object->cache, POOL_FETCH, origin_share(fetch->get.origin));
	if (buffer)
		return buffer;
	lock_take(&object->lock);
	if (!fetch->waiting) {
		fetch->waiting = true;
		fetch->wait = (struct pool_waiter){.use = POOL_FETCH,
			.share = origin_share(fetch->get.origin),
			.got = got_buffer};
	} else {
		lock_drop(&object->lock);
		return NULL;
	}
	lock_drop(&object->lock);
	buffer_wait(object->cache, &fetch->wait);
	return NULL;
}

/* Moves the waiters that need no more than `filled` bytes to ready. */
static void collect_ready(struct chunk *chunk, struct list *ready)
{
	check(lock_held(&chunk->object->lock));
	list_for_each_safe (link, after, &chunk->waiters) {
		struct read_piece *piece = container_of(link, struct read_piece, link);

		if (piece->to <= chunk->filled) {
			list_remove(link);
			list_append(ready, link);
		}
	}
}

/* The current chunk is full. Concurrent GETs of the object may overwrite each other's word. */
static void note_pace(struct fetch *fetch)
{
	_Atomic uint64_t *chunk_ns = &fetch->object->chunk_ns;
	uint64_t now = clock_now_ns(), took_ns = now - fetch->since_ns, before;

	before = atomic_load(chunk_ns);
	fetch->since_ns = now;
	atomic_store(chunk_ns, before ? (before * 7 + took_ns) / 8 : took_ns);
}

/* Bytes of the current chunk; it has a buffer. Returns how many it took. */
static size_t fill(struct fetch *fetch, struct chunk *chunk, const uint8_t *bytes, size_t n)
{
	struct object *object = fetch->object;
	struct list ready;
	bool full;

	if (n > chunk->size_bytes - chunk->filled)
		n = chunk->size_bytes - chunk->filled;
	memcpy(chunk->buffer->bytes + chunk->filled, bytes, n);
	list_init(&ready);
	lock_take(&object->lock);
	chunk->filled += (uint32_t)n;
	collect_ready(chunk, &ready);
	full = chunk->filled == chunk->size_bytes;
	if (full) {
		chunk->phase = PHASE_KEEP;
		chunk->fetch = NULL;
	}
	lock_drop(&object->lock);
	/* Readers first: the checksum takes a moment. */
	pieces_ready(&ready, chunk->buffer);
	if (full) {
		note_pace(fetch);
		fetch->chunks[fetch->next++] = NULL;
		chunk_keep(chunk);
	}
	return n;
}

static size_t fetch_data(struct origin_get *get, const uint8_t *bytes, size_t n)
{
	struct fetch *fetch = container_of(get, struct fetch, get);
	struct object *object = fetch->object;
	size_t taken = 0;

	if (!fetch->since_ns)
		fetch->since_ns = clock_now_ns();
	while (taken < n) {
		struct chunk *chunk;

		check(fetch->next < fetch->count);
		chunk = fetch->chunks[fetch->next];
		if (!chunk->buffer) {
			struct pool_buffer *buffer = take_buffer(fetch);

			if (!buffer)
				break;
			lock_take(&object->lock);
			chunk->buffer = buffer;
			lock_drop(&object->lock);
		}
		taken += fill(fetch, chunk, bytes + taken, n - taken);
	}
	atomic_fetch_add(&object->cache->counters.fetched_bytes, taken);
	return taken;
}

/*
 * The range ended before this chunk had its bytes. Waiters of other origins than the one that
 * failed ask their own: an error of one identity says nothing about another's. origin NULL: none
 * failed.
 */
static void chunk_abandoned(struct chunk *chunk, const struct origin *origin, int error)
{
	struct object *object = chunk->object;
	struct list failed, others;

	list_init(&failed);
	list_init(&others);
	lock_take(&object->lock);
	list_for_each_safe (link, after, &chunk->waiters) {
		struct read_piece *piece = container_of(link, struct read_piece, link);

		list_remove(link);
		list_append(piece->read->reader->origin == origin ? &failed : &others, link);
	}
	chunk_state_set(object, chunk->index, CHUNK_ABSENT);
	chunk_detach(chunk);
	lock_drop(&object->lock);
	/* Those who are answered with a part of it may hold it for a moment. */
	if (chunk->buffer)
		pool_buffer_fetched(chunk->buffer);
	pieces_failed(&failed, error);
	pieces_restart(&others);
	chunk_free(chunk);
}

/* Somebody waits for the fetch, or will read soon. object.lock held. */
static void fetch_wanted(struct fetch *fetch)
{
	atomic_fetch_add(&fetch->object->cache->wanted_fetches, 1);
}

/* Its end. Nobody can come to wait for it any more. */
static void fetch_unwanted(struct fetch *fetch)
{
	struct cache *cache = fetch->object->cache;
	bool wanted;

	lock_take(&fetch->object->lock);
	wanted = fetch->get.priority != ORIGIN_PREFETCH;
	lock_drop(&fetch->object->lock);
	if (wanted && atomic_fetch_sub(&cache->wanted_fetches, 1) == 1)
		complete_wake(cache);
}

static void fetch_done(struct origin_get *get, int error)
{
	struct fetch *fetch = container_of(get, struct fetch, get);
	struct object *object = fetch->object;
	struct cache *cache = object->cache;
	const struct origin *failed = get->origin;
	bool later;

	check(error || fetch->next == fetch->count);
	lock_take(&cache->fetches_lock);
	fetch->over = true;
	if (fetch->unwanted && error == -ECANCELED)
		failed = NULL;
	lock_drop(&cache->fetches_lock);
	if (error == -ESTALE) {
		lock_take(&object->lock);
		object->changed = true;
		lock_drop(&object->lock);
	}
	for (uint32_t i = fetch->next; i < fetch->count; i++)
		chunk_abandoned(fetch->chunks[i], failed, error);
	fetch->error = error;
	fetch_unwanted(fetch);
	/* Once it is finished the fetch may be gone as soon as the lock is dropped. */
	lock_take(&object->lock);
	if (fetch->waiting && pool_cancel(cache->pool, &fetch->wait))
		fetch->waiting = false;
	fetch->finished = true;
	later = fetch->waiting;
	lock_drop(&object->lock);
	if (!later)
		fetch_free(fetch);
}

/* Makes the run's chunks busy, and counts them in fetch->count. An absent chunk may be busy: its
 * commit failed while it was being read. object.lock held. 0, -ESTALE, -ENOMEM. */
static int claim(struct fetch *fetch, struct read_piece *piece, uint32_t most)
{
	struct object *object = fetch->object;
	uint32_t n = 0;

	check(lock_held(&object->lock));
	if (object->changed)
		return -ESTALE;
	while (n < most && fetch->first + n < object->n_chunks) {
		uint32_t index = fetch->first + n;
		struct chunk *chunk;

		if (!object->groups[index / INDEX_GROUP_CHUNKS] ||
			chunk_state_of(object, index) != CHUNK_ABSENT || chunk_busy(object, index))
			break;
		chunk = chunk_begin(object, index, PHASE_FETCH);
		if (!chunk)
			return n ? 0 : -ENOMEM;
		if (piece && !n) {
			list_append(&chunk->waiters, &piece->link);
			chunk->spent = piece_spends(piece);
		}
		chunk->fetch = fetch;
		fetch->count = n + 1;
		chunk_state_set(object, index, CHUNK_FETCHING);
		fetch->chunks[n++] = chunk;
	}
	return 0;
}

static int start(struct reader *reader, struct read_piece *piece, struct completion *completion,
	uint32_t first, uint32_t count, enum origin_priority priority)
{
	struct object *object = reader->object;
	struct cache *cache = object->cache;
	struct fetch *fetch = calloc(1, sizeof *fetch);
	uint64_t end;
	int r;

	if (!fetch)
		return -ENOMEM;
	fetch->path = strdup(reader->path);
	if (!fetch->path) {
		free(fetch);
		return -ENOMEM;
	}
	fetch->object = object;
	fetch->completion = completion;
	fetch->first = first;
	fetch->get.origin = reader->origin;
	fetch->get.priority = priority;
	lock_take(&object->lock);
	r = claim(fetch, piece, count < PART_CHUNKS ? count : PART_CHUNKS);
	lock_drop(&object->lock);
	if (!fetch->count) {
		free(fetch->path);
		free(fetch);
		return r;
	}
	object_ref(object);
	origin_ref(fetch->get.origin);
	fetch->get.path = fetch->path;
	fetch->get.offset = (uint64_t)first * CHUNK_SIZE;
	end = fetch->get.offset + (uint64_t)fetch->count * CHUNK_SIZE;
	fetch->get.length =
		(end < object->size_bytes ? end : object->size_bytes) - fetch->get.offset;
	fetch->get.version = object->version;
	fetch->get.size_bytes = object->size_bytes;
	fetch->get.data = fetch_data;
	fetch->get.done = fetch_done;
	lock_take(&cache->fetches_lock);
	list_append(&cache->fetches, &fetch->in_fetches);
	lock_drop(&cache->fetches_lock);
	atomic_fetch_add(&cache->counters.fetches, 1);
	count = fetch->count;
	/* Under the lock, which done takes first: who begins to wait meanwhile finds it started. */
	lock_take(&object->lock);
	fetch->started = true;
	if (fetch->get.priority != ORIGIN_PREFETCH)
		fetch_wanted(fetch);
	origin_get_start(&fetch->get);
	if (fetch->unpaced)
		origin_get_unpace(&fetch->get);
	lock_drop(&object->lock);
	return (int)count;
}

bool fetch_find_absent(struct object *object, uint32_t *from, uint32_t to)
{
	bool found = false;

	while (!found && *from < to) {
		uint32_t group = *from / INDEX_GROUP_CHUNKS;

		if (object_load_group(object, group))
			return false;
		lock_take(&object->lock);
		for (; *from < to && *from / INDEX_GROUP_CHUNKS == group; ++*from) {
			found = chunk_state_of(object, *from) == CHUNK_ABSENT &&
				!chunk_busy(object, *from);
			if (found)
				break;
		}
		lock_drop(&object->lock);
	}
	return found;
}

int fetch_start(struct reader *reader, struct read_piece *piece, uint32_t first, uint32_t count,
	enum origin_priority priority)
{
	return start(reader, piece, NULL, first, count, priority);
}

int fetch_completing(struct completion *completion, struct reader *reader, uint32_t first)
{
	uint32_t most =
		origin_aging(reader->origin) == ORIGIN_AGES ? PART_CHUNKS_AGING : PART_CHUNKS;

	return start(reader, NULL, completion, first, most, ORIGIN_PREFETCH);
}

void fetch_promote(struct fetch *fetch, const struct reader *reader)
{
	check(lock_held(&fetch->object->lock));
	if (reader->origin != fetch->get.origin && !fetch->unpaced) {
		fetch->unpaced = true;
		if (fetch->started)
			origin_get_unpace(&fetch->get);
	}
	if (fetch->get.priority == ORIGIN_DEMAND)
		return;
	if (fetch->started && fetch->get.priority == ORIGIN_PREFETCH)
		fetch_wanted(fetch);
	fetch->get.priority = ORIGIN_DEMAND;
	atomic_store(&fetch->awaited, true);
	if (fetch->started)
		origin_get_promote(&fetch->get, ORIGIN_DEMAND);
}

unsigned fetches_cancel_completing(struct cache *cache, struct completion *completion)
{
	unsigned n_left = 0;

	lock_take(&cache->fetches_lock);
	list_for_each (link, &cache->fetches) {
		struct fetch *fetch = container_of(link, struct fetch, in_fetches);

		if (fetch->completion != completion || fetch->over)
			continue;
		if (atomic_load(&fetch->awaited)) {
			fetch->completion = NULL;
			n_left++;
			continue;
		}
		fetch->unwanted = true;
		origin_get_cancel(&fetch->get);
	}
	lock_drop(&cache->fetches_lock);
	return n_left;
}

void fetches_cancel_and_wait(struct cache *cache)
{
	lock_take(&cache->fetches_lock);
	/* Each stays in the list until fetch_free, and its done takes this lock first: none can be
	 * freed meanwhile. */
	list_for_each (link, &cache->fetches) {
		struct fetch *fetch = container_of(link, struct fetch, in_fetches);

		if (!fetch->over)
			origin_get_cancel(&fetch->get);
	}
	while (!list_empty(&cache->fetches))
		cond_wait(&cache->fetches_gone, &cache->fetches_lock);
	lock_drop(&cache->fetches_lock);
}
