/* What the two halves of a listing share: listing_grow.c makes it, listing.c reads it. */
#ifndef CACHE_LISTING_PRIVATE_H
#define CACHE_LISTING_PRIVATE_H

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "listing.h"

#define LISTING_MAGIC 0x33534c43u /* "CLS3" */
/* A cookie is the entry's number, from 1, and bits of its name's hash. */
#define COOKIE_HASH_BITS 36
#define ENTRIES_MAX      ((1u << (63 - COOKIE_HASH_BITS)) - 2)
#define VERSION_MD5_SIZE 16

enum {
	SLOT_DIR = 1,
	SLOT_ATTR_KNOWN = 2,
	SLOT_STRONG = 4,
	SLOT_MD5 = 8, /* the version is 32 hexadecimal digits in quotes, kept as bytes */
};

struct listing_head {
	uint32_t magic, count;
	uint64_t sum; /* of everything behind it; magic, count and sizes are checked as such */
	uint64_t hidden_keys;
	int64_t wall_ns; /* when the listing was complete */
	uint64_t heap_size;
};

struct listing_slot {
	uint64_t size_bytes;
	int64_t mtime_ns;
	uint32_t name; /* offset in the heap; behind its NUL the version, without one */
	uint16_t name_size;
	uint8_t version_size, flags;
};

/* What grows: malloc'ed while nobody reads it, else a mapping of all that it may become. */
struct area {
	char *bytes;
	size_t size, room;
	bool mapped;
};

struct listing {
	_Atomic unsigned refs;
	struct listing_room *room;
	struct listing_head head; /* the growing thread's until the listing is whole */
	struct area slots, heap;
	void *block; /* from the index: what slots and heap lie in */
	_Atomic size_t ready;
	_Atomic int state; /* LISTING_GROWING, 0: whole, -errno: it failed */
	/* The growing thread's. */
	size_t charged;              /* of room */
	struct listing_slot top;     /* the one with the greatest key, if there is any */
	struct listing_slot last[2]; /* file, directory, if there was any */
	bool has_last[2], disordered;
	int error; /* of an add */
};

/* Counts bytes as the listing's. 0, -EFBIG, -ENOMEM. */
int listing_room_take(struct listing *listing, size_t bytes);
void area_free(struct area *area);

static inline struct listing_slot *slots_of(const struct listing *listing)
{
	return (struct listing_slot *)(void *)listing->slots.bytes;
}

static inline size_t n_slots(const struct listing *listing)
{
	return listing->slots.size / sizeof(struct listing_slot);
}

static inline const char *name_of(const struct listing *listing, const struct listing_slot *slot)
{
	return listing->heap.bytes + slot->name;
}

/* Names as if a slash followed each; no name has one within. */
static inline int name_order(const char *a, size_t a_size, const char *b, size_t b_size)
{
	int order = memcmp(a, b, a_size < b_size ? a_size : b_size);

	if (order || a_size == b_size)
		return order;
	return a_size < b_size ? '/' - (unsigned char)b[a_size] : (unsigned char)a[b_size] - '/';
}

#endif
