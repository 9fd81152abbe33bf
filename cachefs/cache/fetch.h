/* fetch: range GETs that bring absent chunks. */
#ifndef CACHE_FETCH_H
#define CACHE_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "origin/origin.h"

struct cache;
struct completion;
struct fetch;
struct object;
struct read_piece;
struct reader;

/*
 * Fetches the run of absent chunks that begins at first, at most count long and within loaded
 * groups. Returns how many chunks it covers, 0 when first isn't absent, -ESTALE when the version is
 * known to be gone, -ENOMEM. The piece, if any, waits for the first chunk from then on, and only
 * when chunks are covered: it may be finished at the return. No lock held; doesn't block.
 */
int fetch_start(struct reader *reader, struct read_piece *piece, uint32_t first, uint32_t count,
	enum origin_priority priority);
/* The first chunk from *from on, below to, that is absent and that nothing is being done to. False:
 * there is none. May fault index pages. */
bool fetch_find_absent(struct object *object, uint32_t *from, uint32_t to);
/* The same of a part that nobody waits for; complete_part_ended follows when chunks are covered. */
int fetch_completing(struct completion *completion, struct reader *reader, uint32_t first);
/* Its parts end soon, and none is being started. Those that readers came to wait for go on, and are
 * the readers' from now on: returns how many, of which complete_part_ended doesn't follow. A reader
 * that comes to wait for one of the others later begins anew. */
unsigned fetches_cancel_completing(struct cache *cache, struct completion *completion);
/* A reader waits for bytes of the fetch, which may have been begun for later: they are wanted now; and
 * if it is another volume's reader, they don't wait for the bandwidth of the one that began it. Called
 * with a chunk's fetch, object.lock held. */
void fetch_promote(struct fetch *fetch, const struct reader *reader);
/* Nobody may start one meanwhile. Blocks. */
void fetches_cancel_and_wait(struct cache *cache);

#endif
