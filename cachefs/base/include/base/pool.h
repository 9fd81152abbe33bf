/*
 * pool: the daemon's fixed number of 1 MiB buffers, through which every byte of every object
 * passes.
 *
 * This is where the memory ceiling holds: who gets no buffer waits. Buffers are aligned for
 * O_DIRECT and reference counted. Fetches may hold at most three quarters, so that a stalled origin
 * can't stop reads of what the store has; and each user of fetches, an origin, no more of them than
 * it leaves to the others: one that stalls in the middle of chunks takes half, a second one half of
 * what is left, and so on, so that the others go on while few do so. Any thread; the pool's lock is a leaf.
 */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

#define POOL_BUFFER_SIZE (1u << 20)

enum pool_use { POOL_FETCH, POOL_READ };

struct pool;

/* What one user holds of the buffers for fetches. Zeroed at first, the pool's from then on, and there
 * for as long as a buffer or a waiter of POOL_FETCH counts in it. */
struct pool_share {
	size_t held, waiting;
};

struct pool_buffer {
	uint8_t *bytes;    /* POOL_BUFFER_SIZE, aligned to 4096 */
	struct pool *pool; /* private from here */
	struct list link;
	int refs;
	enum pool_use use;
	struct pool_share *share; /* NULL: it is of POOL_READ */
};

/* Embedded in the struct of who waits; belongs to the pool until `got` is called. */
struct pool_waiter {
	struct list link;
	enum pool_use use;
	struct pool_share *share; /* of POOL_FETCH */
	/* Called once, from the thread that released a buffer, no lock held. Owns one reference of
	 * buffer. */
	void (*got)(struct pool_waiter *waiter, struct pool_buffer *buffer);
};

/* At least 8 buffers. Memory is mapped, not touched. 0 or -errno. */
int pool_new(size_t n_buffers, struct pool **ret);
/* Every buffer must have come back. */
void pool_free(struct pool *pool);

/* A buffer with one reference, or NULL when none is to be had for this use or others of it and the
 * share wait already. share: NULL for POOL_READ. */
struct pool_buffer *pool_try_get(struct pool *pool, enum pool_use use, struct pool_share *share);
/* Would one more free buffer do? Else it is the use's or the share's limit that holds it back. */
bool pool_lacks_free(struct pool *pool, enum pool_use use, const struct pool_share *share);
/* waiter->got is called later, or at once from inside this call if a buffer came free meanwhile.
 * First come, first served within a use, but for shares that are used up. */
void pool_wait(struct pool *pool, struct pool_waiter *waiter);
/* True if the waiter was still queued and is now the caller's again. */
bool pool_cancel(struct pool *pool, struct pool_waiter *waiter);
/* True while somebody waits whom one more free buffer would help: idle contents should then be let go
 * rather than kept. */
bool pool_wanted(struct pool *pool);

struct pool_buffer *pool_buffer_ref(struct pool_buffer *buffer);
/* The last reference returns the buffer, which may call a waiter. NULL is allowed. */
void pool_buffer_unref(struct pool_buffer *buffer);
/* From now on the buffer counts as POOL_READ: no more bytes come into it, and whoever holds it lets go
 * of it without waiting for an origin. */
void pool_buffer_fetched(struct pool_buffer *buffer);

struct pool_stats {
	size_t buffers, in_use, in_fetch, waiters;
};
void pool_stats(struct pool *pool, struct pool_stats *ret);

#endif
