/* readahead: which chunks after a read are worth fetching with it. How: top of readahead.c. */
#ifndef CACHE_READAHEAD_H
#define CACHE_READAHEAD_H

#include <stdint.h>

#include "base/lock.h"

#define READER_STREAMS 4

struct stream {
	uint64_t next, last_use; /* last_use 0: unused */
	uint32_t window;         /* chunks worth having beyond `next` */
	uint32_t ahead;          /* chunks before this one were asked for already */
};

struct readahead {
	struct lock lock;
	uint64_t uses;                         /* lock */
	struct stream streams[READER_STREAMS]; /* lock */
};

/* Notes a read of size_bytes > 0; gives the chunks [from, to) beyond it that should be asked for
 * now, which may lie beyond the object's end. */
void readahead_note(struct readahead *readahead, uint64_t offset, uint32_t size_bytes,
	uint32_t *ret_from, uint32_t *ret_to);

#endif
