/*
 * object: one version of one object, and the bytes of it.
 *
 * Life of a chunk (CHUNK_SIZE bytes of an object, the last one shorter):
 *     absent -> fetching -> written -> present -> evicting -> absent
 * `written` is readable in this life of the daemon; only `present` is in the index, after its bytes
 * are durable.
 *
 * Invariants
 *  1. Bytes read through one object are of one version: each GET carries the version, and a changed
 *     object is -ESTALE.
 *  2. N readers of an absent chunk make one GET.
 *  3. Bytes that leave the store through object_read matched their checksum; a chunk that doesn't
 *     is dropped and fetched again.
 *  4. object_backing_fd gives a descriptor only of a complete file, verified since the last crash
 *     of the machine, whose length, blocks and ctime are those it had when it was completed.
 */
#ifndef CACHE_OBJECT_H
#define CACHE_OBJECT_H

#include <sys/uio.h>

#include "base/list.h"
#include "base/pool.h"

#include "cache/cache.h"
#include "origin/origin.h"

struct object; /* reference counted; at most one in memory for each (object name, version) */

/* Finds or makes the object of this version. */
struct object_open {
	struct cache *cache;
	struct origin *origin;   /* asked for what is absent by readers of this open; the object may
				    be shared with others */
	const char *path;        /* the caller's until done */
	struct origin_attr attr; /* as looked up: size, version, mtime */
	/* error: 0, -ENAMETOOLONG, -ENOMEM, -EMFILE. A store that is full or broken is no error:
	 * the object is read uncached. */
	void (*done)(struct object_open *open, int error);
	struct object *object; /* result: one reference */
	void *private[4];
};
void object_open_start(struct object_open *open);
struct object *object_ref(struct object *object);
void object_unref(struct object *object);

uint64_t object_size(const struct object *object);
const struct origin_version *object_version(const struct object *object);
/* The descriptor for passthrough, owned by the object, valid while it is referenced; -EAGAIN: not
 * warm, or to be verified first (which this starts). Does one fstat. */
int object_backing_fd(struct object *object);

/* Who reads: one open handle. Keeps its own readahead. Owns a reference of object and origin. */
struct reader;
int reader_new(struct object *object, struct origin *origin, const char *path,
	struct cache_account *account, struct reader **ret);
/* No read may be under way. NULL is allowed. */
void reader_free(struct reader *reader);

#define OBJECT_READ_MAX    (4u << 20)
#define OBJECT_READ_PIECES (OBJECT_READ_MAX / CHUNK_SIZE + 1)

struct object_read;
struct read_piece { /* private */
	struct object_read *read;
	struct list link;
	struct pool_buffer *buffer;
	uint32_t chunk, from, to;
};

struct object_read {
	struct reader *reader;
	uint64_t offset;
	uint32_t size_bytes; /* at most OBJECT_READ_MAX; cut at the end of the object */
	/*
	 * error 0: the bytes are in iov[0..iovcnt), valid during the call; iovcnt 0 is the end of
	 * the object. -ESTALE: the object changed before these bytes were fetched. -EIO: origin
	 * gave up. -EACCES, -ENOENT: from the origin, now.
	 */
	void (*done)(struct object_read *read, int error, const struct iovec *iov, int iovcnt);
	/* private */
	struct read_piece pieces[OBJECT_READ_PIECES];
	struct list gather;
	bool gathering; /* holds, or waits for, a buffer of each piece at once */
	_Atomic int waiting;
	_Atomic int error;
	_Atomic bool stalled; /* waits for the origin, and is counted so */
	_Atomic bool waited;  /* has waited for the store, or for memory to hold its bytes */
	bool missed;          /* has waited for the origin */
	uint64_t started_ns;
	int n_pieces;
};
void object_read_start(struct object_read *read);

/* --- what commands ask --- */

struct object_status {
	uint64_t size_bytes, cached_bytes, disk_bytes;
	bool warm; /* present, complete, verified */
	bool pinned;
	int64_t pinned_until_ns;
};
/* By name and version, without opening: what the index knows. 0; an object that was never cached is
 * all zero but size. */
int cache_object_status(struct cache *cache, const struct origin *origin, const char *path,
	const struct origin_attr *attr, struct object_status *ret);

/* Bytes in the store of the objects at or below each of count origins' roots. One pass over the
 * index, about a microsecond an object. 0, -ENAMETOOLONG, -ENOMEM, -EIO. */
int cache_origin_bytes(
	struct cache *cache, struct origin *const *origins, size_t count, uint64_t *ret_bytes);
/* The sizes of all objects that are pinned now, cached or not. A pass as above. 0, -EIO. */
int cache_pinned_bytes(struct cache *cache, uint64_t *ret_bytes);

/* These block; call them from a thread that may. */

/* until_ns: wall clock; INT64_MAX: for ever; 0: unpins. Of a version that is not cached yet it
 * makes the record. */
int cache_object_pin(struct cache *cache, const struct origin *origin, const char *path,
	const struct origin_attr *attr, int64_t until_ns);
/* 0, -ENOENT: not cached, -EBUSY: open or mapped, -EPERM: pinned. */
int cache_object_evict(struct cache *cache, const struct origin *origin, const char *path,
	const struct origin_attr *attr, uint64_t *ret_freed_bytes);

struct verify_result {
	uint64_t objects, chunks, bytes; /* checked */
	uint64_t bad_chunks;             /* dropped: the next read fetches them */
	uint64_t repaired_chunks;        /* fetched again and checked (repair) */
	uint64_t unreadable_objects;     /* file can't be read, or is of another length: dropped */
	/* Records whose file is gone, as an eviction leaves them that a kill cut off: nothing is
	 * wrong, and they are dropped too. */
	uint64_t forgotten_objects;
	uint64_t stray_files; /* raw files without a record: removed */
	char first_bad[256];  /* name of the first, "" */
};
/* One object. repair needs the origin and path that it is fetched by. Adds to result. */
int cache_object_verify(struct cache *cache, struct origin *origin, const char *path,
	const struct origin_attr *attr, bool repair, struct verify_result *result);
/* Everything in the store. */
int cache_verify_all(struct cache *cache, struct verify_result *result);

#endif
