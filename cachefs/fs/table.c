#include "table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "table_layout.h"

static int slots_init(struct slots *slots, uint32_t first, uint32_t ceiling)
{
	*slots = (struct slots){.fresh = first, .ceiling = ceiling};
	slots->free = calloc(ceiling, sizeof *slots->free);
	return slots->free ? 0 : -ENOMEM;
}

/* The next slot that was used once. */
static void slots_adopt(struct slots *slots, bool used)
{
	if (used)
		slots->used++;
	else
		slots->free[slots->n_free++] = slots->fresh;
	slots->fresh++;
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

static int map_memory(struct table *table, size_t size)
{
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, table->fd, 0);

	if (memory == MAP_FAILED)
		return -ENOMEM;
	table->header = (void *)memory;
	return 0;
}

/* Once the header says where they are. */
static void find_parts(struct table *table)
{
	char *memory = (char *)table->header;

	table->nodes = (void *)(memory + table_nodes_offset());
	table->handles = (void *)(memory + table_handles_offset(table->header));
	table->texts = memory + table_texts_offset(table->header);
	table->in_flight = (void *)(memory + table_in_flight_offset(table->header));
	table->results = (void *)(memory + table_results_offset(table->header));
}

static int make_memory(struct table *table, uint32_t max_nodes, uint32_t max_handles)
{
	struct table_header header = {
		.magic = TABLE_MAGIC,
		.version = TABLE_VERSION,
		.header_size = sizeof header,
		.node_size = sizeof(struct table_node),
		.handle_size = sizeof(struct table_handle),
		.result_size = sizeof(struct table_result),
		.max_nodes = max_nodes,
		.max_handles = max_handles,
		.life = 1,
		.nodes_end = TABLE_ROOT_ID,
		.handles_end = 1,
	};
	int r;

	table->fd = memfd_create("cachefs-session", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (table->fd < 0 || ftruncate(table->fd, (off_t)table_size(&header)) < 0)
		return -errno;
	r = map_memory(table, table_size(&header));
	if (r)
		return r;
	memcpy(table->header, &header, sizeof header);
	find_parts(table);
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
	r = make_memory(table, max_nodes, max_handles);
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

static int adopt_memory(struct table *table, struct why *why)
{
	struct stat st;
	int r = table_check(table->fd, why);

	if (r)
		return r;
	r = fstat(table->fd, &st) < 0 ? -EIO : map_memory(table, (size_t)st.st_size);
	if (r)
		return why_set(why, r, "session table: %s", strerror(-r));
	find_parts(table);
	table_adopt_requests(table);
	atomic_fetch_add(&table->header->life, 1);
	return 0;
}

/* Which slots are free is known by what the records say. */
static int adopt_slots(struct table *table)
{
	struct table_header *header = table->header;
	bool *text_used = calloc(TABLE_LONG_TEXTS, sizeof *text_used);
	uint32_t end;
	int r = text_used ? 0 : -ENOMEM;

	if (!r)
		r = slots_init(&table->node_slots, TABLE_ROOT_ID, header->max_nodes);
	if (!r)
		r = slots_init(&table->handle_slots, 1, header->max_handles);
	if (!r)
		r = slots_init(&table->text_slots, 0, TABLE_LONG_TEXTS);
	end = atomic_load(&header->nodes_end);
	for (uint32_t i = TABLE_ROOT_ID; !r && i < end; i++) {
		const struct table_node *node = &table->nodes[i];
		bool used = atomic_load(&node->sum);

		slots_adopt(&table->node_slots, used);
		if (used && node->long_text)
			text_used[node->long_text - 1] = true;
	}
	end = atomic_load(&header->handles_end);
	for (uint32_t i = 1; !r && i < end; i++)
		slots_adopt(&table->handle_slots, atomic_load(&table->handles[i].sum));
	for (uint32_t i = 0; !r && i < TABLE_LONG_TEXTS; i++)
		slots_adopt(&table->text_slots, text_used[i]);
	free(text_used);
	return r;
}

int table_adopt(int fd, struct table **ret, struct why *why)
{
	struct table *table = calloc(1, sizeof *table);
	int r;

	if (!table) {
		close(fd);
		return why_set(why, -ENOMEM, "out of memory");
	}
	table->fd = fd;
	r = adopt_memory(table, why);
	if (!r && adopt_slots(table))
		r = why_set(why, -ENOMEM, "out of memory");
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

static const void *get_init(const struct table_init *init, size_t *ret_size)
{
	*ret_size = atomic_load_explicit(&init->size, memory_order_acquire);
	return init->bytes;
}

const void *table_init(const struct table *table, size_t *ret_size)
{
	return get_init(&table->header->init, ret_size);
}

const void *table_init_reply(const struct table *table, size_t *ret_size)
{
	return get_init(&table->header->reply, ret_size);
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
	atomic_store_explicit(&node->lookups, 0, memory_order_relaxed);
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
	atomic_store(&table->header->nodes_end, table->node_slots.fresh);
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

int table_add_handle(struct table *table, uint64_t fh, uint64_t node, enum table_mode mode,
	uint32_t flags, struct table_handle **ret)
{
	struct table_handle *handle;
	uint32_t slot;
	int r = slots_take(&table->handle_slots, &slot);

	if (r)
		return r;
	handle = &table->handles[slot];
	atomic_store(&table->header->handles_end, table->handle_slots.fresh);
	handle->fh = fh;
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

struct table_node *table_next_node(const struct table *table, uint32_t *at)
{
	uint32_t end = atomic_load(&table->header->nodes_end);

	while (*at < end) {
		struct table_node *node = &table->nodes[(*at)++];

		if (atomic_load(&node->sum))
			return node;
	}
	return NULL;
}

struct table_handle *table_next_handle(const struct table *table, uint32_t *at)
{
	uint32_t end = atomic_load(&table->header->handles_end);

	while (*at < end) {
		struct table_handle *handle = &table->handles[(*at)++];

		if (atomic_load(&handle->sum))
			return handle;
	}
	return NULL;
}

void table_saw_backing(struct table *table, int backing_id)
{
	int32_t last = atomic_load(&table->header->last_backing);

	while (last < backing_id &&
		!atomic_compare_exchange_weak(&table->header->last_backing, &last, backing_id))
		continue;
}

int table_last_backing(const struct table *table)
{
	return atomic_load(&table->header->last_backing);
}

void table_closing_begin(struct table *table, int backing_id)
{
	for (uint32_t i = 0; i < TABLE_CLOSING; i++) {
		int32_t none = 0;

		if (atomic_compare_exchange_strong(&table->header->closing[i], &none, backing_id))
			return;
	}
}

void table_closing_end(struct table *table, int backing_id)
{
	for (uint32_t i = 0; i < TABLE_CLOSING; i++) {
		int32_t id = backing_id;

		if (atomic_compare_exchange_strong(&table->header->closing[i], &id, 0))
			return;
	}
}

struct stale_slot *table_stale_slots(const struct table *table)
{
	return (void *)((char *)table->header + TABLE_STALE_AT);
}

int table_closing_take(struct table *table)
{
	for (uint32_t i = 0; i < TABLE_CLOSING; i++) {
		int32_t id = atomic_exchange(&table->header->closing[i], 0);

		if (id)
			return id;
	}
	return 0;
}
