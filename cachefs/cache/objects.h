/*
 * objects: those in memory, one for each version that is open or was lately. Their life: top of
 * object.c.
 */
#ifndef CACHE_OBJECTS_H
#define CACHE_OBJECTS_H

#include <stdatomic.h>

#include "base/hash.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/map.h"
#include "base/work.h"
#include "cache/object.h"
#include "commit.h"
#include "index/index.h"

struct completion;
struct group;

struct object {
	struct map_node in_objects; /* cache.objects_lock */
	struct list idle;           /* cache.objects_lock; in cache.idle_objects while refs == 0 */
	_Atomic unsigned refs;      /* 0 and back only under cache.objects_lock */
	bool loading, evicting;     /* cache.objects_lock: who opens waits in `opens` */
	struct list opens;          /* cache.objects_lock; struct pending_open */

	/* Immutable. */
	struct cache *cache;
	struct id128 id;
	uint64_t size_bytes;
	int64_t mtime_ns;
	uint32_t n_chunks;
	struct origin_version version;
	char *name;     /* origin_object_name */
	bool unkept;    /* set while loading: nothing of it goes to the store */
	int load_error; /* set while loading: why the record's file is not to be had; 0 */

	struct lock lock;
	/* lock; NULL until there is a file. Never changes once set while refs > 0. */
	struct raw *raw;  /* once there, it lives as long as a reference of the object is held */
	bool opening_raw; /* lock; one thread makes the file, others wait for raw_made */
	struct cond raw_made; /* lock */
	bool has_record;      /* lock */
	bool complete;        /* lock */
	/* lock; since the machine last went down in use, every byte in the store was written, or
	 * checked, by us */
	bool verified;
	bool verifying;     /* lock */
	bool changed;       /* lock; the origin said that this version is gone */
	uint32_t n_present; /* lock; as in the index */
	int64_t ctime_ns;   /* lock; of the raw file after our last write to it */
	/* lock; of a raw file whose chunks were all right, and which has holes: verifying it again makes
	 * it no better. 0: none */
	int64_t misshapen_ctime_ns;
	int64_t pinned_until_ns;   /* lock */
	int64_t opened_wall_ns;    /* lock */
	uint64_t disk_bytes;       /* lock; what space accounting counts for it */
	unsigned pending_drops;    /* lock; bad chunks on their way out of the index */
	struct group **groups;     /* lock */
	_Atomic uint64_t chunk_ns; /* that a chunk takes to come by a GET, smoothed; 0: unknown */
	bool was_whole;            /* lock; it was complete once since it was loaded */
	/* lock; by whom it may be completed while somebody has it open; NULL: nobody (complete.h) */
	struct origin *origin;
	char *path;
	struct completion *completion; /* lock; NULL: it isn't being completed */
	struct batch batch;
	struct job job; /* loading; then verification */
};

/* What names the version in store and index. name: origin_object_name. */
void object_id(const char *name, const struct origin_version *version, uint64_t size_bytes,
	struct id128 *ret);
/* object_open_start of an object by its name in the world; needs no origin and no path. */
void object_open_named(struct object_open *open, const char *name);
/* The same, waited for. 0 with a reference, or what done got. Blocks. */
int object_open_wait(
	struct cache *cache, const char *name, const struct origin_attr *attr, struct object **ret);
/* The open or idle object of this id with a reference, or NULL. */
struct object *object_find(struct cache *cache, struct id128 id);
/*
 * Makes the object unopenable and drops it from memory; opens wait until evict_finish. 0, or -EBUSY
 * while somebody uses it, -ENOMEM. The placeholder has a record when the object was in memory: its
 * disk_bytes and opened_wall_ns are then the object's, which may be later than the index's.
 */
int object_evict_begin(struct cache *cache, struct id128 id, struct object **ret_placeholder);
void object_evict_finish(struct object *placeholder);
/* Frees the oldest idle objects but for so many. */
void objects_free_idle(struct cache *cache, size_t keep);

/* --- what index and store have of it (object_load.c) --- */

/* Fills in a new object, which nobody else uses yet, from its record. An index or a disk that fails
 * leaves an object that is read uncached. Blocks. */
void object_load(struct object *object);
/* Makes sure that group n is in memory; may fault index pages. 0 or -ENOMEM. */
int object_load_group(struct object *object, uint32_t n);
/* What the index keeps of it. The caller holds object.lock. */
void object_record(struct object *object, struct index_object_record *ret);

/* The raw file, made if there is none, the object's own. NULL: the store has no place for it.
 * Blocks (object_file.c). */
struct raw *object_make_raw(struct object *object);

#endif
