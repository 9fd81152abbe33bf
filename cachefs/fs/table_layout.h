/* table_layout: where things lie in the session table's memory. Shared by table.c and
 * table_requests.c, which write, and table_check.c, which trusts nothing. */
#ifndef FS_TABLE_LAYOUT_H
#define FS_TABLE_LAYOUT_H

#include "stale.h"
#include "table.h"

#define TABLE_MAGIC      0x31656c6261746663ull /* "cftable1" */
#define TABLE_VERSION    2
#define TABLE_LONG_SIZE  (TABLE_NAME_MAX + 1 + ORIGIN_VERSION_MAX)
#define TABLE_LONG_TEXTS 16384u
#define TABLE_RESULTS    1024u
#define TABLE_CLOSING    256u

struct table_init {
	_Atomic uint32_t size; /* written after the bytes; 0: none yet */
	uint8_t bytes[TABLE_INIT_MAX];
};

struct table_result {
	_Atomic uint64_t sum; /* 1: being written */
	_Atomic uint64_t unique;
	_Atomic uint32_t life; /* of the table, that wrote it */
	uint32_t size;
	uint8_t bytes[TABLE_RESULT_MAX];
};

struct table_header {
	uint64_t magic;
	uint32_t version, header_size;
	uint32_t node_size, handle_size, result_size;
	uint32_t max_nodes, max_handles;
	_Atomic uint32_t life; /* counts the daemons that had it */
	_Atomic uint32_t keep_all;
	/* Slots from here on were never used, and their memory was never touched. */
	_Atomic uint32_t nodes_end, handles_end;
	_Atomic uint64_t next_node_serial;
	_Atomic uint64_t last_request; /* unique */
	_Atomic int32_t last_backing;
	_Atomic int32_t closing[TABLE_CLOSING]; /* 0: free */
	struct table_init init, reply;
};

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
	_Atomic uint64_t
		*in_flight; /* a unique, or with bit 0: its result is to be kept; 0: free */
	struct table_result *results;
	_Atomic uint32_t n_in_flight; /* so that nobody searches an empty set */
	struct slots node_slots, handle_slots, text_slots;
};

/*
 * What was added since version 2 lies in the rest of the header's page. Version 2 leaves it as it
 * is, zeros at first, so whatever lies there must do for a table that such a daemon had meanwhile.
 */
#define TABLE_STALE_AT 2176u
_Static_assert(sizeof(struct table_header) <= TABLE_STALE_AT &&
		       TABLE_STALE_AT + STALE_SLOTS * sizeof(struct stale_slot) <= 4096,
	"in the header's page");

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

static inline size_t table_in_flight_offset(const struct table_header *header)
{
	size_t end = table_texts_offset(header) + (size_t)TABLE_LONG_TEXTS * TABLE_LONG_SIZE;

	return (end + 4095) & ~(size_t)4095;
}

static inline size_t table_results_offset(const struct table_header *header)
{
	return table_in_flight_offset(header) + TABLE_IN_FLIGHT * sizeof(uint64_t);
}

static inline size_t table_size(const struct table_header *header)
{
	return table_results_offset(header) + TABLE_RESULTS * sizeof(struct table_result);
}

/* Of what never changes in a live record; text is where its strings lie. Never 0. */
uint64_t table_node_sum(const struct table_node *node, const char *text);
uint64_t table_handle_sum(const struct table_handle *handle);
uint64_t table_result_sum(const struct table_result *result);

/* Part of table_adopt: what a predecessor was just writing is none. */
void table_adopt_requests(struct table *table);

#endif
