/*
 * What the files of this room share. Locks, outermost first:
 *     cache.objects_lock > object.lock > one of resident, gather, space, commit, fetches > pool
 */
#ifndef CACHE_PRIVATE_H
#define CACHE_PRIVATE_H

#include <stdatomic.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/map.h"
#include "base/pool.h"
#include "base/work.h"
#include "cache/cache.h"
#include "cache/object.h"
#include "index/index.h"
#include "store/ring.h"
#include "store/store.h"

enum chunk_state { CHUNK_ABSENT, CHUNK_FETCHING, CHUNK_WRITTEN, CHUNK_PRESENT, CHUNK_EVICTING };

/* States and checksums of INDEX_GROUP_CHUNKS chunks. Read from the index at first use, kept as long
 * as the object. */
struct group {
	uint8_t state[INDEX_GROUP_CHUNKS];
	uint64_t sum[INDEX_GROUP_CHUNKS];
	struct chunk *busy[INDEX_GROUP_CHUNKS]; /* of each chunk that something is being done to */
};

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

struct object {
	struct map_node in_objects; /* cache.objects_lock */
	struct list idle;           /* cache.objects_lock; in cache.idle_objects while refs == 0 */
	_Atomic unsigned refs;      /* 0 and back only under cache.objects_lock */
	bool loading, evicting;     /* cache.objects_lock: who opens waits in `opens` */
	struct list opens;          /* cache.objects_lock; struct pending_open */

	struct cache *cache;
	struct id128 id;
	uint64_t size_bytes;
	int64_t mtime_ns;
	uint32_t n_chunks;
	struct origin_version version;
	char *name; /* origin_object_name */

	struct lock lock;
	struct raw
		*raw; /* lock; NULL until there is a file. Never changes once set while refs > 0 */
	bool opening_raw;        /* lock; one thread makes the file, others wait for raw_made */
	struct cond raw_made;    /* lock */
	bool has_record;         /* lock */
	bool unkept;             /* set while loading: nothing of it goes to the store */
	bool complete; /* lock */
	/* lock; since the machine last went down in use, every byte in the store was written, or
	 * checked, by us */
	bool verified;
	bool verifying;          /* lock */
	bool changed;            /* lock; the origin said that this version is gone */
	uint32_t n_present;      /* lock; as in the index */
	int64_t ctime_ns;        /* lock; of the raw file when it was completed */
	int64_t pinned_until_ns; /* lock */
	int64_t opened_wall_ns;  /* lock */
	uint64_t disk_bytes;     /* lock; what space accounting counts for it */
	unsigned pending_drops;  /* lock; bad chunks on their way out of the index */
	struct group **groups;   /* lock */
	struct batch batch;
	struct job job; /* loading; then verification */
};

enum chunk_phase {
	PHASE_FETCH, /* bytes are coming; state fetching */
	PHASE_KEEP,  /* all bytes are in the buffer, on their way to the store; state fetching */
	PHASE_LOAD,  /* being read from the store; state written or present */
	PHASE_DROP,  /* found bad, being taken out of the index; state evicting */
};

/* A chunk that something is being done to. Holds a reference of its object. */
struct chunk {
	struct object *object;
	uint32_t index, size_bytes;
	enum chunk_phase phase;     /* object.lock */
	struct pool_buffer *buffer; /* object.lock for others than who fills it */
	uint32_t filled;            /* object.lock; bytes [0, filled) of buffer are right */
	struct list waiters;        /* object.lock; struct read_piece */
	uint64_t sum;
	struct ring_io io;
	struct pool_waiter wait;
	struct job job;
	struct list queued; /* in the commit queue */
	bool drop;          /* in the commit queue: to be taken out rather than put in */
	bool again;         /* its bytes were in memory since an earlier try to keep them failed */
};

struct resident_entry {
	struct map_node node;
	struct list lru;
	struct id128 object;
	uint32_t chunk;
	struct pool_buffer *buffer;
};

/* Buffers whose bytes are right, kept for the next reader as long as nobody wants the memory. */
struct resident {
	struct lock lock;
	struct map map;
	struct list lru; /* oldest first */
	struct list free;
	struct resident_entry *entries;
};

/* Reads of several chunks, which hold as many buffers at once. */
struct gather {
	struct lock lock;
	struct list waiting; /* lock; struct object_read.gather */
	size_t room;         /* lock; buffers that may still be held */
	bool admitting;      /* lock; a thread is starting reads of the line */
};

struct space {
	struct lock lock;
	uint64_t capacity_bytes, reserve_bytes;
	uint64_t used_bytes;                 /* lock; of raw files, written or about to be */
	uint64_t free_seen_ns;               /* lock; when the file system was asked last */
	uint64_t fs_free_bytes, index_bytes; /* lock; as last seen */
	uint64_t hopeless_until_ns; /* lock; nothing could be evicted: don't try again before */
	bool full;                  /* lock */
};

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
	} touched[1024]; /* lock */
	pthread_t thread;
	bool started;
};

