/* nodes_private: what the files about nodes share: nodes.c has their life, nodes_mode.c the modes of
 * their handles, nodes_restore.c what a take-over adds. The caller holds the lock everywhere. */
#ifndef FS_NODES_PRIVATE_H
#define FS_NODES_PRIVATE_H

#include "nodes.h"

struct name_key {
	const struct nodes *nodes;
	const struct node_name *name;
	enum origin_kind kind;
};

uint64_t nodes_name_hash(const struct name_key *key);
struct node *nodes_find_name(struct nodes *nodes, const struct name_key *key);
struct node *nodes_find_id(struct nodes *nodes, uint64_t id);
void nodes_put_slot(struct nodes *nodes, struct node *node);
void node_supersede(struct nodes *nodes, struct node *node);
void nodes_free_if_unused(struct nodes *nodes, struct node *node);

uint64_t node_lookups(const struct node *node);
void node_set_lookups(struct node *node, uint64_t n);
void node_doubt(struct nodes *nodes, struct node *node);
/* Its last passthrough handle is gone. */
void node_give_up_backing(struct nodes *nodes, struct node *node);

#endif
