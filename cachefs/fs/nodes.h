/*
 * nodes: what the kernel knows by a nodeid: one version of a file, or a directory.
 *
 * Invariants
 *  1. A file node's version never changes; another version of the name is another node, and the
 *     old one is superseded: reachable by id as long as the kernel or a handle knows it, by name no
 *     more.
 *  2. A directory keeps its node, and so its nodeid, for the life of the mount: a bind mount on it
 *     would vanish with it. So a `parent` pointer is always valid.
 *  3. A node has handles of one mode only, and one backing id: the kernel allows no mixture.
 *
 * One lock, nodes->lock, guards everything here and in handles.h, and the session table. It is a
 * leaf: nothing else is locked, asked or answered under it.
 */
#ifndef FS_NODES_H
#define FS_NODES_H

#include "base/lock.h"
#include "base/map.h"
#include "table.h"
#include "origin/origin.h"

struct node {
	uint64_t id, ino;
	struct node *parent; /* NULL: the root's */
	struct table_node *record;
	struct map_node by_name; /* in nodes->names unless superseded */
	/* nodes->lock from here */
	uint64_t fresh_until_ns;
	uint32_t n_told;                  /* how often it was looked up, in this life; may wrap */
	unsigned refs;                    /* handles and requests */
	unsigned n_cached, n_passthrough; /* handles, also those about to be told of */
	_Atomic bool suspect;             /* a read met another version: the next open asks again */
	bool restored; /* a predecessor's: its lookups may be more than the kernel's */
	bool doubtful; /* restored, and perhaps not known to the kernel any more */
};

struct nodes {
	struct lock lock;
	struct table *table; /* not owned */
	struct map names;
	struct node **slots; /* by the low bits of an id */
	struct node *root;
	uint32_t n_doubtful;
	_Atomic bool crowded; /* written under the lock */
	bool full;            /* said so in the log */
	bool frozen; /* the table is a successor's now: nothing is written to it any more */
};

/* mtime of every directory. 0 or -errno. */
int nodes_init(struct nodes *nodes, struct table *table, int64_t mtime_ns);
/* The nodes of an adopted table. 0, -ENOMEM, -EUCLEAN with why. */
int nodes_restore(struct nodes *nodes, struct table *table, struct why *why);
/* After their handles were restored: frees what the kernel surely doesn't know, and gives up the
 * backing ids that nothing uses (table_closing_take). -EUCLEAN with why. */
int nodes_settle(struct nodes *nodes, struct why *why);
/* Those that nodes have, malloc'ed. 0 or -ENOMEM. */
int nodes_backing_ids(struct nodes *nodes, int **ret, size_t *ret_count);
/* From now on the table stays as it is. */
void nodes_freeze(struct nodes *nodes);
/* Whatever is left is freed; no handle or request may exist. */
void nodes_free(struct nodes *nodes);

/* By nodeid, with a reference; NULL when the kernel was never told it, or forgot it. */
struct node *nodes_get(struct nodes *nodes, uint64_t id);
void node_ref(struct nodes *nodes, struct node *node);
/* The last reference frees a file that the kernel forgot. NULL is allowed. */
void node_put(struct nodes *nodes, struct node *node);

struct node_name {
	struct node *parent;
	const char *name;
	size_t name_size;
	uint64_t ino; /* path_ino() of it */
};

/*
 * The node of this name as it is now: the known one if kind and version are the same, else a new
 * one that supersedes it. Counts one lookup and takes one reference. -ENFILE at the ceiling,
 * -ENAMETOOLONG, -ENOMEM.
 */
int nodes_lookup(struct nodes *nodes, const struct node_name *name, const struct origin_attr *attr,
	uint64_t fresh_until_ns, struct node **ret);
/* Ids that are not known are ignored, and counts that are too high. */
void nodes_forget(struct nodes *nodes, uint64_t id, uint64_t n);
/* True below three quarters of the ceiling: names that nobody asked for may get nodes. */
bool nodes_are_plenty(struct nodes *nodes);
uint64_t nodes_count(struct nodes *nodes);
/* False while nodes_are_plenty, as of the last one that was made; no lock. */
bool nodes_are_crowded(const struct nodes *nodes);
/* Ids of files that nobody uses here, of up to max slots from *at on, which is 0 at first; false: no
 * more slots. The newer the greater the id. */
bool nodes_list_idle(
	struct nodes *nodes, uint32_t *at, uint32_t max, uint64_t *ret, size_t *ret_count);

/* From now on its name leads to another node. */
void nodes_supersede(struct nodes *nodes, struct node *node);
bool node_is_superseded(const struct node *node);

/* Constant facts; no lock. */
bool node_is_directory(const struct node *node);
void node_attr(const struct nodes *nodes, const struct node *node, struct origin_attr *ret);
bool node_has_version(
	const struct nodes *nodes, const struct node *node, const struct origin_version *version);
/* Path in the volume, of a name in it when name is not NULL; malloc'ed. 0, -ENAMETOOLONG or
 * -ENOMEM. */
int node_path(const struct nodes *nodes, const struct node *node, const char *name,
	size_t name_size, char **ret);
/* st_ino of a path: stable, never 0 and never the root's. */
uint64_t path_ino(const char *path);
/* How long the node may be believed, in seconds as FUSE wants it. */
double node_fresh_seconds(struct nodes *nodes, const struct node *node);

/* --- the mode of a node's handles --- */

enum claim {
	CLAIM_CACHED,
	CLAIM_PASSTHROUGH,
	CLAIM_NEEDS_BACKING, /* nothing claimed: call again with a backing id */
	CLAIM_STALE          /* nothing claimed: the node is superseded now, answer ESTALE */
};

/*
 * Counts one more handle of the mode that the node has, or that it gets by this. warm: passthrough
 * is possible and wanted. backing_id: 0, or one that the node may take; ret_backing_id is the one
 * to answer with, and when it is another, the caller's own is still the caller's to close. settle:
 * rather the mode that the node has than CLAIM_STALE.
 */
enum claim node_claim(struct nodes *nodes, struct node *node, bool warm, bool settle,
	int backing_id, int *ret_backing_id);
/* One handle less. Returns the backing id to close now, 0 for none; table_closing_end after that. */
int node_unclaim(struct nodes *nodes, struct node *node, enum table_mode mode);
/* The id that the node's passthrough handles have. */
int node_backing_id(const struct node *node);

/* --- nodes that the kernel may have forgotten while nobody listened --- */

struct doubt {
	uint64_t id;
	uint32_t n_told;
};
/* Up to max files that are doubtful and not in use now; they are doubted no more. *at is 0 at first.
 * Returns how many, 0: no more. */
size_t nodes_pick_doubtful(struct nodes *nodes, uint32_t *at, struct doubt *ret, size_t max);
/* The kernel said, after the pick, that it doesn't know the node. Returns it with a reference,
 * without lookups, for its handles to be dropped; NULL if it was told of meanwhile. */
struct node *nodes_take_unknown(struct nodes *nodes, const struct doubt *doubt);

#endif
