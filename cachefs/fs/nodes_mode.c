#include "base/check.h"
#include "nodes_private.h"

static enum claim claim_cached(struct node *node, int *ret_backing_id)
{
	node->n_cached++;
	*ret_backing_id = 0;
	return CLAIM_CACHED;
}

static enum claim claim(struct nodes *nodes, struct node *node, bool warm, bool settle,
	int backing_id, int *ret_backing_id)
{
	if (!node->n_passthrough) {
		if (node->n_cached && warm && !settle && !node_is_superseded(node)) {
			node_supersede(nodes, node);
			return CLAIM_STALE;
		}
		if (node->n_cached || !warm)
			return claim_cached(node, ret_backing_id);
		if (!backing_id)
			return CLAIM_NEEDS_BACKING;
		atomic_store_explicit(&node->record->backing_id, backing_id, memory_order_release);
	}
	node->n_passthrough++;
	*ret_backing_id = node_backing_id(node);
	return CLAIM_PASSTHROUGH;
}

enum claim node_claim(struct nodes *nodes, struct node *node, bool warm, bool settle,
	int backing_id, int *ret_backing_id)
{
	enum claim result;

	lock_take(&nodes->lock);
	result = claim(nodes, node, warm, settle, backing_id, ret_backing_id);
	check(!node->n_cached || !node->n_passthrough);
	lock_drop(&nodes->lock);
	return result;
}

int node_backing_id(const struct node *node)
{
	return atomic_load_explicit(&node->record->backing_id, memory_order_relaxed);
}

void node_give_up_backing(struct nodes *nodes, struct node *node)
{
	table_closing_begin(nodes->table, node_backing_id(node));
	atomic_store_explicit(&node->record->backing_id, 0, memory_order_release);
}

int node_unclaim(struct nodes *nodes, struct node *node, enum table_mode mode)
{
	unsigned *count = mode == TABLE_PASSTHROUGH ? &node->n_passthrough : &node->n_cached;
	int to_close = 0;

	lock_take(&nodes->lock);
	check(*count > 0);
	--*count;
	if (mode == TABLE_PASSTHROUGH && !*count && !nodes->frozen) {
		to_close = node_backing_id(node);
		node_give_up_backing(nodes, node);
	}
	lock_drop(&nodes->lock);
	return to_close;
}
