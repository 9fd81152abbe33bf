#include "table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "table_layout.h"

/* Free slots of one kind, handed out last in, first out, so that the used part stays small. */
struct slots {
	uint32_t *free;
	uint32_t n_free, fresh, ceiling, used; /* slots from `fresh` on were never used */
};

struct table {
	int fd;
	struct table_header *header; /* the mapping's start */
	struct table_node *nodes;
	struct table_handle *handles;
	char *texts;
	struct slots node_slots, handle_slots, text_slots;
};

static int slots_init(struct slots *slots, uint32_t first, uint32_t ceiling)
{
	*slots = (struct slots){.fresh = first, .ceiling = ceiling};
	slots->free = calloc(ceiling, sizeof *slots->free);
	return slots->free ? 0 : -ENOMEM;
}

static int slots_take(struct slots *slots, uint32_t *ret)
{
	if (slots->n_free)
		*ret = slots->free[--slots->n_free];
	else if (slots->fresh < slots->ceiling)
		*ret = slots->fresh++;
	else
		return -ENFILE;
	slots->used++;
	return 0;
}

static void slots_give(struct slots *slots, uint32_t slot)
{
	check(slots->used > 0);
	slots->free[slots->n_free++] = slot;
	slots->used--;
}

static int map_memory(struct table *table, uint32_t max_nodes, uint32_t max_handles)
{
	struct table_header header = {
		.magic = TABLE_MAGIC,
		.version = TABLE_VERSION,
		.header_size = sizeof header,
		.node_size = sizeof(struct table_node),
		.handle_size = sizeof(struct table_handle),
		.max_nodes = max_nodes,
		.max_handles = max_handles,
	};
	void *memory;

	table->fd = memfd_create("cachefs-session", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (table->fd < 0 || ftruncate(table->fd, (off_t)table_size(&header)) < 0)
		return -errno;
	memory = mmap(NULL, table_size(&header), PROT_READ | PROT_WRITE, MAP_SHARED, table->fd, 0);
	if (memory == MAP_FAILED)
		return -errno;
	table->header = memory;
	*table->header = header;
	table->nodes = (void *)((char *)memory + table_nodes_offset());
	table->handles = (void *)((char *)memory + table_handles_offset(&header));
	table->texts = (char *)memory + table_texts_offset(&header);
	return 0;
}

int table_new(uint32_t max_nodes, uint32_t max_handles, struct table **ret)
{
	struct table *table = calloc(1, sizeof *table);
	int r;

	check(max_nodes > 1 && max_nodes <= TABLE_SLOT_MASK);
	check(max_handles > 1 && max_handles <= TABLE_SLOT_MASK);
	if (!table)
		return -ENOMEM;
	table->fd = -1;
	r = map_memory(table, max_nodes, max_handles);
	if (!r)
		r = slots_init(&table->node_slots, TABLE_ROOT_ID, max_nodes);
	if (!r)
		r = slots_init(&table->handle_slots, 1, max_handles);
	if (!r)
		r = slots_init(&table->text_slots, 0, TABLE_LONG_TEXTS);
	if (r) {
		table_free(table);
		return r;
	}
	*ret = table;
	return 0;
}

void table_free(struct table *table)
{
	if (!table)
		return;
	if (table->header)
		munmap(table->header, table_size(table->header));
	if (table->fd >= 0)
		close(table->fd);
	free(table->node_slots.free);
	free(table->handle_slots.free);
	free(table->text_slots.free);
	free(table);
}

int table_fd(const struct table *table)
{
	return table->fd;
}

uint32_t table_max_nodes(const struct table *table)
{
	return table->header->max_nodes;
}

uint32_t table_nodes(const struct table *table)
{
	return table->node_slots.used;
}

uint32_t table_handles(const struct table *table)
{
	return table->handle_slots.used;
}

static int put_init(struct table_init *init, const void *bytes, size_t size)
{
	if (size > sizeof init->bytes)
		return -EFBIG;
	memcpy(init->bytes, bytes, size);
	atomic_store_explicit(&init->size, (uint32_t)size, memory_order_release);
	return 0;
}

int table_put_init(struct table *table, const void *request, size_t size)
{
	return put_init(&table->header->init, request, size);
}

int table_put_init_reply(struct table *table, const void *reply, size_t size)
{
	return put_init(&table->header->reply, reply, size);
}

/* The serial is used up before the id is seen by anybody. */
static uint64_t next_id(_Atomic uint64_t *serial, uint32_t slot)
{
	uint64_t now = atomic_load_explicit(serial, memory_order_relaxed);

	atomic_store_explicit(serial, now + 1, memory_order_release);
	return now << TABLE_SLOT_BITS | slot;
}

static char *node_text(const struct table *table, const struct table_node *node)
{
	return node->long_text ? table->texts + (size_t)(node->long_text - 1) * TABLE_LONG_SIZE
			       : (char *)node->text;
}

static int place_text(struct table *table, struct table_node *node, size_t size)
{
	uint32_t slot;
	int r = 0;

	node->long_text = 0;
	if (size > sizeof node->text) {
		r = slots_take(&table->text_slots, &slot);
		if (!r)
			node->long_text = slot + 1;
	}
	return r;
}

static void fill_node(
	struct table *table, struct table_node *node, const struct table_node_key *key)
{
	const struct origin_attr *attr = key->attr;
	char *text = node_text(table, node);

	node->parent = key->parent;
	node->size_bytes = attr->size_bytes;
	node->mtime_ns = attr->mtime_ns;
	node->kind = (uint8_t)attr->kind;
	node->strong = attr->version.strong;
	node->name_size = (uint16_t)key->name_size;
	atomic_store_explicit(&node->backing_id, 0, memory_order_relaxed);
	atomic_store_explicit(&node->superseded, 0, memory_order_relaxed);
	memcpy(text, key->name, key->name_size);
	text[key->name_size] = '\0';
	strcpy(text + key->name_size + 1, attr->version.text);
}

int table_add_node(struct table *table, const struct table_node_key *key, struct table_node **ret)
{
	size_t size = key->name_size + 1 + strlen(key->attr->version.text) + 1;
	struct table_node *node;
	uint32_t slot;
	int r;

	check(key->name_size <= TABLE_NAME_MAX && size <= TABLE_LONG_SIZE);
	r = slots_take(&table->node_slots, &slot);
	if (r)
		return r;
	node = &table->nodes[slot];
	r = place_text(table, node, size);
	if (r) {
		slots_give(&table->node_slots, slot);
		return r;
	}
	node->id = next_id(&table->header->next_node_serial, slot);
	fill_node(table, node, key);
	atomic_store_explicit(
		&node->sum, table_node_sum(node, node_text(table, node)), memory_order_release);
	*ret = node;
	return 0;
}

void table_remove_node(struct table *table, struct table_node *node)
{
	check(atomic_load_explicit(&node->sum, memory_order_relaxed) != 0);
	atomic_store_explicit(&node->sum, 0, memory_order_release);
	if (node->long_text)
		slots_give(&table->text_slots, node->long_text - 1);
	slots_give(&table->node_slots, (uint32_t)(node - table->nodes));
}

const char *table_name(const struct table *table, const struct table_node *node)
{
	return node_text(table, node);
}

const char *table_version(const struct table *table, const struct table_node *node)
{
	return node_text(table, node) + node->name_size + 1;
}

int table_add_handle(struct table *table, uint64_t node, enum table_mode mode, uint32_t flags,
	struct table_handle **ret)
{
	struct table_handle *handle;
	uint32_t slot;
	int r = slots_take(&table->handle_slots, &slot);

	if (r)
		return r;
	handle = &table->handles[slot];
	handle->fh = next_id(&table->header->next_handle_serial, slot);
	handle->node = node;
	handle->mode = mode;
	handle->flags = flags;
	atomic_store_explicit(&handle->sum, table_handle_sum(handle), memory_order_release);
	*ret = handle;
	return 0;
}

void table_remove_handle(struct table *table, struct table_handle *handle)
{
	check(atomic_load_explicit(&handle->sum, memory_order_relaxed) != 0);
	atomic_store_explicit(&handle->sum, 0, memory_order_release);
	slots_give(&table->handle_slots, (uint32_t)(handle - table->handles));
}
