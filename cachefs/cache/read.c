/*
 * Reads: a read is cut into one piece a chunk.
 *
 *   1. arriving   only with several pieces: each waits at its chunk until the bytes are here, in
 *                 memory or in the store, and holds nothing (gather.c says why)
 *   2. gathering  each piece gets a reference of a buffer that holds its bytes, at once or after
 *                 waiting at the chunk; when the last has it, done is called with all of them
 */
#include "reads.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "chunks.h"
#include "fetch.h"
#include "gather.h"
#include "objects.h"
#include "resident.h"
#include "whole.h"

/* It has to wait for the origin, from now until its step is done. */
static void read_stall(struct object_read *read)
{
	if (!atomic_exchange(&read->stalled, true))
		stalls_begin(&read->reader->account->stalled_reads, clock_now_ns());
}

static void read_stall_end(struct object_read *read)
{
	if (!atomic_exchange(&read->stalled, false))
		return;
	read->missed = true;
	stalls_end(&read->reader->account->stalled_reads, clock_now_ns());
}

/* Reads that waited for nothing don't look at the clock a second time. */
static void read_account(struct object_read *read, uint64_t bytes)
{
	struct cache_counters *counters = &read->reader->object->cache->counters;
	struct cache_account *account = read->reader->account;
	enum waited_for waited_for = read->missed   ? WAITED_ORIGIN
				     : read->waited ? WAITED_STORE
						    : WAITED_NONE;

	atomic_fetch_add(read->missed ? &counters->miss_bytes : &counters->hit_bytes, bytes);
	atomic_fetch_add(read->missed ? &account->miss_bytes : &account->hit_bytes, bytes);
	waits_add(&account->reads[waited_for],
		waited_for == WAITED_NONE ? 0 : clock_now_ns() - read->started_ns);
}

/* The kernel reads once more, page by page, what failed as readahead. Nobody is to wait twice as long
 * as the origin was given, so what took WAITED_NS to fail fails at once when it is asked for again
 * through the handle within AGAIN_NS. */
#define WAITED_NS (2 * NS_PER_SEC)
#define AGAIN_NS  (500 * NS_PER_MS)

static void note_failure(struct read_piece *piece, int error)
{
	struct reader *reader = piece->read->reader;
	uint64_t now = clock_now_ns();

	if (now - piece->read->started_ns < WAITED_NS)
		return;
	lock_take(&reader->object->lock);
	/* One run of neighbours: what lies between two reads that failed was not tried. */
	if (!reader->failed.error || now - reader->failed.at_ns >= AGAIN_NS ||
		piece->chunk + 1 < reader->failed.first || piece->chunk > reader->failed.last + 1)
		reader->failed.first = reader->failed.last = piece->chunk;
	if (piece->chunk < reader->failed.first)
		reader->failed.first = piece->chunk;
	if (piece->chunk > reader->failed.last)
		reader->failed.last = piece->chunk;
	reader->failed.error = error;
	reader->failed.at_ns = now;
	lock_drop(&reader->object->lock);
}

/* How the piece failed a moment ago; 0: it did not. object.lock held. */
static int failed_just_now(const struct read_piece *piece)
{
	const struct reader *reader = piece->read->reader;

	check(lock_held(&reader->object->lock));
	if (!reader->failed.error || piece->chunk < reader->failed.first ||
		piece->chunk > reader->failed.last ||
		clock_now_ns() - reader->failed.at_ns >= AGAIN_NS)
		return 0;
	return reader->failed.error;
}

static void read_finish(struct object_read *read)
{
	struct cache *cache = read->reader->object->cache;
	int error = atomic_load(&read->error);
	struct iovec iov[OBJECT_READ_PIECES];
	struct pool_buffer *buffers[OBJECT_READ_PIECES];
	int n = read->n_pieces;
	bool gathering = read->gathering;
	uint64_t bytes = 0;

	for (int i = 0; i < n; i++) {
		struct read_piece *piece = &read->pieces[i];

		buffers[i] = piece->buffer;
		if (!error) {
			iov[i].iov_base = piece->buffer->bytes + piece->from;
			iov[i].iov_len = piece->to - piece->from;
			bytes += iov[i].iov_len;
		}
	}
	read_account(read, bytes);
	/* The read is the caller's again from here. */
	read->done(read, error, iov, error ? 0 : n);
	for (int i = 0; i < n; i++)
		pool_buffer_unref(buffers[i]);
	if (gathering && n > 1)
		gather_done(&cache->gather, n);
}

/* A piece that takes no buffer yet. */
static bool piece_arrives(const struct read_piece *piece)
{
	return !piece->read->gathering;
}

bool piece_spends(const struct read_piece *piece)
{
	return !piece_arrives(piece) &&
	       piece->to == chunk_size(piece->read->reader->object, piece->chunk);
}

/* The last piece, or who started them, is done with this step. */
static void step_finish(struct object_read *read)
{
	read_stall_end(read);
	if (read->gathering || atomic_load(&read->error))
		read_finish(read);
	else
		gather_add(&read->reader->object->cache->gather, read);
}

