/* A listing as it is kept and read. */
#include "listing_private.h"

#include <errno.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"

/* --- in the index --- */

static uint64_t block_sum(const struct listing *listing)
{
	const struct listing_head *head = &listing->head;
	size_t before = offsetof(struct listing_head, hidden_keys);
	uint64_t sums[] = {hash64((const char *)head + before, sizeof *head - before),
		hash64(listing->slots.bytes, listing->slots.size),
		hash64(listing->heap.bytes, listing->heap.size)};

	return hash64(sums, sizeof sums);
}

static bool block_sound(struct listing *listing, size_t size)
{
	const struct listing_head *head = listing->block;
	uint64_t slots_size;

	if (size < sizeof *head)
		return false;
	slots_size = (uint64_t)head->count * sizeof(struct listing_slot);
	if (size - sizeof *head < slots_size || size - sizeof *head - slots_size != head->heap_size)
		return false;
	listing->head = *head;
	listing->slots.bytes = (char *)(head + 1);
	listing->slots.size = slots_size;
	listing->heap.bytes = listing->slots.bytes + slots_size;
	listing->heap.size = head->heap_size;
	return head->sum == block_sum(listing);
}

/* Written by another version, which is nothing to warn of. */
static bool is_foreign(const struct listing_head *head, size_t size)
{
	return size >= sizeof *head && head->magic != LISTING_MAGIC;
}

int listing_from_bytes(struct listing_room *room, void *bytes, size_t size, struct listing **ret)
{
	struct listing *listing;
	int r;

	if (is_foreign(bytes, size)) {
		free(bytes);
		return -ENOENT;
	}
	listing = listing_new(room);
	r = listing ? listing_room_take(listing, size) : -ENOMEM;
	if (r) {
		free(bytes);
		free(listing);
		return r;
	}
	listing->block = bytes;
	if (!block_sound(listing, size)) {
		listing_unref(listing);
		return -EUCLEAN;
	}
	atomic_store(&listing->ready, listing->head.count);
	atomic_store(&listing->state, 0);
	*ret = listing;
	return 0;
}

void listing_parts(struct listing *listing, struct iovec ret[LISTING_PARTS])
{
	check(!listing_state(listing));
	listing->head.sum = block_sum(listing);
	ret[0] = (struct iovec){&listing->head, sizeof listing->head};
	ret[1] = (struct iovec){listing->slots.bytes, listing->slots.size};
	ret[2] = (struct iovec){listing->heap.bytes, listing->heap.size};
}

size_t listing_bytes(const struct listing *listing)
{
	return sizeof listing->head + listing->slots.size + listing->heap.size;
}

/* --- reading --- */

struct listing *listing_ref(struct listing *listing)
{
	check(atomic_fetch_add(&listing->refs, 1) > 0);
	return listing;
}

void listing_unref(struct listing *listing)
{
	if (!listing || atomic_fetch_sub(&listing->refs, 1) > 1)
		return;
	atomic_fetch_sub(&listing->room->used_bytes, listing->charged);
	if (listing->block) {
		free(listing->block);
	} else {
		area_free(&listing->slots);
		area_free(&listing->heap);
	}
	free(listing);
}

bool listing_is_shared(const struct listing *listing)
{
	return atomic_load(&listing->refs) > 1;
}

int listing_state(const struct listing *listing)
{
	return atomic_load(&listing->state);
}

size_t listing_count(const struct listing *listing)
{
	return atomic_load_explicit(&listing->ready, memory_order_acquire);
}

static void get_version(const struct listing *listing, const struct listing_slot *slot, char *ret)
{
	const unsigned char *from =
		(const unsigned char *)name_of(listing, slot) + slot->name_size + 1;

	if (!(slot->flags & SLOT_MD5)) {
		memcpy(ret, from, slot->version_size);
		return;
	}
	*ret++ = '"';
	for (size_t i = 0; i < VERSION_MD5_SIZE; i++) {
		*ret++ = "0123456789abcdef"[from[i] >> 4];
		*ret++ = "0123456789abcdef"[from[i] & 15];
	}
	*ret = '"';
}

void listing_get(const struct listing *listing, size_t i, struct listing_entry *ret)
{
	const struct listing_slot *slot = &slots_of(listing)[i];

	check(i < listing_count(listing));
	*ret = (struct listing_entry){
		.name = name_of(listing, slot),
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
	get_version(listing, slot, ret->attr.version.text);
}

static uint64_t cookie_hash(const char *name, size_t size)
{
	return hash64(name, size) & ((1ull << COOKIE_HASH_BITS) - 1);
}

uint64_t listing_cookie(const struct listing *listing, size_t i)
{
	const struct listing_slot *slot = &slots_of(listing)[i];

	check(i < listing_count(listing));
	return (uint64_t)(i + 1) << COOKIE_HASH_BITS |
	       cookie_hash(name_of(listing, slot), slot->name_size);
}

static bool is_at(const struct listing *listing, uint64_t i, uint64_t count, uint64_t hash)
{
	const struct listing_slot *slot;

	if (i >= count)
		return false;
	slot = &slots_of(listing)[i];
	return cookie_hash(name_of(listing, slot), slot->name_size) == hash;
}

int listing_seek(const struct listing *listing, uint64_t cookie, size_t *ret)
{
	uint64_t count = listing_count(listing), place = (cookie >> COOKIE_HASH_BITS) - 1;
	uint64_t hash = cookie & ((1ull << COOKIE_HASH_BITS) - 1);

	if (cookie < LISTING_COOKIE_MIN) {
		*ret = 0;
		return 0;
	}
	if (cookie >> COOKIE_HASH_BITS == 0 || !count)
		return -ESTALE;
	if (place >= count)
		place = count - 1;
	/* Of another listing, the name is likely near its old place. */
	for (uint64_t away = 0; away <= place || place + away < count; away++) {
		if (is_at(listing, place + away, count, hash)) {
			*ret = (size_t)(place + away + 1);
			return 0;
		}
		if (away <= place && is_at(listing, place - away, count, hash)) {
			*ret = (size_t)(place - away + 1);
			return 0;
		}
	}
	return -ESTALE;
}

bool listing_find(const struct listing *listing, const char *name, size_t name_size,
	struct listing_entry *ret, size_t *ret_index)
{
	size_t from = 0, to = listing_count(listing);

	while (from < to) {
		size_t middle = from + (to - from) / 2;
		const struct listing_slot *slot = &slots_of(listing)[middle];
		int order = name_order(name, name_size, name_of(listing, slot), slot->name_size);

		if (!order) {
			listing_get(listing, middle, ret);
			*ret_index = middle;
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
	return listing->head.wall_ns;
}

uint64_t listing_hidden_keys(const struct listing *listing)
{
	return listing->head.hidden_keys;
}
