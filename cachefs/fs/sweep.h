/*
 * sweep: nodes that need not be kept.
 *
 * After a take-over, finding what the kernel doesn't know any more: FORGETs and RELEASEs that the
 * predecessor read and did not get to are lost, and so is what it was just about to tell. And when
 * there are many nodes, asking the kernel to forget the oldest (prune.c).
 */
#ifndef FS_SWEEP_H
#define FS_SWEEP_H

#include <pthread.h>
#include <stdbool.h>

#include "base/lock.h"

struct fs;

struct sweeper {
	struct lock lock;
	struct cond changed;
	bool started, running, ending; /* lock */
	bool crowded;                  /* lock; there are many nodes */
	pthread_t thread;
};

/* Backing ids that no node has: before the first request, for the kernel gives such ids out again.
 * 0 or -ENOMEM. */
int sweep_backing(struct fs *fs);
/* Nodes and their handles, and results that nobody asked for. Asks the kernel once about each node
 * in doubt. */
void sweep_nodes(struct fs *fs);

void sweeper_init(struct sweeper *sweeper);
/* More than three quarters of the nodes that can be: has the kernel forget the oldest of those that
 * it doesn't use, down to a half. False: it can't be asked for that (before 6.18). */
bool prune_nodes(struct fs *fs);

/* A thread that prunes when it is woken, and after a take-over sweeps nodes each minute. 0 or
 * -errno. */
int sweeper_start(struct sweeper *sweeper, struct fs *fs);
/* Any thread, no lock held. */
void sweeper_wake(struct sweeper *sweeper);
/* Returns when it sweeps no more. */
void sweeper_end(struct sweeper *sweeper);
/* After sweeper_end. */
void sweeper_free(struct sweeper *sweeper);

#endif
