/*
 * handles: what the kernel knows by an fh: one open of a file or a directory. The fh is the unique of
 * the OPEN or OPENDIR, so that one that comes again after a take-over finds what it made.
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
	/* Of a file; one reference. Set once: a predecessor's handle has it from its first READ on. */
	_Atomic(struct object *) object;
	_Atomic(struct reader *) reader; /* made when first needed, then never changes */
	/* Of a directory, nodes->lock; one reference. Set once: a predecessor's handle has it from its
	 * first READDIR on. */
	struct listing *listing;
	uint64_t fresh_until_ns; /* nodes->lock: the listing */
	unsigned refs;           /* nodes->lock */
	struct map_node by_fh;   /* nodes->lock; in handles->by_fh if it has a record */
};

struct handles {
	struct nodes *nodes; /* not owned */
	struct map by_fh;    /* nodes->lock */
};

int handles_init(struct handles *handles, struct nodes *nodes);
/* After handles_init: those of an adopted table; then nodes_settle. 0, -ENOMEM, -EUCLEAN with why. */
int handles_restore(struct handles *handles, struct why *why);
/* Drops what the kernel never released: the connection is gone. */
void handles_free(struct handles *handles);

/*
 * A handle that is not in the table, with one reference. Takes over the caller's references of
 * node, and of object or listing, also on failure. NULL: no memory.
 */
struct handle *handle_new(struct handles *handles, struct node *node, enum table_mode mode,
	struct object *object, struct listing *listing);
/* Gives it this fh and a record; the handles hold a reference of their own from now on. 0,
 * -ENFILE, -EIO: the kernel used the unique twice. */
int handles_add(struct handles *handles, struct handle *handle, uint64_t fh, uint32_t flags);
/* Takes over the reference of object, which becomes the handle's if it has none yet. */
void handle_give_object(struct handle *handle, struct object *object);
/* The same of a listing. */
void handle_give_listing(struct handles *handles, struct handle *handle, struct listing *listing,
	uint64_t fresh_until_ns);
/* The handle's own reference, which lasts as long as the handle; NULL: it has none yet. */
struct listing *handle_listing(
	struct handles *handles, struct handle *handle, uint64_t *ret_fresh_until_ns);
/* As handles_take, by fh alone. */
struct handle *handles_take_fh(struct handles *handles, uint64_t fh);
/* Takes any out that the node has, with the handles' own reference; NULL: it has none. */
struct handle *handles_take_of(struct handles *handles, const struct node *node);
/* With a reference; NULL when there is none of that fh, or it is of another node. */
struct handle *handles_get(struct handles *handles, uint64_t fh, uint64_t node);
/* Takes it out, with the handles' own reference; NULL when there is none. */
struct handle *handles_take(struct handles *handles, uint64_t fh, uint64_t node);
/* NULL is allowed. */
void handle_put(struct handles *handles, struct handle *handle);
uint64_t handles_count(struct handles *handles);

#endif
