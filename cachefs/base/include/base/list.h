/* list: intrusive, circular, doubly linked. The caller's lock guards it. */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next, *prev;
};

#define container_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

static inline void list_init(struct list *list)
{
	list->next = list->prev = list;
}

static inline bool list_empty(const struct list *list)
{
	return list->next == list;
}

/* Puts node before head: with a list's head, at its end. */
static inline void list_append(struct list *head, struct list *node)
{
	node->prev = head->prev;
	node->next = head;
	head->prev->next = node;
	head->prev = node;
}

/* Takes node out of whatever list it is in and leaves it a list of its own, so that a second call
 * does nothing. */
static inline void list_remove(struct list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	list_init(node);
}

/* The first node, taken out; NULL from an empty list. */
static inline struct list *list_pop(struct list *head)
{
	struct list *node = head->next;

	if (node == head)
		return NULL;
	list_remove(node);
	return node;
}

/* Moves everything in from to the end of to. */
static inline void list_splice(struct list *to, struct list *from)
{
	if (list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	list_init(from);
}

#define list_for_each(node, head)                                                                  \
	for (struct list *node = (head)->next; node != (head); node = node->next)
#define list_for_each_safe(node, after, head)                                                      \
	for (struct list *node = (head)->next, *after = node->next; node != (head);                \
		node = after, after = node->next)

#endif
