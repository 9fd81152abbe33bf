/*
 * sweep: after a take-over, finding what the kernel doesn't know any more: FORGETs and RELEASEs that
 * the predecessor read and did not get to are lost, and so is what it was just about to tell.
 */
#ifndef FS_SWEEP_H
#define FS_SWEEP_H

#include <pthread.h>

#include "base/lock.h"

struct fs;

struct sweeper {
	struct lock lock;
	struct cond changed;
	bool started, running, ending; /* lock */
	pthread_t thread;
};

/* Backing ids that no node has: before the first request, for the kernel gives such ids out again.
 * 0 or -ENOMEM. */
int sweep_backing(struct fs *fs);
/* Nodes and their handles, and results that nobody asked for. Asks the kernel once about each node
 * in doubt. */
void sweep_nodes(struct fs *fs);

void sweeper_init(struct sweeper *sweeper);
/* A thread that sweeps nodes a minute after now, and then each minute. 0 or -errno. */
int sweeper_start(struct sweeper *sweeper, struct fs *fs);
/* Returns when it sweeps no more. */
void sweeper_end(struct sweeper *sweeper);
/* After sweeper_end. */
void sweeper_free(struct sweeper *sweeper);

#endif
