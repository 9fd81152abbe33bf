#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "fs.h"

/* Slots looked at under one hold of the lock, and ids in one message. */
#define AT_ONCE       4096u
#define IN_ONE_LETTER 512u

/* By serial, which is above the slot. */
static int id_order(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a >> TABLE_SLOT_BITS;
	uint64_t y = *(const uint64_t *)b >> TABLE_SLOT_BITS;

	return (x > y) - (x < y);
}

/* All idle files, the oldest first; malloc'ed. NULL: no memory. */
static uint64_t *list_idle(struct fs *fs, size_t *ret_count)
{
	uint32_t at = 0, max = table_max_nodes(fs->table);
	uint64_t *ids = malloc((size_t)max * sizeof *ids);
	size_t n = 0, more;

	if (!ids)
		return NULL;
	while (nodes_list_idle(&fs->nodes, &at, AT_ONCE, ids + n, &more))
		n += more;
	qsort(ids, n, sizeof *ids, id_order);
	*ret_count = n;
	return ids;
}

bool prune_nodes(struct fs *fs)
{
	uint64_t count = nodes_count(&fs->nodes), goal = table_max_nodes(fs->table) / 2;
	_cleanup_(freep) uint64_t *ids = NULL;
	size_t n = 0, part;
	int r = 0;

	if (nodes_are_plenty(&fs->nodes))
		return true;
	ids = list_idle(fs, &n);
	if (!ids)
		return true;
	if (n > count - goal)
		n = count - goal;
	for (size_t at = 0; !r && at < n; at += part) {
		part = n - at < IN_ONE_LETTER ? n - at : IN_ONE_LETTER;
		r = session_prune(fs->session, ids + at, (uint32_t)part);
	}
	if (r)
		log_warn("nodes_not_pruned", "error=%s", strerror(-r));
	else
		log_debug("nodes_pruned", "asked=%zu of=%llu", n, (unsigned long long)count);
	return r != -EINVAL;
}