static void piece_finish(struct read_piece *piece, struct pool_buffer *buffer, int error)
{
	struct object_read *read = piece->read;
	int none = 0;

	piece->buffer = buffer;
	if (error)
		atomic_compare_exchange_strong(&read->error, &none, error);
	if (atomic_fetch_sub(&read->waiting, 1) == 1)
		step_finish(read);
}

void pieces_ready(struct list *pieces, struct pool_buffer *buffer)
{
	struct list *link;

	while ((link = list_pop(pieces))) {
		struct read_piece *piece = container_of(link, struct read_piece, link);

		piece_finish(piece, piece_arrives(piece) ? NULL : pool_buffer_ref(buffer), 0);
	}
}

void pieces_failed(struct list *pieces, int error)
{
	struct list *link;

	/* What a read may fail with is few; anything else the origin or the memory did is an IO
	 * error to the application. */
	if (error != -ESTALE && error != -EACCES && error != -ENOENT)
		error = -EIO;
	while ((link = list_pop(pieces))) {
		struct read_piece *piece = container_of(link, struct read_piece, link);

		note_failure(piece, error);
		piece_finish(piece, NULL, error);
	}
}

static void piece_failed(struct read_piece *piece, int error)
{
	struct list one;

	list_init(&one);
	list_append(&one, &piece->link);
	pieces_failed(&one, error);
}

enum piece_step { PIECE_READY, PIECE_WAITS, PIECE_FETCH, PIECE_LOAD, PIECE_NO_MEMORY };

/* The store has the chunk and nobody doubts it, or a resident has. object.lock held. */
static bool chunk_here(struct object *object, uint32_t index)
{
	struct chunk *chunk = chunk_busy(object, index);

	if (chunk)
		return chunk->phase == PHASE_LOAD && chunk_state_of(object, index) != CHUNK_ABSENT;
	return chunk_state_of(object, index) != CHUNK_ABSENT ||
	       resident_has(&object->cache->resident, object->id, index);
}

/* What the piece's chunk has for it now; ret_chunk: of PIECE_LOAD, and with PIECE_READY one to be
 * kept, or NULL. object.lock held. */
static enum piece_step piece_look(struct read_piece *piece, struct chunk **ret_chunk)
{
	struct object *object = piece->read->reader->object;
	struct chunk *chunk = chunk_busy(object, piece->chunk);
	bool spends = piece_spends(piece);

	if (chunk && spends)
		chunk->spent = true;
	if (chunk && chunk->phase != PHASE_LOAD && chunk->buffer && piece->to <= chunk->filled) {
		piece->buffer = piece_arrives(piece) ? NULL : pool_buffer_ref(chunk->buffer);
		return PIECE_READY;
	}
	if (piece_arrives(piece) && chunk_here(object, piece->chunk))
		return PIECE_READY;
	if (chunk) {
		list_append(&chunk->waiters, &piece->link);
		if (chunk->phase == PHASE_FETCH) {
			read_stall(piece->read);
			fetch_promote(chunk->fetch, piece->read->reader);
		} else {
			piece->read->waited = true;
		}
		return PIECE_WAITS;
	}
	piece->buffer = resident_get(&object->cache->resident, object->id, piece->chunk, spends);
	if (piece->buffer) {
		if (chunk_state_of(object, piece->chunk) == CHUNK_ABSENT)
			*ret_chunk = chunk_keep_again(object, piece->chunk, piece->buffer);
		return PIECE_READY;
	}
	if (chunk_state_of(object, piece->chunk) == CHUNK_ABSENT)
		return PIECE_FETCH;
	check(!piece_arrives(piece));
	chunk = chunk_begin(object, piece->chunk, PHASE_LOAD);
	if (!chunk)
		return PIECE_NO_MEMORY;
	chunk->spent = spends;
	chunk->sum = object->groups[piece->chunk / INDEX_GROUP_CHUNKS]
			     ->sum[piece->chunk % INDEX_GROUP_CHUNKS];
	list_append(&chunk->waiters, &piece->link);
	piece->read->waited = true;
	*ret_chunk = chunk;
	return PIECE_LOAD;
}

/* Gets the piece its buffer or a place to wait. count: of how many chunks from this one on the read
 * is made. */
static void piece_start(struct read_piece *piece, uint32_t count)
{
	struct object_read *read = piece->read;
	struct object *object = read->reader->object;
	int r = object_load_group(object, piece->chunk / INDEX_GROUP_CHUNKS);

	while (r >= 0) {
		struct chunk *chunk = NULL;
		enum piece_step step;
		int failed;

		lock_take(&object->lock);
		step = piece_look(piece, &chunk);
		failed = step == PIECE_FETCH ? failed_just_now(piece) : 0;
		lock_drop(&object->lock);
		switch (step) {
		case PIECE_READY:
			if (chunk)
				chunk_keep(chunk);
			piece_finish(piece, piece->buffer, 0);
			return;
		case PIECE_LOAD:
			chunk_load(chunk);
			return;
		case PIECE_WAITS:
			return;
		case PIECE_NO_MEMORY:
			r = -ENOMEM;
			continue;
		case PIECE_FETCH:
			break;
		}
		if (failed) {
			r = failed;
			break;
		}
		read_stall(read);
		/* A read that failed already asks for nothing more. */
		r = atomic_load(&read->error);
		if (r)
			break;
		/* 0: somebody else was faster; look again. */
		r = fetch_start(read->reader, piece, piece->chunk, count, ORIGIN_DEMAND);
		if (r > 0)
			return;
	}
	piece_failed(piece, r);
}

