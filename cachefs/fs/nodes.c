#include "nodes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "nodes_private.h"

/* A file and a directory may have had the same name one after the other: the kind is part of the
 * key, so that the directory's node is found again. */
uint64_t nodes_name_hash(const struct name_key *key)
{
	uint64_t ino_and_kind = key->name->ino << 1 | key->kind;

	return hash64(&ino_and_kind, sizeof ino_and_kind);
}

static bool name_equal(const struct map_node *at, const void *arg)
{
	const struct node *node = container_of(at, struct node, by_name);
	const struct name_key *key = arg;
	const struct node_name *name = key->name;

	return node->parent == name->parent && node->record->kind == key->kind &&
	       node->record->name_size == name->name_size &&
	       !memcmp(table_name(key->nodes->table, node->record), name->name, name->name_size);
}

struct node *nodes_find_name(struct nodes *nodes, const struct name_key *key)
{
	struct map_node *at = map_find(&nodes->names, nodes_name_hash(key), name_equal, key);

	return at ? container_of(at, struct node, by_name) : NULL;
}

void nodes_put_slot(struct nodes *nodes, struct node *node)
{
	nodes->slots[node->id & TABLE_SLOT_MASK] = node;
}

uint64_t node_lookups(const struct node *node)
{
	return atomic_load_explicit(&node->record->lookups, memory_order_relaxed);
}

void node_set_lookups(struct node *node, uint64_t n)
{
	atomic_store_explicit(&node->record->lookups, n, memory_order_release);
}

static int make_root(struct nodes *nodes, int64_t mtime_ns)
{
	struct origin_attr attr = {.kind = ORIGIN_DIR, .mtime_ns = mtime_ns};
	struct table_node_key key = {.name = "", .attr = &attr};
	struct node *root = calloc(1, sizeof *root);
	int r;

	if (!root)
		return -ENOMEM;
	r = table_add_node(nodes->table, &key, &root->record);
	check(!r && root->record->id == TABLE_ROOT_ID);
	root->id = root->ino = TABLE_ROOT_ID;
	node_set_lookups(root, 1);
	nodes->root = root;
	nodes_put_slot(nodes, root);
	return 0;
}

int nodes_init(struct nodes *nodes, struct table *table, int64_t mtime_ns)
{
	int r;

	*nodes = (struct nodes){.table = table};
	lock_init(&nodes->lock);
	nodes->slots = calloc(table_max_nodes(table), sizeof(struct node *));
	r = nodes->slots ? map_init(&nodes->names) : -ENOMEM;
	if (!r)
		r = make_root(nodes, mtime_ns);
	if (r)
		nodes_free(nodes);
	return r;
}

void nodes_free(struct nodes *nodes)
{
	uint32_t n = nodes->slots ? table_max_nodes(nodes->table) : 0;

	for (uint32_t i = 0; i < n; i++) {
		check(!nodes->slots[i] || !nodes->slots[i]->refs);
		free(nodes->slots[i]);
	}
	free(nodes->slots);
	map_destroy(&nodes->names);
	lock_destroy(&nodes->lock);
}

struct node *nodes_find_id(struct nodes *nodes, uint64_t id)
{
	uint64_t slot = id & TABLE_SLOT_MASK;
	struct node *node = slot < table_max_nodes(nodes->table) ? nodes->slots[slot] : NULL;

	return node && node->id == id ? node : NULL;
}

struct node *nodes_get(struct nodes *nodes, uint64_t id)
{
	struct node *node;

	lock_take(&nodes->lock);
	node = nodes_find_id(nodes, id);
	if (node)
		node->refs++;
	lock_drop(&nodes->lock);
	return node;
}

void node_ref(struct nodes *nodes, struct node *node)
{
	lock_take(&nodes->lock);
	node->refs++;
	lock_drop(&nodes->lock);
}

void node_supersede(struct nodes *nodes, struct node *node)
{
	if (nodes->frozen || node_is_superseded(node))
		return;
	map_remove(&nodes->names, &node->by_name);
	atomic_store_explicit(&node->record->superseded, 1, memory_order_release);
}

