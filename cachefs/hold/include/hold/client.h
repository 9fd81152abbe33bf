/*
 * hold/client: the daemon's side of the keeper's channel.
 *
 * The keeper keeps a copy of each volume's descriptors beyond this process's life and gives them to
 * its successor. Order of calls: hold_open, hold_take, then any of the others from any thread,
 * hold_close.
 */
#ifndef HOLD_CLIENT_H
#define HOLD_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/why.h"

/* What the keeper holds of one volume is at most this. */
#define HOLD_DESCRIPTION_MAX 16384
#define HOLD_MOUNTS_MAX      256
/* The exit status of a daemon that was told to stop and left its volumes to its successor. */
#define HOLD_EXIT_HANDED_OVER 75

struct hold;

struct hold_mount {
	uint64_t id;
	char *description; /* as given to hold_put, and a NUL that is not counted */
	size_t size;
	int device, table;
};

struct hold_mounts {
	struct hold_mount *mounts;
	size_t count;
};

/* The keeper, as it was when it gave the mounts. */
struct hold_keeper {
	pid_t pid;
	unsigned restarts; /* of the daemon, unplanned ones */
	int last_status;   /* of the daemon before, as of waitpid(2); 0: there was none */
};

/* Takes the channel fd, also when it fails, and agrees on the protocol's version. Waits for the
 * keeper's answer. 0; -EPROTONOSUPPORT: it speaks none of ours; -ETIMEDOUT, -EPIPE, with why. */
int hold_open(int fd, struct hold **ret, struct why *why);
/*
 * The volumes of a predecessor, none for the first daemon. In an upgrade it waits until the
 * predecessor has gone. Once only. The caller owns the result: takes what it wants (sets
 * description to NULL, descriptors to -1) and calls hold_mounts_free.
 */
int hold_take(struct hold *hold, struct hold_mounts *ret, struct hold_keeper *ret_keeper,
	struct why *why);
void hold_mounts_free(struct hold_mounts *mounts);
/* NULL is allowed. The keeper keeps what it has. */
void hold_close(struct hold *hold);

/*
 * Gives the keeper a copy of the descriptors; device -1: the description of one it has is replaced.
 * Returns when it has them. -EEXIST, -ENOENT (nothing to replace), -ENOSPC (HOLD_MOUNTS_MAX), -EFBIG
 * (HOLD_DESCRIPTION_MAX), -ETIMEDOUT (the keeper hangs), -EPIPE (it is dead).
 */
int hold_put(struct hold *hold, uint64_t id, const char *description, size_t size, int device,
	int table);
/* The volume has ended. Nothing is waited for, as in the next two. */
void hold_drop(struct hold *hold, uint64_t id);
/* This daemon serves. Once. */
void hold_ready(struct hold *hold);
/* Due every second: the keeper kills a daemon that it hears nothing of. */
void hold_beat(struct hold *hold);
/* The keeper is dead, which was logged: nobody holds the volumes beyond this process's life. After
 * hold_take. */
bool hold_is_gone(struct hold *hold);
/* Readable for ever once the keeper wants a planned hand-over. */
int hold_stop_fd(const struct hold *hold);

#endif
