#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "table_layout.h"

struct view {
	const struct table_header *header;
	const struct table_node *nodes;
	const struct table_handle *handles;
	const char *texts;
	const struct table_result *results;
	uint8_t *text_used;
	uint64_t node_serials; /* ids have smaller ones */
	uint32_t nodes_end, handles_end;
};

static bool header_is_sane(const struct table_header *header)
{
	return header->magic == TABLE_MAGIC && header->version == TABLE_VERSION &&
	       header->header_size == sizeof *header &&
	       header->node_size == sizeof(struct table_node) &&
	       header->handle_size == sizeof(struct table_handle) &&
	       header->result_size == sizeof(struct table_result) && header->max_nodes > 1 &&
	       header->max_nodes <= TABLE_SLOT_MASK && header->max_handles > 1 &&
	       header->max_handles <= TABLE_SLOT_MASK &&
	       atomic_load(&header->nodes_end) > TABLE_ROOT_ID &&
	       atomic_load(&header->nodes_end) <= header->max_nodes &&
	       atomic_load(&header->handles_end) > 0 &&
	       atomic_load(&header->handles_end) <= header->max_handles &&
	       atomic_load(&header->init.size) <= TABLE_INIT_MAX &&
	       atomic_load(&header->reply.size) <= TABLE_INIT_MAX;
}

/* The strings of a record, if they are where they can be: both end within their room. */
static const char *find_text(struct view *view, const struct table_node *node)
{
	size_t room = sizeof node->text, name;
	const char *text = node->text;

	if (node->long_text > TABLE_LONG_TEXTS)
		return NULL;
	if (node->long_text) {
		if (view->text_used[node->long_text - 1]++)
			return NULL;
		text = view->texts + (size_t)(node->long_text - 1) * TABLE_LONG_SIZE;
		room = TABLE_LONG_SIZE;
	}
	name = strnlen(text, room);
	if (name != node->name_size || name > TABLE_NAME_MAX || name + 1 >= room)
		return NULL;
	if (strnlen(text + name + 1, room - name - 1) >= room - name - 1)
		return NULL;
	return text;
}

static const struct table_node *find_node(struct view *view, uint64_t id)
{
	uint32_t slot = id & TABLE_SLOT_MASK;
	const struct table_node *node = &view->nodes[slot];

	if (slot >= view->nodes_end || node->id != id || !atomic_load(&node->sum))
		return NULL;
	return node;
}

static bool place_is_sane(struct view *view, const struct table_node *node, const char *text)
{
	const struct table_node *parent;

	if (node->id == TABLE_ROOT_ID)
		return node->parent == 0 && node->kind == ORIGIN_DIR && !*text;
	parent = find_node(view, node->parent);
	return parent && parent->kind == ORIGIN_DIR && *text && !strchr(text, '/') &&
	       parent->id >> TABLE_SLOT_BITS < node->id >> TABLE_SLOT_BITS;
}

static int check_node(struct view *view, uint32_t slot, struct why *why)
{
	const struct table_node *node = &view->nodes[slot];
	uint64_t sum = atomic_load(&node->sum);
	const char *text;

	if (!sum)
		return 0;
	text = find_text(view, node);
	if (!text || table_node_sum(node, text) != sum)
		return why_set(why, -EUCLEAN, "session table: node record %u is damaged", slot);
	if ((node->id & TABLE_SLOT_MASK) != slot ||
		node->id >> TABLE_SLOT_BITS >= view->node_serials || node->kind > ORIGIN_DIR ||
		!place_is_sane(view, node, text))
		return why_set(why, -EUCLEAN,
			"session table: node record %u contradicts the others", slot);
	return 0;
}

static int check_handle(struct view *view, uint32_t slot, struct why *why)
{
	const struct table_handle *handle = &view->handles[slot];
	uint64_t sum = atomic_load(&handle->sum);
	const struct table_node *node;

	if (!sum)
		return 0;
	if (table_handle_sum(handle) != sum)
		return why_set(why, -EUCLEAN, "session table: handle record %u is damaged", slot);
	node = find_node(view, handle->node);
	if (!handle->fh || !node || handle->mode < TABLE_CACHED || handle->mode > TABLE_DIRECTORY ||
		(handle->mode == TABLE_DIRECTORY) != (node->kind == ORIGIN_DIR))
		return why_set(why, -EUCLEAN,
			"session table: handle record %u contradicts the others", slot);
	return 0;
}

static int check_result(struct view *view, uint32_t slot, struct why *why)
{
	const struct table_result *result = &view->results[slot];
	uint64_t sum = atomic_load(&result->sum);

	if (sum <= 1)
		return 0;
	if (result->size > TABLE_RESULT_MAX || table_result_sum(result) != sum)
		return why_set(why, -EUCLEAN, "session table: result record %u is damaged", slot);
	return 0;
}

static int check_root(struct view *view, struct why *why)
{
	return find_node(view, TABLE_ROOT_ID)
		       ? 0
		       : why_set(why, -EUCLEAN, "session table: no root in it");
}

static int check_records(const struct table_header *header, struct why *why)
{
	const char *memory = (const char *)header;
	_cleanup_(freep) uint8_t *text_used = calloc(TABLE_LONG_TEXTS, 1);
	struct view view = {
		.header = header,
		.nodes = (const void *)(memory + table_nodes_offset()),
		.handles = (const void *)(memory + table_handles_offset(header)),
		.texts = memory + table_texts_offset(header),
		.results = (const void *)(memory + table_results_offset(header)),
		.text_used = text_used,
		.node_serials = atomic_load(&header->next_node_serial),
		.nodes_end = atomic_load(&header->nodes_end),
		.handles_end = atomic_load(&header->handles_end),
	};
	int r = 0;

	if (!text_used)
		return why_set(why, -ENOMEM, "out of memory");
	/* What lies beyond was never written, and a look at it would make it use memory. */
	for (uint32_t i = 0; !r && i < view.nodes_end; i++)
		r = check_node(&view, i, why);
	for (uint32_t i = 0; !r && i < view.handles_end; i++)
		r = check_handle(&view, i, why);
	for (uint32_t i = 0; !r && i < TABLE_RESULTS; i++)
		r = check_result(&view, i, why);
	return r ? r : check_root(&view, why);
}

/* Maps the table, whose header is sane then. */
static int map_table(int fd, const struct table_header **ret, size_t *ret_size, struct why *why)
{
	const struct table_header *header;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return why_set(why, -errno, "session table: %s", strerror(errno));
	if ((size_t)st.st_size < sizeof *header)
		return why_set(why, -EUCLEAN, "session table: too short");
	header = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (header == MAP_FAILED)
		return why_set(why, -errno, "session table: %s", strerror(errno));
	if (!header_is_sane(header) || (size_t)st.st_size != table_size(header)) {
		munmap((void *)header, (size_t)st.st_size);
		return why_set(why, -EUCLEAN, "session table: not of this version, or damaged");
	}
	*ret = header;
	*ret_size = (size_t)st.st_size;
	return 0;
}

int table_check_version(int fd, struct why *why)
{
	const struct table_header *header;
	size_t size;
	int r = map_table(fd, &header, &size, why);

	if (!r)
		munmap((void *)header, size);
	return r;
}

int table_check(int fd, struct why *why)
{
	const struct table_header *header;
	size_t size;
	int r = map_table(fd, &header, &size, why);

	if (r)
		return r;
	r = check_records(header, why);
	munmap((void *)header, size);
	return r;
}