void nodes_free_if_unused(struct nodes *nodes, struct node *node)
{
	if (nodes->frozen || node_lookups(node) || node->refs || node_is_directory(node))
		return;
	check(!node->n_cached && !node->n_passthrough);
	nodes->n_doubtful -= node->doubtful;
	if (!node_is_superseded(node))
		map_remove(&nodes->names, &node->by_name);
	nodes->slots[node->id & TABLE_SLOT_MASK] = NULL;
	table_remove_node(nodes->table, node->record);
	free(node);
}

void node_put(struct nodes *nodes, struct node *node)
{
	if (!node)
		return;
	lock_take(&nodes->lock);
	check(node->refs > 0);
	node->refs--;
	nodes_free_if_unused(nodes, node);
	lock_drop(&nodes->lock);
}

static int full(struct nodes *nodes)
{
	if (!nodes->full)
		log_warn("nodes_full", "ceiling=%u names are refused until the kernel forgets some",
			table_max_nodes(nodes->table));
	nodes->full = true;
	return -ENFILE;
}

static bool below_crowd(const struct nodes *nodes)
{
	return table_nodes(nodes->table) < table_max_nodes(nodes->table) / 4 * 3;
}

static int make_node(struct nodes *nodes, const struct name_key *key,
	const struct origin_attr *attr, struct node **ret)
{
	const struct node_name *name = key->name;
	struct origin_attr own = *attr;
	struct table_node_key record = {name->parent->id, name->name, name->name_size, &own};
	struct node *node = calloc(1, sizeof *node);

	if (!node)
		return -ENOMEM;
	if (own.kind == ORIGIN_DIR)
		own = (struct origin_attr){
			.kind = ORIGIN_DIR, .mtime_ns = nodes->root->record->mtime_ns};
	if (table_add_node(nodes->table, &record, &node->record)) {
		free(node);
		return full(nodes);
	}
	nodes->full = false;
	atomic_store(&nodes->crowded, !below_crowd(nodes));
	node->id = node->record->id;
	node->ino = name->ino;
	node->parent = name->parent;
	nodes_put_slot(nodes, node);
	map_insert(&nodes->names, &node->by_name, nodes_name_hash(key));
	*ret = node;
	return 0;
}

static bool is_same(struct nodes *nodes, const struct node *node, const struct origin_attr *attr)
{
	return attr->kind == ORIGIN_DIR || node_has_version(nodes, node, &attr->version);
}

static int get_or_make(struct nodes *nodes, const struct name_key *key,
	const struct origin_attr *attr, struct node **ret)
{
	struct node *known = nodes_find_name(nodes, key);
	int r;

	if (known && is_same(nodes, known, attr)) {
		*ret = known;
		return 0;
	}
	if (known)
		node_supersede(nodes, known);
	r = make_node(nodes, key, attr, ret);
	if (known)
		nodes_free_if_unused(nodes, known);
	return r;
}

int nodes_lookup(struct nodes *nodes, const struct node_name *name, const struct origin_attr *attr,
	uint64_t fresh_until_ns, struct node **ret)
{
	struct name_key key = {nodes, name, attr->kind};
	struct node *node;
	int r;

	if (name->name_size > TABLE_NAME_MAX)
		return -ENAMETOOLONG;
	lock_take(&nodes->lock);
	r = get_or_make(nodes, &key, attr, &node);
	if (!r) {
		node_set_lookups(node, node_lookups(node) + 1);
		node->n_told++;
		node->refs++;
		node->fresh_until_ns = fresh_until_ns;
		*ret = node;
	}
	lock_drop(&nodes->lock);
	return r;
}

void node_doubt(struct nodes *nodes, struct node *node)
{
	if (node->doubtful || node_is_directory(node))
		return;
	node->doubtful = true;
	nodes->n_doubtful++;
}

