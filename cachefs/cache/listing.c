#include "listing.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"

#define LISTING_MAGIC 0x32534c43u /* "CLS2" */
#define COOKIE_BITS   62

enum { SLOT_DIR = 1, SLOT_ATTR_KNOWN = 2, SLOT_STRONG = 4 };

struct listing_head {
	uint32_t magic, count;
	uint64_t
		sum; /* hash64 of everything behind it; magic, count and sizes are checked as such */
	uint64_t hidden_keys;
	int64_t wall_ns; /* when the listing was complete */
	uint64_t heap_size;
};

struct listing_slot {
	uint64_t size_bytes;
	int64_t mtime_ns;
	uint32_t name, version; /* offsets in the heap */
	uint16_t name_size;
	uint8_t version_size, flags;
	uint32_t zero;
	uint64_t cookie;
};

struct listing {
	_Atomic unsigned refs;
	size_t size;
	struct listing_head *head; /* owns the block */
	const struct listing_slot *slots;
	const uint32_t *order; /* slots by cookie */
	const char *heap;
};

void listing_builder_init(struct listing_builder *builder)
{
	*builder = (struct listing_builder){0};
	buf_init(&builder->slots, LISTING_BYTES_MAX);
	buf_init(&builder->heap, LISTING_BYTES_MAX);
}

void listing_builder_free(struct listing_builder *builder)
{
	buf_free(&builder->slots);
	buf_free(&builder->heap);
	builder->hidden_keys = 0;
}

void listing_builder_add(struct listing_builder *builder, const struct origin_entry *entry)
{
	const struct origin_attr *attr = &entry->attr;
	size_t version_size = strnlen(attr->version.text, sizeof attr->version.text - 1);
	struct listing_slot slot = {
		.size_bytes = attr->size_bytes,
		.mtime_ns = attr->mtime_ns,
		.name = (uint32_t)builder->heap.size,
		.name_size = (uint16_t)entry->name_size,
		.version_size = (uint8_t)version_size,
		.flags = (uint8_t)((attr->kind == ORIGIN_DIR ? SLOT_DIR : 0) |
				   (entry->attr_known ? SLOT_ATTR_KNOWN : 0) |
				   (attr->version.strong ? SLOT_STRONG : 0)),
	};

	check(entry->name_size <= UINT16_MAX);
	buf_add(&builder->heap, entry->name, entry->name_size);
	buf_add(&builder->heap, "", 1);
	slot.version = (uint32_t)builder->heap.size;
	buf_add(&builder->heap, attr->version.text, version_size);
	buf_add(&builder->heap, "", 1);
	buf_add(&builder->slots, &slot, sizeof slot);
}

size_t listing_builder_count(const struct listing_builder *builder)
{
	return builder->slots.size / sizeof(struct listing_slot);
}

static int name_order(const char *a, size_t a_size, const char *b, size_t b_size)
{
	int order = memcmp(a, b, a_size < b_size ? a_size : b_size);

	return order ? order : (a_size > b_size) - (a_size < b_size);
}

/* By name; of equal names directories first. */
static int slot_order(const void *a, const void *b, void *heap)
{
	const struct listing_slot *left = a, *right = b;
	int order = name_order((char *)heap + left->name, left->name_size,
		(char *)heap + right->name, right->name_size);

	return order ? order : (right->flags & SLOT_DIR) - (left->flags & SLOT_DIR);
}

/* Of each name the first stays. Returns how many are left. */
static size_t drop_repeated(
	struct listing_slot *slots, size_t n, const char *heap, uint64_t *hidden)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		const struct listing_slot *last = kept ? &slots[kept - 1] : NULL;

		if (last && !name_order(heap + last->name, last->name_size, heap + slots[i].name,
				    slots[i].name_size)) {
			if ((last->flags ^ slots[i].flags) & SLOT_DIR)
				(*hidden)++;
			continue;
		}
		slots[kept++] = slots[i];
	}
	return kept;
}

static uint64_t name_cookie(const char *name, size_t size)
{
	uint64_t cookie = hash64(name, size) & ((1ull << COOKIE_BITS) - 1);

	return cookie < LISTING_COOKIE_MIN ? LISTING_COOKIE_MIN : cookie;
}

/* By cookie, then by name, which is the order of the slots. */
static int cookie_order(const void *a, const void *b, void *slots)
{
	uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
	const struct listing_slot *all = slots;
	uint64_t x = all[left].cookie, y = all[right].cookie;

	return x == y ? (left > right) - (left < right) : (x > y) - (x < y);
}

/* Gives sorted slots their cookies, each its own, and writes down their order. */
static void give_cookies(
	struct listing_slot *slots, size_t n, const char *heap, uint32_t *ret_order)
{
	uint64_t last = 0;

	for (size_t i = 0; i < n; i++) {
		slots[i].cookie = name_cookie(heap + slots[i].name, slots[i].name_size);
		ret_order[i] = (uint32_t)i;
	}
	qsort_r(ret_order, n, sizeof *ret_order, cookie_order, slots);
	for (size_t i = 0; i < n; i++) {
		struct listing_slot *slot = &slots[ret_order[i]];

		if (slot->cookie <= last)
			slot->cookie = last + 1;
		last = slot->cookie;
	}
}

static void listing_point(struct listing *listing)
{
	listing->slots = (const struct listing_slot *)(listing->head + 1);
	listing->order = (const uint32_t *)(listing->slots + listing->head->count);
	listing->heap = (const char *)(listing->order + listing->head->count);
}

