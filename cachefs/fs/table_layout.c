#include "table_layout.h"

#include <string.h>

#include "base/hash.h"

/* From id on to the first field that changes. */
#define NODE_FIXED_AT   offsetof(struct table_node, id)
#define NODE_FIXED_SIZE (offsetof(struct table_node, lookups) - NODE_FIXED_AT)
#define HANDLE_FIXED_AT offsetof(struct table_handle, fh)

static uint64_t not_zero(uint64_t sum)
{
	return sum ? sum : 1;
}

uint64_t table_node_sum(const struct table_node *node, const char *text)
{
	uint8_t bytes[NODE_FIXED_SIZE + TABLE_LONG_SIZE];
	size_t room = node->long_text ? TABLE_LONG_SIZE : sizeof node->text;
	size_t name = strnlen(text, room - 1) + 1;
	size_t both = name + strnlen(text + name, room - name);

	memcpy(bytes, (const char *)node + NODE_FIXED_AT, NODE_FIXED_SIZE);
	memcpy(bytes + NODE_FIXED_SIZE, text, both);
	return not_zero(hash64(bytes, NODE_FIXED_SIZE + both));
}

uint64_t table_handle_sum(const struct table_handle *handle)
{
	return not_zero(
		hash64((const char *)handle + HANDLE_FIXED_AT, sizeof *handle - HANDLE_FIXED_AT));
}

/* Never 1 either, which says that it is being written. */
uint64_t table_result_sum(const struct table_result *result)
{
	size_t from = offsetof(struct table_result, unique);
	uint64_t sum = hash64((const char *)result + from,
		offsetof(struct table_result, bytes) - from + result->size);

	return sum > 1 ? sum : 2;
}