struct cache_counters {
	_Atomic uint64_t hit_bytes, miss_bytes, stall_ns, store_wait_ns, fetches, fetched_bytes,
		uncached_bytes, written_bytes, commits, checksum_failures, store_errors,
		evicted_objects, evicted_bytes;
};

struct cache {
	_Atomic bool ending; /* long work is to be broken off */
	struct store *store;
	struct index *index;
	struct pool *pool;
	struct ring *ring;
	struct work *opens;    /* loads objects */
	struct work *verifies; /* may take long */
	struct work *names;    /* reads and writes listings in the index */
	struct work *keeps;    /* makes raw files, makes room */
	struct lock objects_lock;
	struct map objects;       /* objects_lock */
	struct list idle_objects; /* objects_lock; oldest first */
	size_t n_idle_objects;    /* objects_lock */
	struct lock fetches_lock;
	struct cond fetches_gone;
	struct list fetches;    /* fetches_lock */
	size_t busy_chunks;     /* fetches_lock */
	struct lock evict_lock; /* one eviction at a time; held across IO: taken by workers only,
				   with no other lock */
	struct evict_candidates *candidates; /* evict_lock */
	struct resident resident;
	struct gather gather;
	struct space space;
	struct commit commit;
	struct cache_counters counters;
};

/* pin.c */
/* At most a chunk's length too much, when the last chunk is present and another is not. */
uint64_t index_object_present_bytes(const struct index_object *object);

/* object.c */
void object_id(const char *name, const struct origin_version *version, uint64_t size_bytes,
	struct id128 *ret);
/* object_open_start of an object by its name in the world; needs no origin and no path. */
void object_open_named(struct object_open *open, const char *name);
/* The open or idle object of this id with a reference, or NULL. */
struct object *object_find(struct cache *cache, struct id128 id);
/*
 * Makes the object unopenable and drops it from memory; opens wait until evict_finish. 0, or -EBUSY
 * while somebody uses it. The placeholder has a record when the object was in memory: its disk_bytes
 * and opened_wall_ns are then the object's, which may be later than the index's.
 */
int object_evict_begin(struct cache *cache, struct id128 id, struct object **ret_placeholder);
void object_evict_finish(struct object *placeholder);
void objects_free_idle(struct cache *cache, size_t keep);
/* Makes sure that group is in memory; may fault index pages. 0 or -errno. */
int object_load_group(struct object *object, uint32_t group);
/* The raw file, made if there is none. Blocks. NULL: the store has no place for it. */
struct raw *object_make_raw(struct object *object);
/* What the index keeps of it. The caller holds object->lock. */
void object_record(struct object *object, struct index_object_record *ret);

/* chunk.c */
uint32_t chunk_size(const struct object *object, uint32_t chunk);
/* All with object->lock held, the group loaded. */
enum chunk_state chunk_state_of(struct object *object, uint32_t chunk);
void chunk_state_set(struct object *object, uint32_t chunk, enum chunk_state to);
struct chunk *chunk_busy(struct object *object, uint32_t chunk);
/* A busy chunk in this phase; takes a reference of the object. NULL: no memory. */
struct chunk *chunk_begin(struct object *object, uint32_t index, enum chunk_phase phase);
/* Takes the chunk out of its object (lock held); chunk_free then, without the lock. */
void chunk_detach(struct chunk *chunk);
void chunk_free(struct chunk *chunk);
/* Written or present -> evicting: its bytes in the store are bad (lock held); commit_chunk then,
 * without the lock. */
void chunk_drop(struct chunk *chunk);
/* Reads the chunk from the store; its waiters are served when its checksum is right. */
void chunk_load(struct chunk *chunk);
/* The chunk's buffer is full: its checksum is taken, and it is brought to the store. */
void chunk_keep(struct chunk *chunk);
/* A chunk that is in memory only, since the store had no place for it. What chunk_keep is to be
 * called for, without the lock, or NULL when there is no hope yet. Lock held. */
struct chunk *chunk_keep_again(struct object *object, uint32_t index, struct pool_buffer *buffer);

/* read.c */
/* Gives each piece in list its bytes out of buffer, or an error, and finishes reads that have all.
 * No lock held. */
void pieces_ready(struct list *pieces, struct pool_buffer *buffer);
void pieces_failed(struct list *pieces, int error);
/* Looks at each piece's chunk anew. */
void pieces_restart(struct list *pieces);
/* Moves the waiters of chunk that need no more than `filled` bytes to ready. object.lock held. */
void chunk_collect_ready(struct chunk *chunk, struct list *ready);
/* All chunks of the read are here: has it take a buffer of each. */
void read_gather(struct object_read *read);