static uint64_t block_sum(const struct listing *listing)
{
	size_t before = offsetof(struct listing_head, hidden_keys);

	return hash64((const char *)listing->head + before, listing->size - before);
}

int listing_build(struct listing_builder *builder, struct listing **ret)
{
	struct listing_slot *slots = (struct listing_slot *)(void *)builder->slots.bytes;
	size_t n = listing_builder_count(builder), slots_size;
	uint64_t hidden = builder->hidden_keys;
	struct listing *listing;
	struct listing_head *head;
	int r = builder->slots.error ? builder->slots.error : builder->heap.error;

	if (r)
		return r;
	if (n) {
		qsort_r(slots, n, sizeof *slots, slot_order, builder->heap.bytes);
		n = drop_repeated(slots, n, builder->heap.bytes, &hidden);
	}
	slots_size = n * (sizeof *slots + sizeof(uint32_t));
	listing = calloc(1, sizeof *listing);
	head = malloc(sizeof *head + slots_size + builder->heap.size);
	if (!listing || !head) {
		free(listing);
		free(head);
		return -ENOMEM;
	}
	listing->size = sizeof *head + slots_size + builder->heap.size;
	listing->head = head;
	*head = (struct listing_head){
		.magic = LISTING_MAGIC,
		.count = (uint32_t)n,
		.hidden_keys = hidden,
		.wall_ns = clock_wall_ns(),
		.heap_size = builder->heap.size,
	};
	if (n) {
		char *order = (char *)(head + 1) + n * sizeof *slots;

		give_cookies(slots, n, builder->heap.bytes, (uint32_t *)(void *)order);
		memcpy(head + 1, slots, n * sizeof *slots);
		memcpy((char *)(head + 1) + slots_size, builder->heap.bytes, builder->heap.size);
	}
	listing_point(listing);
	head->sum = block_sum(listing);
	atomic_init(&listing->refs, 1);
	listing_builder_free(builder);
	*ret = listing;
	return 0;
}

static bool block_sound(const struct listing *listing)
{
	const struct listing_head *head = listing->head;
	uint64_t slots_size;

	if (listing->size < sizeof *head || head->magic != LISTING_MAGIC)
		return false;
	slots_size = (uint64_t)head->count * (sizeof(struct listing_slot) + sizeof(uint32_t));
	return listing->size - sizeof *head >= slots_size &&
	       listing->size - sizeof *head - slots_size == head->heap_size &&
	       head->sum == block_sum(listing);
}

int listing_from_bytes(void *bytes, size_t size, struct listing **ret)
{
	struct listing *listing = calloc(1, sizeof *listing);

	if (!listing) {
		free(bytes);
		return -ENOMEM;
	}
	listing->head = bytes;
	listing->size = size;
	atomic_init(&listing->refs, 1);
	if (!block_sound(listing)) {
		listing_unref(listing);
		return -EUCLEAN;
	}
	listing_point(listing);
	*ret = listing;
	return 0;
}

const void *listing_bytes(const struct listing *listing, size_t *ret_size)
{
	*ret_size = listing->size;
	return listing->head;
}

struct listing *listing_ref(struct listing *listing)
{
	check(atomic_fetch_add(&listing->refs, 1) > 0);
	return listing;
}

void listing_unref(struct listing *listing)
{
	if (!listing || atomic_fetch_sub(&listing->refs, 1) > 1)
		return;
	free(listing->head);
	free(listing);
}

size_t listing_count(const struct listing *listing)
{
	return listing->head->count;
}

void listing_get(const struct listing *listing, size_t i, struct listing_entry *ret)
{
	const struct listing_slot *slot = &listing->slots[i];

	check(i < listing->head->count);
	*ret = (struct listing_entry){
		.name = listing->heap + slot->name,
		.name_size = slot->name_size,
		.attr =
			{
				.kind = slot->flags & SLOT_DIR ? ORIGIN_DIR : ORIGIN_FILE,
				.size_bytes = slot->size_bytes,
				.mtime_ns = slot->mtime_ns,
				.version.strong = slot->flags & SLOT_STRONG,
			},
		.attr_known = slot->flags & SLOT_ATTR_KNOWN,
	};
	memcpy(ret->attr.version.text, listing->heap + slot->version, slot->version_size);
}

size_t listing_rank_after(const struct listing *listing, uint64_t cookie)
{
	size_t from = 0, to = listing->head->count;

	while (from < to) {
		size_t middle = from + (to - from) / 2;

		if (listing->slots[listing->order[middle]].cookie > cookie)
			to = middle;
		else
			from = middle + 1;
	}
	return from;
}

void listing_place(const struct listing *listing, size_t rank, struct listing_place *ret)
{
	check(rank < listing->head->count);
	ret->entry = listing->order[rank];
	ret->cookie = listing->slots[ret->entry].cookie;
}

bool listing_find(const struct listing *listing, const char *name, size_t name_size,
	struct listing_entry *ret)
{
	size_t from = 0, to = listing->head->count;

	while (from < to) {
		size_t middle = from + (to - from) / 2;
		const struct listing_slot *slot = &listing->slots[middle];
		int order =
			name_order(name, name_size, listing->heap + slot->name, slot->name_size);

		if (!order) {
			listing_get(listing, middle, ret);
			return true;
		}
		if (order < 0)
			to = middle;
		else
			from = middle + 1;
	}
	return false;
}

int64_t listing_wall_ns(const struct listing *listing)
{
	return listing->head->wall_ns;
}

uint64_t listing_hidden_keys(const struct listing *listing)
{
	return listing->head->hidden_keys;
}
