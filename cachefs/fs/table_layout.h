/* table_layout: where things lie in the session table's memory. Shared by table.c, which writes,
 * and table_check.c, which trusts nothing. */
#ifndef FS_TABLE_LAYOUT_H
#define FS_TABLE_LAYOUT_H

#include "table.h"

#define TABLE_MAGIC      0x31656c6261746663ull /* "cftable1" */
#define TABLE_VERSION    1
#define TABLE_LONG_SIZE  (TABLE_NAME_MAX + 1 + ORIGIN_VERSION_MAX)
#define TABLE_LONG_TEXTS 16384u

struct table_init {
	_Atomic uint32_t size; /* written after the bytes; 0: none yet */
	uint8_t bytes[TABLE_INIT_MAX];
};

struct table_header {
	uint64_t magic;
	uint32_t version, header_size;
	uint32_t node_size, handle_size;
	uint32_t max_nodes, max_handles;
	_Atomic uint64_t next_node_serial, next_handle_serial;
	struct table_init init, reply;
};

static inline size_t table_nodes_offset(void)
{
	return (sizeof(struct table_header) + 4095) & ~(size_t)4095;
}

static inline size_t table_handles_offset(const struct table_header *header)
{
	return table_nodes_offset() + (size_t)header->max_nodes * sizeof(struct table_node);
}

static inline size_t table_texts_offset(const struct table_header *header)
{
	return table_handles_offset(header) +
	       (size_t)header->max_handles * sizeof(struct table_handle);
}

static inline size_t table_size(const struct table_header *header)
{
	return table_texts_offset(header) + (size_t)TABLE_LONG_TEXTS * TABLE_LONG_SIZE;
}

/* Of what never changes in a live record; text is where its strings lie. Never 0. */
uint64_t table_node_sum(const struct table_node *node, const char *text);
uint64_t table_handle_sum(const struct table_handle *handle);

#endif
