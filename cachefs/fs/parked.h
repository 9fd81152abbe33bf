/*
 * parked: a request that waits for the origin or the store, while no thread does.
 *
 * Embedded in the operation's own struct, which must live until parked_end(): the cache owns a part
 * of it until its done. Somebody answers exactly once: the done callback, or, when the process was
 * killed meanwhile, INTERRUPT with EINTR. An interrupt by a mere signal is kept in mind and not
 * answered: reads of ordinary files don't end with EINTR, and programs rely on that. The kernel
 * tells of the first signal only, so those are looked at again until they are answered or killed.
 */
#ifndef FS_PARKED_H
#define FS_PARKED_H

#include "base/list.h"
#include "base/lock.h"
#include "session.h"

/* All of one session. Its lock is taken under libfuse's own lock of a request: nothing of libfuse
 * is called under it. */
struct parking {
	struct lock lock;
	struct cond changed;
	uint64_t count;          /* lock: parked and not ended */
	struct list interrupted; /* lock: parked, interrupted, and alive when last looked at */
	unsigned answering;      /* lock: claimed, and the answer may not be written yet */
	bool abandoned;          /* lock: nobody claims any more */
	bool closing;            /* lock */
	pthread_t watcher;
};

struct parked {
	struct parking *parking;
	fuse_req_t req;
	pid_t pid;
	struct list link; /* parking->lock from here */
	enum { PARKED_STARTING, PARKED_WAITING, PARKED_ANSWERED } state;
	bool interrupted, claimed;
};

/* Starts the watcher. 0 or -errno. */
int parking_init(struct parking *parking);
/* Returns when nothing is parked any more, and ends the watcher. */
void parking_close(struct parking *parking);

/* The request is parked's from now on; it may be answered before this returns. */
void parked_begin(struct parking *parking, struct parked *parked, fuse_req_t req);
/* True: the caller has to answer parked->req. False: that has been done. */
bool parked_claim(struct parked *parked);
/* Last of all, after the answer: the parking may be gone after it. */
void parked_end(struct parked *parked);
uint64_t parking_count(struct parking *parking);
/*
 * What is parked is a successor's to answer. Every reply of this process is written by a thread of
 * the session, which must have ended, or between a claim and its parked_end: so when this returns,
 * none is under way and none will come. Those that wait end without one.
 */
void parking_abandon(struct parking *parking);

#endif
