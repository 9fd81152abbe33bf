#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "nodes_private.h"

static int contradiction(const struct node *node, const char *what, struct why *why)
{
	return why_set(
		why, -EUCLEAN, "session table: node %llu %s", (unsigned long long)node->id, what);
}

static int restore_node(struct nodes *nodes, struct table_node *record)
{
	struct node *node = calloc(1, sizeof *node);

	if (!node)
		return -ENOMEM;
	node->id = record->id;
	node->record = record;
	node->restored = true;
	nodes_put_slot(nodes, node);
	if (node->id == TABLE_ROOT_ID)
		nodes->root = node;
	return 0;
}

/* Once all parents are there. */
static int place_node(struct nodes *nodes, struct node *node, struct why *why)
{
	struct node_name name = {
		node->parent, table_name(nodes->table, node->record), node->record->name_size, 0};
	struct name_key key = {nodes, &name, node->record->kind};
	char *path;
	int r = node_path(nodes, node, NULL, 0, &path);

	if (r)
		return why_set(why, r, "session table: %s", strerror(-r));
	node->ino = name.ino = path_ino(path);
	free(path);
	if (node == nodes->root || node_is_superseded(node))
		return 0;
	if (nodes_find_name(nodes, &key))
		return contradiction(node, "has another's name", why);
	map_insert(&nodes->names, &node->by_name, nodes_name_hash(&key));
	return 0;
}

int nodes_restore(struct nodes *nodes, struct table *table, struct why *why)
{
	struct table_node *record;
	uint32_t at = 0;
	int r;

	*nodes = (struct nodes){.table = table};
	lock_init(&nodes->lock);
	nodes->slots = calloc(table_max_nodes(table), sizeof(struct node *));
	r = nodes->slots ? map_init(&nodes->names) : -ENOMEM;
	while (!r && (record = table_next_node(table, &at)))
		r = restore_node(nodes, record);
	if (r)
		why_set(why, r, "session table: %s", strerror(-r));
	for (at = 0; !r && (record = table_next_node(table, &at));) {
		struct node *node = nodes_find_id(nodes, record->id);

		node->parent = record->parent ? nodes_find_id(nodes, record->parent) : NULL;
	}
	for (at = 0; !r && (record = table_next_node(table, &at));)
		r = place_node(nodes, nodes_find_id(nodes, record->id), why);
	if (r)
		nodes_free(nodes);
	return r;
}

static int settle(struct nodes *nodes, struct node *node, struct why *why)
{
	if (node->n_cached && node->n_passthrough)
		return contradiction(node, "has handles of two modes", why);
	if (node->n_passthrough && !node_backing_id(node))
		return contradiction(node, "has no backing id", why);
	if (!node->n_passthrough && node_backing_id(node))
		node_give_up_backing(nodes, node);
	if (node_lookups(node))
		node_doubt(nodes, node);
	nodes_free_if_unused(nodes, node);
	return 0;
}

int nodes_settle(struct nodes *nodes, struct why *why)
{
	struct table_node *record;
	uint32_t at = 0;
	int r = 0;

	lock_take(&nodes->lock);
	while (!r && (record = table_next_node(nodes->table, &at)))
		r = settle(nodes, nodes_find_id(nodes, record->id), why);
	lock_drop(&nodes->lock);
	return r;
}

int nodes_backing_ids(struct nodes *nodes, int **ret, size_t *ret_count)
{
	struct table_node *record;
	size_t n = 0;
	int *ids;

	lock_take(&nodes->lock);
	/* One node or more: the root. */
	ids = malloc(table_nodes(nodes->table) * sizeof *ids);
	for (uint32_t at = 0; ids && (record = table_next_node(nodes->table, &at));) {
		if (atomic_load(&record->backing_id))
			ids[n++] = atomic_load(&record->backing_id);
	}
	lock_drop(&nodes->lock);
	if (!ids)
		return -ENOMEM;
	*ret = ids;
	*ret_count = n;
	return 0;
}

void nodes_freeze(struct nodes *nodes)
{
	lock_take(&nodes->lock);
	nodes->frozen = true;
	lock_drop(&nodes->lock);
}

/* Requests hold references too: whoever asks for a node knows it. */
static bool is_idle(const struct node *node)
{
	return node->refs == node->n_cached + node->n_passthrough;
}

size_t nodes_pick_doubtful(struct nodes *nodes, uint32_t *at, struct doubt *ret, size_t max)
{
	uint32_t end = table_max_nodes(nodes->table);
	size_t n = 0;

	lock_take(&nodes->lock);
	for (; nodes->n_doubtful && n < max && *at < end; ++*at) {
		struct node *node = nodes->slots[*at];

		if (!node || !node->doubtful || !is_idle(node))
			continue;
		node->doubtful = false;
		nodes->n_doubtful--;
		ret[n++] = (struct doubt){node->id, node->n_told};
	}
	lock_drop(&nodes->lock);
	return n;
}

/* The kernel was asked between the pick and now. A reply that tells it of the node holds a
 * reference until it is written, and counts in n_told before: without either the kernel's answer
 * holds still. */
struct node *nodes_take_unknown(struct nodes *nodes, const struct doubt *doubt)
{
	struct node *node;

	lock_take(&nodes->lock);
	node = nodes->frozen ? NULL : nodes_find_id(nodes, doubt->id);
	if (node && node->n_told == doubt->n_told && is_idle(node)) {
		node_set_lookups(node, 0);
		node->refs++;
	} else {
		node = NULL;
	}
	lock_drop(&nodes->lock);
	return node;
}
