#include "base/map.h"

#include <errno.h>
#include <stdlib.h>

#include "base/check.h"

int map_init(struct map *map)
{
	*map = (struct map){.n_buckets = 64};
	map->buckets = calloc(map->n_buckets, sizeof *map->buckets);
	return map->buckets ? 0 : -ENOMEM;
}

void map_destroy(struct map *map)
{
	free(map->buckets);
	*map = (struct map){0};
}

struct map_node *map_find(const struct map *map, uint64_t hash, map_equal *equal, const void *key)
{
	struct map_node *node = map->buckets[hash & (map->n_buckets - 1)];

	while (node && !(node->hash == hash && equal(node, key)))
		node = node->next;
	return node;
}

static void grow(struct map *map)
{
	size_t n = map->n_buckets * 2;
	struct map_node **buckets = calloc(n, sizeof *buckets);

	if (!buckets)
		return;
	map_for_each(node, map)
	{
		struct map_node **bucket = &buckets[node->hash & (n - 1)];

		node->next = *bucket;
		*bucket = node;
	}
	free(map->buckets);
	map->buckets = buckets;
	map->n_buckets = n;
}

void map_insert(struct map *map, struct map_node *node, uint64_t hash)
{
	struct map_node **bucket;

	if (map->count >= map->n_buckets)
		grow(map);
	bucket = &map->buckets[hash & (map->n_buckets - 1)];
	node->hash = hash;
	node->next = *bucket;
	*bucket = node;
	map->count++;
}

void map_remove(struct map *map, struct map_node *node)
{
	struct map_node **link = &map->buckets[node->hash & (map->n_buckets - 1)];

	while (*link && *link != node)
		link = &(*link)->next;
	check(*link == node);
	*link = node->next;
	node->next = NULL;
	map->count--;
}
