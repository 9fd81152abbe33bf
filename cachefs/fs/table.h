/*
 * table: the session table, what a successor must know to go on serving a mount whose daemon died.
 *
 * It lies in a memfd, is written before the reply that depends on it, by plain stores, and holds
 * INIT and its reply, the nodes, the handles, the backing ids, and of requests: which are in flight,
 * the results of those that must not be done twice (table_requests.c), and which opens were answered
 * ESTALE (stale.h).
 *
 * A record that SIGKILL left half-written must be told from a whole one: what never changes in a
 * record is written first, then its `sum` (of all that, never 0) with release order; a record is
 * retired by sum = 0 before anything else of it changes. What does change (lookups, backing_id,
 * superseded) is one word each, right at any moment. So sum 0 is "free, or not finished: the kernel
 * was told nothing of it", and any other sum must match.
 *
 * The words that change err on the safe side: `lookups` is never less than the kernel's count, so
 * that 0 means the kernel doesn't know the node.
 *
 * Names and versions are kept here only; the rest of the room points at them. They stay where they
 * are as long as the record is live. Not locked: the nodes' lock guards nodes, handles and backing
 * ids; INIT is written by one thread before there are others; what is about requests has atomic
 * words only.
 */
#ifndef FS_TABLE_H
#define FS_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/why.h"
#include "origin/origin.h"

#define TABLE_INIT_MAX 512
/* An id is a slot in the low bits and a serial above: found without a search, never used twice. */
#define TABLE_SLOT_BITS 20
#define TABLE_SLOT_MASK ((1u << TABLE_SLOT_BITS) - 1)
#define TABLE_NAME_MAX  1023
#define TABLE_ROOT_ID   1ull
/* As many requests as the kernel may have under way before one is refused. */
#define TABLE_IN_FLIGHT  65536u
#define TABLE_RESULT_MAX 176 /* the longest, CREATE's, is 160 */

enum table_mode { TABLE_CACHED = 1, TABLE_PASSTHROUGH, TABLE_DIRECTORY };

struct table_node {
	_Atomic uint64_t sum;
	uint64_t id;
	uint64_t parent; /* of an older serial always, so that there are no cycles; the root's: 0 */
	uint64_t size_bytes;
	int64_t mtime_ns;
	uint32_t long_text; /* 1 + index of the long text that holds the strings, 0: `text` does */
	uint8_t kind;       /* enum origin_kind */
	uint8_t strong;
	uint16_t name_size;
	_Atomic uint64_t lookups;    /* at least the kernel's count */
	_Atomic int32_t backing_id;  /* 0: none */
	_Atomic uint32_t superseded; /* 1: a newer node has its name */
	char text[128];              /* name, NUL, version, NUL */
};

struct table_handle {
	_Atomic uint64_t sum;
	uint64_t fh; /* the OPEN's or OPENDIR's unique */
	uint64_t node;
	uint32_t mode;  /* enum table_mode */
	uint32_t flags; /* of open(2) */
};

struct table;
struct stale_slot;

/* 0 or -errno. Both ceilings below 1 << TABLE_SLOT_BITS. Memory is used as records come. */
int table_new(uint32_t max_nodes, uint32_t max_handles, struct table **ret);
/* A predecessor's. Owns fd from now on, also on failure. 0, or -EUCLEAN and others with why. */
int table_adopt(int fd, struct table **ret, struct why *why);
/* NULL is allowed. */
void table_free(struct table *table);
/* The memfd, owned by the table. */
int table_fd(const struct table *table);
uint32_t table_max_nodes(const struct table *table);
uint32_t table_nodes(const struct table *table); /* live now */
uint32_t table_handles(const struct table *table);

/* -EFBIG when it doesn't fit. */
int table_put_init(struct table *table, const void *request, size_t size);
int table_put_init_reply(struct table *table, const void *reply, size_t size);
/* Size 0: there was none. */
const void *table_init(const struct table *table, size_t *ret_size);
const void *table_init_reply(const struct table *table, size_t *ret_size);

/* What a new node is, and its place. */
struct table_node_key {
	uint64_t parent;
	const char *name;
	size_t name_size;
	const struct origin_attr *attr;
};
/* 0, -ENFILE at a ceiling. The root is the first. */
int table_add_node(struct table *table, const struct table_node_key *key, struct table_node **ret);
void table_remove_node(struct table *table, struct table_node *node);
/* NUL-terminated. */
const char *table_name(const struct table *table, const struct table_node *node);
const char *table_version(const struct table *table, const struct table_node *node);

/* fh is no other handle's. 0, -ENFILE. */
int table_add_handle(struct table *table, uint64_t fh, uint64_t node, enum table_mode mode,
	uint32_t flags, struct table_handle **ret);
void table_remove_handle(struct table *table, struct table_handle *handle);

/* The live ones, after adoption: the next from *at on, which is 0 at first. NULL: no more. */
struct table_node *table_next_node(const struct table *table, uint32_t *at);
struct table_handle *table_next_handle(const struct table *table, uint32_t *at);

/* The kernel gave this backing id out. */
void table_saw_backing(struct table *table, int backing_id);
/* The greatest that was seen: the kernel counts up. */
int table_last_backing(const struct table *table);
/* From before the id leaves its node until the kernel was told: a successor does it otherwise. */
void table_closing_begin(struct table *table, int backing_id);
void table_closing_end(struct table *table, int backing_id);
/* Takes the next out that a predecessor left, 0: none. */
int table_closing_take(struct table *table);

/*
 * Requests in flight, by unique without the bit that marks those that come again. How they are kept
 * is decided before the first: all of them, where the kernel can't send them again, or only those
 * whose results are to be kept.
 */
void table_keep_all(struct table *table, bool all);
bool table_keeps_all(const struct table *table);
/* False: as many are under way as can be, and this one must be refused. once: its result is to be
 * kept. */
bool table_request_begin(struct table *table, uint64_t unique, bool once);
/* The greatest that ever began; 0: none. Even. */
uint64_t table_last_request(const struct table *table);
/* True if its result is to be kept. */
bool table_request_is_once(const struct table *table, uint64_t unique);
/* The kernel took the answer. One that isn't known is ignored. */
void table_request_end(struct table *table, uint64_t unique);
/* Calls each for all that a predecessor left in flight, and forgets them. */
void table_requests_drain(struct table *table, void (*each)(void *arg, uint64_t unique), void *arg);

/*
 * Results by unique. One lies here from before its reply is written until the kernel took it, and
 * RESEND only brings back what the kernel took no answer of: so there are never more than threads
 * that answer at one moment, and those that earlier lives left. 0, -ENOSPC, -EFBIG.
 */
int table_put_result(struct table *table, uint64_t unique, const void *reply, size_t size);
/* A copy. 0: none. */
size_t table_get_result(const struct table *table, uint64_t unique, void *ret, size_t size);
void table_drop_result(struct table *table, uint64_t unique);
/* What predecessors left and nobody asked for again. */
void table_drop_old_results(struct table *table);

/* The notes of opens that were answered ESTALE; any content is harmless. */
struct stale_slot *table_stale_slots(const struct table *table);

/* Reads it as a successor must, who trusts nothing in it. 0, or -EUCLEAN with why. */
int table_check(int fd, struct why *why);
/* The same of what doesn't change in its life: its version and sizes. Right while a daemon uses it. */
int table_check_version(int fd, struct why *why);

#endif
