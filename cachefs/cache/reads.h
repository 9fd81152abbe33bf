/* reads: who reads, and the pieces of a read that wait at their chunks. */
#ifndef CACHE_READS_H
#define CACHE_READS_H

#include "base/list.h"
#include "base/pool.h"
#include "cache/object.h"
#include "readahead.h"

struct reader {
	struct object *object;
	struct origin *origin;
	char *path;
	struct cache_account *account;
	struct readahead readahead;
	/* Of a read that waited long and failed: its chunks, how, and when; error 0: there was none.
	 * object.lock. */
	struct {
		uint32_t first, last;
		int error;
		uint64_t at_ns;
	} failed;
};

/* The read takes the chunk's bytes up to the last: who reads on has no use for the chunk, and the
 * kernel has its bytes. */
bool piece_spends(const struct read_piece *piece);

/* Each empties its list of struct read_piece and finishes the reads that need no other piece. No
 * lock held; done is called from inside. */

/* Gives each piece its bytes out of buffer, of which it takes a reference. */
void pieces_ready(struct list *pieces, struct pool_buffer *buffer);
void pieces_failed(struct list *pieces, int error);
/* Looks at each piece's chunk anew. */
void pieces_restart(struct list *pieces);

/* All chunks of the read are here: has it take a buffer of each. No lock held. */
void read_gather(struct object_read *read);

#endif
