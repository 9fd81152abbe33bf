/*
 * strays: raw files that no record knows, so that nobody accounts for the room that they take: fills
 * that a kill cut off before their first commit, evictions that were cut off, and all files of an
 * index that was set aside.
 *
 * After an unclean stop they are looked for, once the cache runs: one of the 256 directories of raw/
 * at a time, by the thread that verifies, and what else that has to do comes in between.
 */
#ifndef CACHE_STRAYS_H
#define CACHE_STRAYS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/work.h"

struct cache;

struct strays {
	struct job job;        /* the sweep, and then nobody's */
	_Atomic unsigned next; /* directory */
	uint64_t bytes;        /* freed so far; the job's */
	_Atomic uint64_t removed;
};

void strays_sweep(struct cache *cache);
/* Removes the file unless it is in use or has a record. True: it was one, and is gone. Blocks. */
bool stray_remove(struct cache *cache, struct id128 id, uint64_t *ret_freed_bytes);

/* Object ids, malloc'ed. */
struct ids {
	struct id128 *ids;
	size_t n, room;
};
/* 0 or -ENOMEM. */
int ids_add(struct ids *ids, struct id128 id);

#endif
