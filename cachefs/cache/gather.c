/*
 * Gathering: a read of several chunks holds a buffer of each at once, while every other holder of
 * a buffer lets go of it without needing a second one. If such reads took their buffers as they
 * come, each could end up with some of all there are and wait for the others' for ever, and reads
 * stalled by the origin would keep warm ones from the memory. So they hold none until all their
 * bytes are here, and then no more of them at once than have room in a part of the pool; the rest
 * wait in line.
 */
#include "gather.h"

#include "base/check.h"
#include "reads.h"

void gather_init(struct gather *gather, size_t n_buffers)
{
	lock_init(&gather->lock);
	list_init(&gather->waiting);
	gather->room = n_buffers / 8 < OBJECT_READ_PIECES ? OBJECT_READ_PIECES : n_buffers / 8;
}

void gather_destroy(struct gather *gather)
{
	check(list_empty(&gather->waiting));
	lock_destroy(&gather->lock);
}

/* Starts those at the head of the line that have room. A read that is finished at once comes back
 * to here: the thread that admits goes on for it, so that the stack doesn't grow. */
static void admit(struct gather *gather)
{
	check(lock_held(&gather->lock));
	if (gather->admitting)
		return;
	gather->admitting = true;
	while (!list_empty(&gather->waiting)) {
		struct object_read *read =
			container_of(gather->waiting.next, struct object_read, gather);

		if ((size_t)read->n_pieces > gather->room)
			break;
		list_remove(&read->gather);
		gather->room -= (size_t)read->n_pieces;
		lock_drop(&gather->lock);
		read_gather(read);
		lock_take(&gather->lock);
	}
	gather->admitting = false;
}

void gather_add(struct gather *gather, struct object_read *read)
{
	lock_take(&gather->lock);
	if (!list_empty(&gather->waiting) || (size_t)read->n_pieces > gather->room)
		read->waited = true;
	list_append(&gather->waiting, &read->gather);
	admit(gather);
	lock_drop(&gather->lock);
}

void gather_done(struct gather *gather, int n_pieces)
{
	lock_take(&gather->lock);
	gather->room += (size_t)n_pieces;
	admit(gather);
	lock_drop(&gather->lock);
}