void nodes_forget(struct nodes *nodes, uint64_t id, uint64_t n)
{
	struct node *node;

	lock_take(&nodes->lock);
	node = nodes->frozen ? NULL : nodes_find_id(nodes, id);
	if (node) {
		node_set_lookups(node,
			node_lookups(node) - (n < node_lookups(node) ? n : node_lookups(node)));
		/* The kernel forgets all at once, as a rule: what is left was counted twice. */
		if (node_lookups(node) && node->restored)
			node_doubt(nodes, node);
		nodes_free_if_unused(nodes, node);
	}
	lock_drop(&nodes->lock);
}

bool nodes_are_plenty(struct nodes *nodes)
{
	bool plenty;

	lock_take(&nodes->lock);
	plenty = below_crowd(nodes);
	lock_drop(&nodes->lock);
	return plenty;
}

bool nodes_are_crowded(const struct nodes *nodes)
{
	return atomic_load(&nodes->crowded);
}

bool nodes_list_idle(
	struct nodes *nodes, uint32_t *at, uint32_t max, uint64_t *ret, size_t *ret_count)
{
	uint32_t end = table_max_nodes(nodes->table);

	*ret_count = 0;
	if (*at >= end)
		return false;
	if (end - *at > max)
		end = *at + max;
	lock_take(&nodes->lock);
	for (; *at < end; ++*at) {
		const struct node *node = nodes->slots[*at];

		if (node && !node->refs && !node_is_directory(node))
			ret[(*ret_count)++] = node->id;
	}
	lock_drop(&nodes->lock);
	return true;
}

uint64_t nodes_count(struct nodes *nodes)
{
	uint64_t count;

	lock_take(&nodes->lock);
	count = table_nodes(nodes->table);
	lock_drop(&nodes->lock);
	return count;
}

void nodes_supersede(struct nodes *nodes, struct node *node)
{
	check(!node_is_directory(node));
	lock_take(&nodes->lock);
	node_supersede(nodes, node);
	lock_drop(&nodes->lock);
}

bool node_is_superseded(const struct node *node)
{
	return atomic_load_explicit(&node->record->superseded, memory_order_acquire);
}

bool node_is_directory(const struct node *node)
{
	return node->record->kind == ORIGIN_DIR;
}

void node_attr(const struct nodes *nodes, const struct node *node, struct origin_attr *ret)
{
	const struct table_node *record = node->record;

	*ret = (struct origin_attr){
		.kind = record->kind,
		.size_bytes = record->size_bytes,
		.mtime_ns = record->mtime_ns,
		.version.strong = record->strong,
	};
	strcpy(ret->version.text, table_version(nodes->table, record));
}

bool node_has_version(
	const struct nodes *nodes, const struct node *node, const struct origin_version *version)
{
	return !strcmp(table_version(nodes->table, node->record), version->text);
}

int node_path(const struct nodes *nodes, const struct node *node, const char *name,
	size_t name_size, char **ret)
{
	size_t size = name ? name_size : 0;
	char *path, *at;

	for (const struct node *up = node; up->parent; up = up->parent)
		size += up->record->name_size + (size != 0);
	if (size >= ORIGIN_PATH_MAX)
		return -ENAMETOOLONG;
	path = malloc(size + 1);
	if (!path)
		return -ENOMEM;
	at = path + size;
	*at = '\0';
	if (name) {
		at -= name_size;
		memcpy(at, name, name_size);
	}
	for (const struct node *up = node; up->parent; up = up->parent) {
		if (at != path + size)
			*--at = '/';
		at -= up->record->name_size;
		memcpy(at, table_name(nodes->table, up->record), up->record->name_size);
	}
	check(at == path);
	*ret = path;
	return 0;
}

uint64_t path_ino(const char *path)
{
	uint64_t ino = hash64(path, strlen(path));

	if (!*path)
		return TABLE_ROOT_ID;
	return ino > TABLE_ROOT_ID ? ino : ino + 2;
}

double node_fresh_seconds(struct nodes *nodes, const struct node *node)
{
	uint64_t until, now = clock_now_ns();

	lock_take(&nodes->lock);
	until = node->fresh_until_ns;
	lock_drop(&nodes->lock);
	return until > now ? (double)(until - now) / (double)NS_PER_SEC : 0;
}
