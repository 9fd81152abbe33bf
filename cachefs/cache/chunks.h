/*
 * chunks: the pieces of an object, their states and what is being done to them. The life of one:
 * top of chunk.c.
 */
#ifndef CACHE_CHUNKS_H
#define CACHE_CHUNKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/pool.h"
#include "base/work.h"
#include "index/index.h"
#include "store/ring.h"

struct object;

enum chunk_state { CHUNK_ABSENT, CHUNK_FETCHING, CHUNK_WRITTEN, CHUNK_PRESENT, CHUNK_EVICTING };

/* States and checksums of INDEX_GROUP_CHUNKS chunks. Read from the index at first use, kept as long
 * as the object. object.lock guards all of it. */
struct group {
	uint8_t state[INDEX_GROUP_CHUNKS];
	uint64_t sum[INDEX_GROUP_CHUNKS];
	struct chunk *busy[INDEX_GROUP_CHUNKS]; /* of each chunk that something is being done to */
};

enum chunk_phase {
	PHASE_FETCH, /* bytes are coming; state fetching */
	PHASE_KEEP,  /* all bytes are in the buffer, on their way to the store; state fetching */
	PHASE_LOAD,  /* being read from the store; state written or present */
	PHASE_DROP,  /* found bad, being taken out of the index; state evicting */
};

/* A chunk that something is being done to. Holds a reference of its object. What isn't guarded by a
 * lock belongs to whoever does it. */
struct chunk {
	struct object *object;
	uint32_t index, size_bytes;
	enum chunk_phase phase;     /* object.lock */
	struct pool_buffer *buffer; /* object.lock for others than who fills it */
	uint32_t filled;            /* object.lock; bytes [0, filled) of buffer are right */
	struct list waiters;        /* object.lock; struct read_piece */
	struct fetch *fetch;        /* object.lock; in PHASE_FETCH who brings its bytes */
	uint64_t sum;
	struct ring_io io;
	struct pool_waiter wait;
	struct job job;
	struct list queued; /* in the commit queue */
	bool spent;         /* object.lock; a read has, or waits for, its last byte */
	bool drop;          /* in the commit queue: to be taken out rather than put in */
	bool again;         /* its bytes were in memory since an earlier try to keep them failed */
};

uint32_t chunk_size(const struct object *object, uint32_t chunk);
/* The room that is taken for it in the store. */
uint64_t chunk_disk_size(const struct chunk *chunk);

/* --- with object.lock held, the chunk's group loaded --- */

enum chunk_state chunk_state_of(struct object *object, uint32_t chunk);
/* The only place that changes a state; a transition that is not in its table ends the daemon. */
void chunk_state_set(struct object *object, uint32_t chunk, enum chunk_state to);
/* NULL: nothing is being done to it. */
struct chunk *chunk_busy(struct object *object, uint32_t chunk);
/* A busy chunk in this phase; takes a reference of the object. NULL: no memory. */
struct chunk *chunk_begin(struct object *object, uint32_t index, enum chunk_phase phase);
/* Takes the chunk, which has no waiters, out of its object; chunk_free then, without the lock. */
void chunk_detach(struct chunk *chunk);
/* Written or present -> evicting: its bytes in the store are bad; commit_chunk then, without the
 * lock. */
void chunk_drop(struct chunk *chunk);
/* A chunk that is in memory only, since the store had no place for it. What chunk_keep is to be
 * called for, without the lock, or NULL when there is no hope yet. */
struct chunk *chunk_keep_again(struct object *object, uint32_t index, struct pool_buffer *buffer);

/* --- without the lock; each takes the chunk over, and none blocks --- */

void chunk_free(struct chunk *chunk);
/* Reads the chunk from the store; its waiters are served when its checksum is right. */
void chunk_load(struct chunk *chunk);
/* The chunk's buffer is full: its checksum is taken, and it is brought to the store. */
void chunk_keep(struct chunk *chunk);

#endif
