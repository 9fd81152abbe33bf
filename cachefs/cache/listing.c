#include "listing.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"

#define LISTING_MAGIC 0x33534c43u /* "CLS3" */
/* A cookie is the entry's number, from 1, and bits of its name's hash. */
#define COOKIE_HASH_BITS 36
#define ENTRIES_MAX      ((1u << (63 - COOKIE_HASH_BITS)) - 2)
#define VERSION_MD5_SIZE 16
#define GROW_FIRST       4096

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

/* --- memory --- */

static int room_take(struct listing *listing, size_t bytes)
{
	struct listing_room *room = listing->room;

	for (int tries = 0; tries < 2; tries++) {
		if (atomic_fetch_add(&room->used_bytes, bytes) + bytes <= LISTINGS_BYTES_MAX) {
			listing->charged += bytes;
			return 0;
		}
		atomic_fetch_sub(&room->used_bytes, bytes);
		if (!tries && room->make)
			room->make(room);
	}
	return listing->charged + bytes > LISTINGS_BYTES_MAX ? -EFBIG : -ENOMEM;
}

/* Counts what the listing has come to use. */
static int charge(struct listing *listing)
{
	size_t used = listing->slots.size + listing->heap.size;

	return used > listing->charged ? room_take(listing, used - listing->charged) : 0;
}

static void area_free(struct area *area)
{
	if (area->mapped)
		munmap(area->bytes, area->room);
	else
		free(area->bytes);
	*area = (struct area){0};
}

static int area_need(struct area *area, size_t n)
{
	size_t room = area->room ? area->room : GROW_FIRST;
	char *bytes;

	if (n <= area->room - area->size)
		return 0;
	if (area->mapped)
		return -EFBIG;
	while (room - area->size < n)
		room *= 2;
	bytes = realloc(area->bytes, room);
	if (!bytes)
		return -ENOMEM;
	area->bytes = bytes;
	area->room = room;
	return 0;
}

