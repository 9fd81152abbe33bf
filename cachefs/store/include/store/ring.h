/*
 * ring: the store's data IO, by one thread that owns one io_uring (io_uring_setup(2)).
 *
 * The caller embeds a struct ring_io, which belongs to the ring from submission to its done. done
 * runs on the ring's thread, must not block, and may submit again. More operations than the ring
 * has entries wait in a list of their own.
 */
#ifndef STORE_RING_H
#define STORE_RING_H

#include <stdint.h>
#include <stdbool.h>

#include "base/list.h"

struct ring;

enum ring_op { RING_READ, RING_WRITE };

struct ring_io {
	struct list link; /* private */
	enum ring_op op;
	int fd; /* stays open until done */
	void *bytes;
	uint32_t size_bytes;
	uint64_t offset;
	/* result: bytes moved, which is less than size_bytes only at the end of the file, or
	 * -errno. */
	void (*done)(struct ring_io *io, int result);
	uint32_t moved; /* private: of a transfer that came back short and goes on */
};

/* entries: how many run at once. 0, or -errno (-ENOSYS, -EPERM: the kernel has no io_uring, or
 * forbids it). */
int ring_new(unsigned entries, struct ring **ret);
/* All operations must be done. NULL is allowed. */
void ring_free(struct ring *ring);
/* Any thread; never blocks for IO. */
void ring_submit(struct ring *ring, struct ring_io *io);

#endif
