/*
 * map: an intrusive hash table that grows. The caller's lock guards it.
 *
 * The owner embeds a struct map_node, hashes its key with base/hash.h and compares with a function
 * of its own.
 */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map_node {
	struct map_node *next;
	uint64_t hash;
};

struct map {
	struct map_node **buckets;
	size_t n_buckets; /* a power of two */
	size_t count;
};

typedef bool map_equal(const struct map_node *node, const void *key);

/* 0 or -ENOMEM. */
int map_init(struct map *map);
/* The map must be empty, or its nodes are simply forgotten. */
void map_destroy(struct map *map);
struct map_node *map_find(const struct map *map, uint64_t hash, map_equal *equal, const void *key);
/* Sets node->hash. The key must not be in the map. Growth that finds no memory is put off, not an
 * error. */
void map_insert(struct map *map, struct map_node *node, uint64_t hash);
/* The node must be in the map. */
void map_remove(struct map *map, struct map_node *node);

/* Visits every node; the body may not insert or remove other nodes than the visited one. */
#define map_for_each(node, map)                                                                    \
	for (size_t b_ = 0; b_ < (map)->n_buckets; b_++)                                           \
		for (struct map_node *node = (map)->buckets[b_],                                   \
				     *after_ = node ? node->next : NULL;                           \
			node; node = after_, after_ = node ? node->next : NULL)

#endif