/* From now on it doesn't move. Untouched pages of the mapping cost nothing. */
static int area_map(struct area *area)
{
	char *bytes;

	if (area->mapped)
		return 0;
	bytes = mmap(NULL, LISTINGS_BYTES_MAX, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (bytes == MAP_FAILED)
		return -ENOMEM;
	if (area->size)
		memcpy(bytes, area->bytes, area->size);
	free(area->bytes);
	area->bytes = bytes;
	area->room = LISTINGS_BYTES_MAX;
	area->mapped = true;
	return 0;
}

/* It grows no more: gives back what it doesn't use. */
static void area_trim(struct area *area)
{
	size_t page = 4096, keep = (area->size + page - 1) / page * page;
	char *bytes;

	if (!area->size) {
		area_free(area);
	} else if (!area->mapped) {
		bytes = realloc(area->bytes, area->size);
		if (bytes)
			area->bytes = bytes;
		area->room = area->size;
	} else if (keep < area->room) {
		munmap(area->bytes + keep, area->room - keep);
		area->room = keep;
	}
}

/* --- order --- */

static struct listing_slot *slots_of(const struct listing *listing)
{
	return (struct listing_slot *)(void *)listing->slots.bytes;
}

static size_t n_slots(const struct listing *listing)
{
	return listing->slots.size / sizeof(struct listing_slot);
}

static const char *name_of(const struct listing *listing, const struct listing_slot *slot)
{
	return listing->heap.bytes + slot->name;
}

/* Names as if a slash followed each; no name has one within. */
static int name_order(const char *a, size_t a_size, const char *b, size_t b_size)
{
	int order = memcmp(a, b, a_size < b_size ? a_size : b_size);

	if (order || a_size == b_size)
		return order;
	return a_size < b_size ? '/' - (unsigned char)b[a_size] : (unsigned char)a[b_size] - '/';
}

static int slots_order(
	const struct listing *listing, const struct listing_slot *a, const struct listing_slot *b)
{
	return name_order(name_of(listing, a), a->name_size, name_of(listing, b), b->name_size);
}

/* By name; of equal names directories first. */
static int sort_order(const void *a, const void *b, void *listing)
{
	const struct listing_slot *left = a, *right = b;
	int order = slots_order(listing, left, right);

	return order ? order : (right->flags & SLOT_DIR) - (left->flags & SLOT_DIR);
}

/* What follows the first n bytes of a key; -1: nothing. */
static int key_byte(const char *name, size_t size, bool slashed, size_t n)
{
	return n < size ? (unsigned char)name[n] : slashed ? '/' : -1;
}

/* As the origin orders its keys: that of a directory ends with a slash, that of a file doesn't.
 * slashed: a is taken with a slash whatever it is. */
static int key_order(const struct listing *listing, const struct listing_slot *a, bool slashed,
	const struct listing_slot *b)
{
	size_t n = a->name_size < b->name_size ? a->name_size : b->name_size;
	int order = memcmp(name_of(listing, a), name_of(listing, b), n);

	if (order)
		return order;
	return key_byte(name_of(listing, a), a->name_size, slashed || a->flags & SLOT_DIR, n) -
	       key_byte(name_of(listing, b), b->name_size, b->flags & SLOT_DIR, n);
}

/* --- growing --- */

struct listing *listing_new(struct listing_room *room)
{
	struct listing *listing = calloc(1, sizeof *listing);

	if (!listing)
		return NULL;
	listing->room = room;
	atomic_init(&listing->refs, 1);
	atomic_init(&listing->state, LISTING_GROWING);
	return listing;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* False: it is no MD5 in quotes. */
static bool pack_version(const char *text, size_t size, char packed[VERSION_MD5_SIZE])
{
	if (size != 2 * VERSION_MD5_SIZE + 2 || text[0] != '"' || text[size - 1] != '"')
		return false;
	for (size_t i = 0; i < VERSION_MD5_SIZE; i++) {
		int high = hex_digit(text[1 + 2 * i]), low = hex_digit(text[2 + 2 * i]);

		if (high < 0 || low < 0)
			return false;
		packed[i] = (char)(high << 4 | low);
	}
	return true;
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

static void append(struct area *area, const void *bytes, size_t n)
{
	if (n)
		memcpy(area->bytes + area->size, bytes, n);
	area->size += n;
}

/* Files come in order, and directories among themselves. */
static void look_at_order(struct listing *listing, const struct listing_slot *slot)
{
	bool kind = slot->flags & SLOT_DIR;

	listing->disordered |= listing->has_last[kind] &&
			       key_order(listing, slot, false, &listing->last[kind]) < 0;
	listing->last[kind] = *slot;
	listing->has_last[kind] = true;
}

void listing_add(struct listing *listing, const struct origin_entry *entry)
{
	const struct origin_attr *attr = &entry->attr;
	size_t version_size = strnlen(attr->version.text, sizeof attr->version.text - 1);
	const char *version = attr->version.text;
	char packed[VERSION_MD5_SIZE];
	bool is_md5 = pack_version(version, version_size, packed);
	struct listing_slot slot = {
		.size_bytes = attr->size_bytes,
		.mtime_ns = attr->mtime_ns,
		.name = (uint32_t)listing->heap.size,
		.name_size = (uint16_t)entry->name_size,
		.flags = (uint8_t)((attr->kind == ORIGIN_DIR ? SLOT_DIR : 0) |
				   (entry->attr_known ? SLOT_ATTR_KNOWN : 0) |
				   (attr->version.strong ? SLOT_STRONG : 0) |
				   (is_md5 ? SLOT_MD5 : 0)),
	};
	size_t n = n_slots(listing);

	check(entry->name_size <= UINT16_MAX);
	if (is_md5) {
		version = packed;
		version_size = sizeof packed;
	}
	slot.version_size = (uint8_t)version_size;
	if (!listing->error)
		listing->error =
			n == ENTRIES_MAX ? -EFBIG : area_need(&listing->slots, sizeof slot);
	if (!listing->error)
		listing->error = area_need(&listing->heap, entry->name_size + 1 + version_size);
	if (listing->error)
		return;
	append(&listing->heap, entry->name, entry->name_size);
	append(&listing->heap, "", 1);
	append(&listing->heap, version, version_size);
	append(&listing->slots, &slot, sizeof slot);
	if (!n || key_order(listing, &slot, false, &listing->top) > 0)
		listing->top = slot;
	look_at_order(listing, &slot);
}

void listing_add_hidden(struct listing *listing, uint64_t keys)
{
	listing->head.hidden_keys += keys;
}

static bool is_sorted(const struct listing *listing, size_t from, size_t n)
{
	const struct listing_slot *slots = slots_of(listing);

	for (size_t i = from; i + 1 < n; i++) {
		if (sort_order(&slots[i], &slots[i + 1], (void *)listing) > 0)
			return false;
	}
	return true;
}

/* Of each name the first stays. What is ready stays as it is. */
static void drop_repeated(struct listing *listing, size_t ready)
{
	struct listing_slot *slots = slots_of(listing);
	size_t kept = ready, n = n_slots(listing);

	for (size_t i = ready; i < n; i++) {
		const struct listing_slot *last = kept ? &slots[kept - 1] : NULL;

		if (last && !slots_order(listing, last, &slots[i])) {
			listing->head.hidden_keys += (last->flags ^ slots[i].flags) & SLOT_DIR;
			continue;
		}
		slots[kept++] = slots[i];
	}
	listing->slots.size = kept * sizeof *slots;
}

/* Brings what isn't ready yet into order. */
static int settle(struct listing *listing)
{
	struct listing_slot *slots = slots_of(listing);
	size_t ready = atomic_load(&listing->ready), n = n_slots(listing);

	if (listing->error)
		return listing->error;
	if (n > ready && !is_sorted(listing, ready, n))
		qsort_r(slots + ready, n - ready, sizeof *slots, sort_order, listing);
	if (ready && n > ready && slots_order(listing, &slots[ready - 1], &slots[ready]) > 0)
		return -EBADMSG;
	drop_repeated(listing, ready);
	return charge(listing);
}

/* Publishes the names that nothing can come before any more: those that are, with a slash, not above
 * the greatest key. */
static void make_ready(struct listing *listing)
{
	const struct listing_slot *slots = slots_of(listing);
	size_t ready = atomic_load(&listing->ready), n = n_slots(listing);

	while (ready < n && key_order(listing, &slots[ready], true, &listing->top) <= 0)
		ready++;
	atomic_store(&listing->ready, ready);
}

int listing_page_end(struct listing *listing, bool ordered)
{
	int r;

	if (!ordered)
		return listing->error ? listing->error : charge(listing);
	if (listing->disordered)
		return -EBADMSG;
	r = area_map(&listing->slots);
	if (!r)
		r = area_map(&listing->heap);
	if (!r)
		r = settle(listing);
	if (r)
		return r;
	make_ready(listing);
	return 0;
}

static uint64_t block_sum(const struct listing *listing)
{
	const struct listing_head *head = &listing->head;
	size_t before = offsetof(struct listing_head, hidden_keys);
	uint64_t sums[] = {hash64((const char *)head + before, sizeof *head - before),
		hash64(listing->slots.bytes, listing->slots.size),
		hash64(listing->heap.bytes, listing->heap.size)};

	return hash64(sums, sizeof sums);
}

int listing_finish(struct listing *listing)
{
	int r = settle(listing);

	if (r)
		return r;
	area_trim(&listing->slots);
	area_trim(&listing->heap);
	listing->head.magic = LISTING_MAGIC;
	listing->head.count = (uint32_t)n_slots(listing);
	listing->head.heap_size = listing->heap.size;
	listing->head.wall_ns = clock_wall_ns();
	atomic_store(&listing->ready, n_slots(listing));
	atomic_store(&listing->state, 0);
	return 0;
}

void listing_fail(struct listing *listing, int error)
{
	check(error < 0);
	atomic_store(&listing->state, error);
}

size_t listing_grown(const struct listing *listing)
{
	return n_slots(listing);
}

/* --- in the index --- */

static bool block_sound(struct listing *listing, size_t size)
{
	const struct listing_head *head = listing->block;
	uint64_t slots_size;

	if (size < sizeof *head || head->magic != LISTING_MAGIC)
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

int listing_from_bytes(struct listing_room *room, void *bytes, size_t size, struct listing **ret)
{
	struct listing *listing = listing_new(room);
	int r = listing ? room_take(listing, size) : -ENOMEM;

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
