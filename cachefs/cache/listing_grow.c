/* A listing as it grows: its memory, the order of names, and what is ready of them. */
#include "listing_private.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/clock.h"

#define GROW_FIRST 4096

/* --- memory --- */

static bool take(struct listing_room *room, size_t bytes, size_t max_bytes)
{
	size_t used = atomic_load(&room->used_bytes);

	do {
		if (bytes > max_bytes || used > max_bytes - bytes)
			return false;
	} while (!atomic_compare_exchange_weak(&room->used_bytes, &used, used + bytes));
	return true;
}

int listing_room_take(struct listing *listing, size_t bytes)
{
	struct listing_room *room = listing->room;
	size_t large_max = LISTINGS_BYTES_MAX - LISTINGS_SPARE_BYTES;
	size_t max_bytes =
		listing->charged + bytes <= LISTING_SMALL_BYTES ? LISTINGS_BYTES_MAX : large_max;

	if (listing->charged + bytes > large_max)
		return -EFBIG;
	if (!take(room, bytes, max_bytes)) {
		if (room->make)
			room->make(room);
		if (!take(room, bytes, max_bytes))
			return -ENOMEM;
	}
	listing->charged += bytes;
	return 0;
}

/* Counts what the listing has come to use. */
static int charge(struct listing *listing)
{
	size_t used = listing->slots.size + listing->heap.size;

	return used > listing->charged ? listing_room_take(listing, used - listing->charged) : 0;
}

void area_free(struct area *area)
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

	if (n == ready)
		return;
	check(slots);
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