/* gather.c */
void gather_init(struct gather *gather, size_t n_buffers);
void gather_destroy(struct gather *gather);
/* read_gather now, or when there is room. No lock held. */
void gather_add(struct gather *gather, struct object_read *read);
/* A read that was gathering let its buffers go. No lock held. */
void gather_done(struct gather *gather, int n_pieces);

/* readahead.c */
#define READER_STREAMS 4
struct stream {
	uint64_t next, last_use; /* last_use 0: unused */
	uint32_t window;         /* chunks worth having beyond `next` */
	uint32_t ahead;          /* chunks before this one were asked for already */
};
struct readahead {
	struct lock lock;
	uint64_t uses;                         /* lock */
	struct stream streams[READER_STREAMS]; /* lock */
};
/* Notes a read; gives the chunks [from, to) beyond it that should be asked for now. */
void readahead_note(struct readahead *readahead, uint64_t offset, uint32_t size_bytes,
	uint32_t *ret_from, uint32_t *ret_to);

struct reader {
	struct object *object;
	struct origin *origin;
	char *path;
	struct cache_account *account;
	struct readahead readahead;
};

/* fetch.c */
/*
 * Fetches the run of absent chunks that begins at first, at most count long and within loaded
 * groups. Returns how many chunks it covers, 0 when first isn't absent, -ESTALE when the version is
 * known to be gone, -ENOMEM. The piece, if any, waits for the first chunk from then on, and only
 * when chunks are covered: it may be finished at the return.
 */
int fetch_start(struct reader *reader, struct read_piece *piece, uint32_t first, uint32_t count,
	enum origin_priority priority);
void fetches_cancel_and_wait(struct cache *cache);

/* resident.c */
int resident_init(struct resident *resident, size_t n_buffers);
void resident_free(struct resident *resident);
/* A reference of the chunk's buffer, or NULL. */
struct pool_buffer *resident_get(struct resident *resident, struct id128 object, uint32_t chunk);
bool resident_has(struct resident *resident, struct id128 object, uint32_t chunk);
/* Takes over a reference. */
void resident_put(
	struct resident *resident, struct id128 object, uint32_t chunk, struct pool_buffer *buffer);
void resident_drop(struct resident *resident, struct id128 object, uint32_t chunk);
void resident_drop_object(struct resident *resident, struct id128 object);
/* Lets the oldest go. False: there is none. */
bool resident_reclaim(struct resident *resident);
/* A buffer, at the expense of residents if need be; NULL: wait for one. */
struct pool_buffer *buffer_get(struct cache *cache, enum pool_use use);
/* pool_wait, and residents give way. */
void buffer_wait(struct cache *cache, struct pool_waiter *waiter);

/* space.c */
int space_init(struct cache *cache, const char *capacity, struct why *why);
/* Takes room for bytes, evicting what can be evicted; false: there is none. Blocks. */
bool space_take(struct cache *cache, uint64_t bytes);
/* False for a moment after there was none to be had. */
bool space_has_hope(struct cache *cache);
void space_give(struct cache *cache, uint64_t bytes);
/* Corrects what was taken to what the disk uses. */
void space_correct(struct cache *cache, uint64_t before_bytes, uint64_t now_bytes);
/* How much must go before bytes fit, with a little more; 0: they fit. */
uint64_t space_missing(struct cache *cache, uint64_t bytes);
/* Something was removed: the file system is to be asked again. */
void space_freed(struct cache *cache);
/* Something that could not be evicted may be now. */
void space_hopeful(struct cache *cache);
/* A write found no space whatever was reserved. */
void space_refused(struct cache *cache);

/* evict.c */
/* Evicts oldest objects until bytes fit, and a little more, so that not every chunk evicts. False:
 * nothing could be evicted. Blocks. */
bool evict_for(struct cache *cache, uint64_t bytes);
/* One object: 0, -EBUSY, -ENOENT, -EPERM. Blocks. */
int evict_object(struct cache *cache, struct id128 id, uint64_t *ret_freed_bytes);
void evict_free(struct cache *cache);

/* commit.c */
int commit_start(struct cache *cache);
/* Commits what is queued and ends the thread. */
void commit_stop(struct cache *cache);
/* Takes over the chunk, which is written (or, with drop, to be taken out). */
void commit_chunk(struct cache *cache, struct chunk *chunk);
void commit_touch(struct cache *cache, struct id128 id, int64_t opened_wall_ns);
/* Now. Blocks. */
void commit_touches(struct cache *cache);
/* Returns when everything queued so far is durable. */
void commit_flush(struct cache *cache);

/* verify.c */
/* Checks all present chunks in a worker, once at a time, and lets passthrough be granted if they
 * are right. object.lock held. */
void verify_later(struct object *object);
/* object_open_named, waited for. Blocks. */
int object_open_wait(
	struct cache *cache, const char *name, const struct origin_attr *attr, struct object **ret);

#endif
