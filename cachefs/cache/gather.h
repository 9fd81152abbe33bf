/* gather: the line of those reads of several chunks that are to hold as many buffers at once. Why:
 * top of gather.c. */
#ifndef CACHE_GATHER_H
#define CACHE_GATHER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/list.h"
#include "base/lock.h"

struct object_read;

struct gather {
	struct lock lock;
	struct list waiting; /* lock; struct object_read.gather */
	size_t room;         /* lock; buffers that may still be held */
	bool admitting;      /* lock; a thread is starting reads of the line */
};

void gather_init(struct gather *gather, size_t n_buffers);
/* No read may wait. */
void gather_destroy(struct gather *gather);
/* read_gather now, or when there is room. No lock held. */
void gather_add(struct gather *gather, struct object_read *read);
/* A read that was gathering let its buffers go. No lock held. */
void gather_done(struct gather *gather, int n_pieces);

#endif
