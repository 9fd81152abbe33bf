/*
 * table: the session table, what a successor must know to go on serving a mount whose daemon died.
 *
 * It lies in a memfd, is written before the reply that depends on it, by plain stores, and holds
 * INIT and its reply, the nodes, the handles, and the backing ids.
 *
 * A record that SIGKILL left half-written must be told from a whole one: what never changes in a
 * record is written first, then its `sum` (of all that, never 0) with release order; a record is
 * retired by sum = 0 before anything else of it changes. What does change (backing_id, superseded)
 * is one word each, right at any moment. So sum 0 is "free, or not finished: the kernel was told
 * nothing of it", and any other sum must match.
 *
 * Names and versions are kept here only; the rest of the room points at them. They stay where they
 * are as long as the record is live. Not locked: the nodes' lock guards all but INIT, which is
 * written by one thread before there are others.
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
	_Atomic int32_t backing_id;  /* 0: none */
	_Atomic uint32_t superseded; /* 1: a newer node has its name */
	char text[128];              /* name, NUL, version, NUL */
};

struct table_handle {
	_Atomic uint64_t sum;
	uint64_t fh, node;
	uint32_t mode;  /* enum table_mode */
	uint32_t flags; /* of open(2) */
};

struct table;

/* 0 or -errno. Both ceilings below 1 << TABLE_SLOT_BITS. Memory is used as records come. */
int table_new(uint32_t max_nodes, uint32_t max_handles, struct table **ret);
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

/* 0, -ENFILE. */
int table_add_handle(struct table *table, uint64_t node, enum table_mode mode, uint32_t flags,
	struct table_handle **ret);
void table_remove_handle(struct table *table, struct table_handle *handle);

/* Reads it as a successor must, who trusts nothing in it. 0, or -EUCLEAN with why. */
int table_check(int fd, struct why *why);

#endif
