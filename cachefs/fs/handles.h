/*
 * handles: what the kernel knows by an fh: one open of a file or a directory.
 *
 * A handle holds its node, its object and its reader or listing until the last reference, which may
 * be a read whose process was killed and whose bytes are still to come. Guarded by nodes->lock.
 */
#ifndef FS_HANDLES_H
#define FS_HANDLES_H

#include "cache/object.h"
#include "cache/tree.h"
#include "nodes.h"

struct handle {
	uint64_t fh; /* 0: not known to the kernel, of one read only */
	struct table_handle *record;
	struct node *node; /* one reference */
	enum table_mode mode;
	struct object *object;           /* of a file; one reference */
	_Atomic(struct reader *) reader; /* made when first needed, then never changes */
	struct listing *listing;         /* of a directory; one reference */
	uint64_t fresh_until_ns;         /* the listing */
	unsigned refs;                   /* nodes->lock */
};

struct handles {
	struct nodes *nodes;   /* not owned */
	struct handle **slots; /* nodes->lock; by the low bits of fh */
	uint32_t n_slots;
};

int handles_init(struct handles *handles, struct nodes *nodes, uint32_t n_slots);
/* Drops what the kernel never released: the connection is gone. */
void handles_free(struct handles *handles);

/*
 * A handle that is not in the table, with one reference. Takes over the caller's references of
 * node, and of object or listing, also on failure. NULL: no memory.
 */
struct handle *handle_new(struct handles *handles, struct node *node, enum table_mode mode,
	struct object *object, struct listing *listing);
/* Gives it an fh and a record; the handles hold a reference of their own from now on. 0, -ENFILE.
 */
int handles_add(struct handles *handles, struct handle *handle, uint32_t flags);
/* With a reference; NULL when there is none of that fh, or it is of another node. */
struct handle *handles_get(struct handles *handles, uint64_t fh, uint64_t node);
/* Takes it out, with the handles' own reference; NULL when there is none. */
struct handle *handles_take(struct handles *handles, uint64_t fh, uint64_t node);
/* NULL is allowed. */
void handle_put(struct handles *handles, struct handle *handle);
uint64_t handles_count(struct handles *handles);

#endif
