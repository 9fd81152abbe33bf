/* commit: the thread that makes chunks durable, and then the index say so. */
#ifndef CACHE_COMMIT_H
#define CACHE_COMMIT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/list.h"
#include "base/lock.h"
#include "store/store.h"

struct cache;
struct chunk;
struct object;

/* The chunks of one object in the group that is being committed. The commit thread's. */
struct batch {
	struct list link;
	struct object *object; /* NULL: not in a group */
	struct list chunks;
	unsigned n_written;
	bool synced, completes;
	struct raw_state state;
	uint32_t n_present; /* as it will be */
};

/* New times of opening that wait for the index; what is more than that is forgotten. */
#define COMMIT_TOUCHED_MAX 1024

struct commit {
	struct lock lock;
	struct cond wake, idle;
	struct list chunks;    /* lock; struct chunk.queued, in order */
	size_t bytes;          /* lock */
	uint64_t oldest_ns;    /* lock */
	bool urgent, ending;   /* lock */
	uint64_t begun, ended; /* lock; groups */
	size_t n_touched;      /* lock */
	struct {
		struct id128 id;
		int64_t opened_wall_ns;
	} touched[COMMIT_TOUCHED_MAX]; /* lock */
	pthread_t thread;
	bool started;
};

/* 0 or -errno. */
int commit_start(struct cache *cache);
/* Commits what is queued and ends the thread. */
void commit_stop(struct cache *cache);
/* Takes over the chunk, which is written (or, with drop, to be taken out). Doesn't block. */
void commit_chunk(struct cache *cache, struct chunk *chunk);
/* The object was opened then: its record says so soon. Doesn't block. */
void commit_touch(struct cache *cache, struct id128 id, int64_t opened_wall_ns);
/* The same of all that wait, now. Blocks. */
void commit_touches(struct cache *cache);
/* Returns when everything queued so far is durable, or given up. Blocks. */
void commit_flush(struct cache *cache);

#endif
