/*
 * complete: brings what is missing of objects of which most is here, so that their next open is
 * passed through.
 *
 * Which: one that has more than half of its chunks in the store, so that at most as much is fetched
 * unasked as was asked for; and one that was whole in this life of the daemon until chunks of it
 * were found bad, whatever their number: its readers may be served by the kernel's page cache and
 * never ask for them. Looked at when it is opened, and when a commit changed what it has: both after
 * reads and after a verification that dropped chunks. Readers may close meanwhile.
 *
 * When: while no fetch is under way that somebody waits for or will read soon, on any origin, since
 * they share the link; and only into room that is free. Parts are asked for at ORIGIN_PREFETCH,
 * COMPLETE_PARTS at once. An error ends it until the next open; room that is short, an eviction, the
 * end of the volume that it asks by, and another version end it too.
 *
 * Any thread; nothing here blocks but where it says so.
 */
#ifndef CACHE_COMPLETE_H
#define CACHE_COMPLETE_H

#include <stdbool.h>

#include "base/hash.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/work.h"

/* Parts under way, of one object and of all. */
#define COMPLETE_PARTS_OF_ONE 2u
#define COMPLETE_PARTS        4u
/* Objects in line; one more is let be, and looked at again when it is opened. */
#define COMPLETE_OBJECTS 64u

struct cache;
struct completion;
struct object;
struct origin;

struct completions {
	struct lock lock; /* taken with no other lock but object.lock */
	struct cond changed;
	struct list objects;         /* lock; struct completion, whose turn it is first */
	unsigned n_objects, n_parts; /* lock */
	bool posted;                 /* lock; job is queued or runs */
	bool ending;                 /* lock */
	struct job job;
};

void complete_init(struct cache *cache);
/* Ends all, for good. Blocks. */
void complete_stop(struct cache *cache);
void complete_destroy(struct cache *cache);

/* The object was opened by this origin and path, and may be completed by them. No lock held. */
void complete_opened(struct object *object, struct origin *origin, const char *path);
/* What the store has of the object changed. No lock held. */
void complete_look(struct object *object);
/* Nobody waits for a fetch any more. */
void complete_wake(struct cache *cache);
/* Room is short: all end soon. */
void complete_give_way(struct cache *cache);
/* Of this object nothing is under way at the return, nor begun before it is opened again. Blocks. */
void complete_cancel(struct cache *cache, struct id128 id);

/* A part that was asked for by it has ended, and lets go of the object. */
void complete_part_ended(struct completion *completion, int error);

#endif
