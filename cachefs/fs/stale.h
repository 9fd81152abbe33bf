/*
 * stale: who was answered ESTALE at an open a moment ago.
 *
 * The VFS then looks the name up anew and tries again, once (fs/namei.c, do_filp_open): a second
 * ESTALE would reach the application. So the second try of a thread at a path is answered with what
 * the node is that its lookup found. The notes lie in the session table, since the daemon may be
 * another one at the second try. Any thread; the lock is a leaf.
 *
 * A note's life, told by the unique of the OPEN that it is about:
 *     free → answered ESTALE → settling → free, or forgotten after a minute
 * An OPEN that comes again (its predecessor's reply did not go out) finds the note of its own
 * unique, and is answered as it would have been.
 */
#ifndef FS_STALE_H
#define FS_STALE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/lock.h"

#define STALE_WAYS  8u
#define STALE_SLOTS (14 * STALE_WAYS)

/* In the session table. SIGKILL may come between any two stores: tag is 0 while unique is not the
 * one that belongs to it. */
struct stale_slot {
	_Atomic uint64_t tag; /* hash of thread and path above the second when it ends; 0: free */
	_Atomic uint64_t unique; /* even; with bit 0: settling */
};

struct stale_opens {
	struct lock lock;
	struct stale_slot *slots; /* lock; STALE_SLOTS, of the session table */
};

enum stale_try {
	STALE_FIRST, /* no try before it */
	STALE_SAME,  /* was answered ESTALE, or would have been */
	STALE_SECOND /* comes after an ESTALE: must not get another */
};

void stale_opens_init(struct stale_opens *opens, struct stale_slot *slots);
void stale_opens_destroy(struct stale_opens *opens);
/* Before the ESTALE goes out. pid: of the thread, 0 in another pid namespace; ino: st_ino, which a
 * path keeps whatever its node is; unique: of the OPEN. */
void stale_opens_note(struct stale_opens *opens, pid_t pid, uint64_t ino, uint64_t unique);
/* What the OPEN is. */
enum stale_try stale_opens_try(struct stale_opens *opens, pid_t pid, uint64_t ino, uint64_t unique);

#endif