void pieces_restart(struct list *pieces)
{
	struct list *link;

	while ((link = list_pop(pieces)))
		piece_start(container_of(link, struct read_piece, link), 1);
}

/* Starts every piece on its step; pieces_started follows, after which the read may be gone. */
static void pieces_start(struct object_read *read)
{
	/* One more than the pieces, so that the read can't finish while this goes on. */
	atomic_store(&read->waiting, read->n_pieces + 1);
	for (int i = 0; i < read->n_pieces; i++)
		piece_start(&read->pieces[i], (uint32_t)(read->n_pieces - i));
}

static void pieces_started(struct object_read *read)
{
	if (atomic_fetch_sub(&read->waiting, 1) == 1)
		step_finish(read);
}

void read_gather(struct object_read *read)
{
	read->gathering = true;
	pieces_start(read);
	pieces_started(read);
}

/* Has what lies ahead of the read fetched, a part at a time. */
static void read_ahead(struct object_read *read)
{
	struct reader *reader = read->reader;
	struct object *object = reader->object;
	struct cache *cache = object->cache;
	uint64_t chunk_ns = atomic_load(&object->chunk_ns);
	const struct readahead_means means = {
		.streams = &cache->streams,
		.buffers = cache->n_buffers,
		.gets = origin_limit(reader->origin),
		.chunk_ns = chunk_ns ? chunk_ns : origin_mib_ns(reader->origin),
		.far = origin_is_slow_to_answer(reader->origin),
		.aging = origin_aging(reader->origin),
	};
	struct readahead_wish wish;
	int n = 0;

	readahead_note(&reader->readahead, &means, read->offset, read->size_bytes,
		atomic_load(&read->stalled), read->started_ns, &wish);
	if (wish.to > object->n_chunks)
		wish.to = object->n_chunks;
	while (n >= 0 && fetch_find_absent(object, &wish.from, wish.to)) {
		uint32_t left = wish.to - wish.from;

		n = fetch_start(reader, NULL, wish.from, left < wish.part ? left : wish.part,
			ORIGIN_READAHEAD);
		if (n > 0)
			wish.from += (uint32_t)n;
	}
}

void object_read_start(struct object_read *read)
{
	struct reader *reader = read->reader;
	struct object *object = reader->object;
	uint32_t first, last;

	check(read->size_bytes <= OBJECT_READ_MAX);
	atomic_init(&read->error, 0);
	atomic_init(&read->stalled, false);
	atomic_init(&read->waited, false);
	read->missed = false;
	read->started_ns = clock_now_ns();
	read->n_pieces = 0;
	if (read->offset >= object->size_bytes || !read->size_bytes) {
		read->done(read, 0, NULL, 0);
		return;
	}
	if (read->size_bytes > object->size_bytes - read->offset)
		read->size_bytes = (uint32_t)(object->size_bytes - read->offset);
	first = (uint32_t)(read->offset / CHUNK_SIZE);
	last = (uint32_t)((read->offset + read->size_bytes - 1) / CHUNK_SIZE);
	for (uint32_t chunk = first; chunk <= last; chunk++) {
		struct read_piece *piece = &read->pieces[read->n_pieces++];

		*piece = (struct read_piece){
			.read = read,
			.chunk = chunk,
			.from = chunk == first ? (uint32_t)(read->offset % CHUNK_SIZE) : 0,
			.to = chunk == last ? (uint32_t)((read->offset + read->size_bytes - 1) %
							 CHUNK_SIZE) +
						      1
					    : CHUNK_SIZE,
		};
		list_init(&piece->link);
	}
	read->gathering = read->n_pieces == 1;
	list_init(&read->gather);
	pieces_start(read);
	read_ahead(read);
	pieces_started(read);
}

int reader_new(struct object *object, struct origin *origin, const char *path,
	struct cache_account *account, struct reader **ret)
{
	struct reader *reader = calloc(1, sizeof *reader);

	if (!reader)
		return -ENOMEM;
	reader->path = strdup(path);
	if (!reader->path) {
		free(reader);
		return -ENOMEM;
	}
	reader->object = object_ref(object);
	reader->origin = origin_ref(origin);
	reader->account = account;
	lock_init(&reader->readahead.lock);
	*ret = reader;
	return 0;
}

void reader_free(struct reader *reader)
{
	if (!reader)
		return;
	object_unref(reader->object);
	origin_unref(reader->origin);
	lock_destroy(&reader->readahead.lock);
	free(reader->path);
	free(reader);
}
