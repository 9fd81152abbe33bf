/*
 * stale: who was answered ESTALE at an open a moment ago.
 *
 * The VFS then looks the name up anew and tries again, once (fs/namei.c, do_filp_open): a second
 * ESTALE would reach the application. So the second try of a thread at a path is answered with what
 * the node is that its lookup found. Any thread; its lock is a leaf.
 */
#ifndef FS_STALE_H
#define FS_STALE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/lock.h"

#define STALE_SLOTS 1024u

struct stale_opens {
	struct lock lock;
	struct {
		pid_t pid; /* of the thread; 0 in another pid namespace */
		uint64_t ino;
		uint64_t until_ns;
	} slots[STALE_SLOTS]; /* lock; a later one takes the place of an earlier one */
};

void stale_opens_init(struct stale_opens *opens);
void stale_opens_destroy(struct stale_opens *opens);
/* Before the ESTALE goes out. ino: st_ino, which a path keeps whatever its node is. */
void stale_opens_note(struct stale_opens *opens, pid_t pid, uint64_t ino);
/* True: this open is a second try. Forgets it. */
bool stale_opens_take(struct stale_opens *opens, pid_t pid, uint64_t ino);

#endif
