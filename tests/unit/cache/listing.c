/* The listing as one block: what is built is found, and no damage gets through. */
#include "rig.h"
#include "listing_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct listing_room room;

static void add(
	struct listing *listing, const char *name, enum origin_kind kind, uint64_t size_bytes)
{
	struct origin_entry entry = {.name = name,
		.name_size = strlen(name),
		.attr = {.kind = kind, .size_bytes = size_bytes, .version = {"\"v\"", true}},
		.attr_known = true};

	listing_add(listing, &entry);
}

static struct listing *build(unsigned n)
{
	struct listing *listing = listing_new(&room);
	char name[32];

	listing_add_hidden(listing, 7);
	for (unsigned i = 0; i < n; i++) {
		/* Not in order. */
		snprintf(name, sizeof name, "name-%u", (i * 7919) % n);
		add(listing, name, i % 3 ? ORIGIN_FILE : ORIGIN_DIR, i);
	}
	assert_int_equal(listing_finish(listing), 0);
	return listing;
}

static bool has(const struct listing *listing, const char *name, struct listing_entry *ret)
{
	size_t index;

	return listing_find(listing, name, strlen(name), ret, &index);
}

/* Each as if a slash followed it. */
static bool is_before(const char *a, const char *b)
{
	char x[64], y[64];

	snprintf(x, sizeof x, "%s/", a);
	snprintf(y, sizeof y, "%s/", b);
	return strcmp(x, y) < 0;
}

static void names_are_sorted_and_found(void **state)
{
	struct listing *listing = build(997);
	struct listing_entry entry, before = {0};

	(void)state;
	assert_int_equal(listing_count(listing), 997);
	assert_int_equal(listing_hidden_keys(listing), 7);
	for (unsigned i = 0; i < 997; i++) {
		char name[32];

		listing_get(listing, i, &entry);
		if (i)
			assert_true(is_before(before.name, entry.name));
		before = entry;
		snprintf(name, sizeof name, "name-%u", i);
		assert_true(has(listing, name, &entry));
		assert_string_equal(entry.name, name);
		assert_string_equal(entry.attr.version.text, "\"v\"");
	}
	assert_false(has(listing, "name-", &entry));
	assert_false(has(listing, "name-997", &entry));
	assert_false(has(listing, "", &entry));
	assert_false(has(listing, "zzz", &entry));
	listing_unref(listing);
}

static void odd_names(void **state)
{
	static const char *const names[] = {" ", "\n", "\xff\xfe", "a", "a ", "a%2F", "ab", "\x01"};
	struct listing *listing = listing_new(&room);
	struct listing_entry entry;
	char longest[1024];

	(void)state;
	memset(longest, 'x', 1023);
	longest[1023] = '\0';
	for (unsigned i = 0; i < 8; i++)
		add(listing, names[i], ORIGIN_FILE, i);
	add(listing, longest, ORIGIN_FILE, 1023);
	assert_int_equal(listing_finish(listing), 0);
	for (unsigned i = 0; i < 8; i++) {
		assert_true(has(listing, names[i], &entry));
		assert_int_equal(entry.attr.size_bytes, i);
	}
	assert_true(has(listing, longest, &entry));
	assert_int_equal(entry.name_size, 1023);
	listing_unref(listing);
}

static void repeated_names(void **state)
{
	struct listing *listing = listing_new(&room);
	struct listing_entry entry;

	(void)state;
	for (unsigned i = 0; i < 5; i++) {
		add(listing, "both", ORIGIN_FILE, 1);
		add(listing, "file", ORIGIN_FILE, 1);
		add(listing, "dir", ORIGIN_DIR, 0);
	}
	add(listing, "both", ORIGIN_DIR, 0);
	assert_int_equal(listing_finish(listing), 0);
	assert_int_equal(listing_count(listing), 3);
	assert_int_equal(listing_hidden_keys(listing), 5);
	assert_true(has(listing, "both", &entry));
	assert_int_equal(entry.attr.kind, ORIGIN_DIR);
	listing_unref(listing);
	/* And none at all. */
	listing = listing_new(&room);
	assert_int_equal(listing_finish(listing), 0);
	assert_int_equal(listing_count(listing), 0);
	assert_false(has(listing, "x", &entry));
	listing_unref(listing);
}

/* What is ready after a page is what no later page can come before, and stays as it is. */
static void names_are_ready_as_they_come(void **state)
{
	/* Pages as S3 cuts them, files first; how many are ready after each. */
	static const struct {
		const char *keys[5];
		size_t ready;
	} pages[] = {
		{{"a", "a!", "a-1", "a-0/"}, 2},   /* "a!", "a-0"; a/ and a-1/ may still come */
		{{"a-2", "a.b", "a-1/", "a/"}, 6}, /* a, and a-1, are directories */
		{{"b", NULL}, 6},                  /* b/ may come */
		{{"b#", "b/", "c/"}, 9}, {{"d", "e", "e!"}, 10}, /* e!/ may come */
	};
	struct listing *listing = listing_new(&room);
	struct listing_entry entry;
	size_t count;

	(void)state;
	for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
		for (size_t j = 0; j < 5 && pages[i].keys[j]; j++) {
			char name[8];
			size_t size = strlen(pages[i].keys[j]);
			bool directory = pages[i].keys[j][size - 1] == '/';

			snprintf(name, sizeof name, "%.*s", (int)(size - directory),
				pages[i].keys[j]);
			add(listing, name, directory ? ORIGIN_DIR : ORIGIN_FILE, 1);
		}
		assert_int_equal(listing_page_end(listing, true), 0);
		assert_int_equal(listing_count(listing), pages[i].ready);
		assert_int_equal(listing_state(listing), LISTING_GROWING);
	}
	assert_int_equal(listing_finish(listing), 0);
	assert_int_equal(listing_state(listing), 0);
	count = listing_count(listing);
	assert_int_equal(count, 12);
	for (size_t i = 0; i < count; i++) {
		static const char *const names[] = {
			"a!", "a-0", "a-1", "a-2", "a.b", "a", "b#", "b", "c", "d", "e!", "e"};

		listing_get(listing, i, &entry);
		assert_string_equal(entry.name, names[i]);
		assert_true(has(listing, names[i], &entry));
	}
	assert_true(has(listing, "a", &entry) && entry.attr.kind == ORIGIN_DIR);
	assert_true(has(listing, "b", &entry) && entry.attr.kind == ORIGIN_DIR);
	assert_true(has(listing, "e", &entry) && entry.attr.kind == ORIGIN_FILE);
	listing_unref(listing);
}

static void pages_out_of_order(void **state)
{
	struct listing *listing = listing_new(&room);

	(void)state;
	add(listing, "b", ORIGIN_FILE, 1);
	add(listing, "c", ORIGIN_FILE, 1);
	assert_int_equal(listing_page_end(listing, true), 0);
	add(listing, "a", ORIGIN_FILE, 1);
	assert_int_equal(listing_page_end(listing, true), -EBADMSG);
	listing_unref(listing);
	/* Nobody was given names: they are put in order. */
	listing = listing_new(&room);
	add(listing, "b", ORIGIN_FILE, 1);
	assert_int_equal(listing_page_end(listing, false), 0);
	assert_int_equal(listing_count(listing), 0);
	add(listing, "a", ORIGIN_FILE, 1);
	add(listing, "b", ORIGIN_FILE, 1);
	assert_int_equal(listing_finish(listing), 0);
	assert_int_equal(listing_count(listing), 2);
	listing_unref(listing);
}

static void fill(struct listing *listing, unsigned n)
{
	char name[400];

	memset(name, 'x', sizeof name);
	for (unsigned i = 0; i < n; i++) {
		sprintf(name + sizeof name - 12, "%011u", i);
		add(listing, name, ORIGIN_FILE, i);
	}
}

static unsigned made_room;

static void make_room(struct listing_room *from)
{
	(void)from;
	made_room++;
}

/* All listings together have one ceiling. */
static void memory_has_a_ceiling(void **state)
{
	struct listing_room own = {.make = make_room};
	struct listing *large = listing_new(&own), *other, *small[10];
	unsigned n = 0;
	size_t used;
	int r = 0;

	(void)state;
	for (; !r && n < 1000; n++) {
		fill(large, 1000);
		r = listing_page_end(large, false);
	}
	assert_int_equal(r, -EFBIG);
	/* Nobody else could make room for that. */
	assert_int_equal(made_room, 0);
	used = atomic_load(&own.used_bytes);
	assert_true(used <= LISTINGS_BYTES_MAX - LISTINGS_SPARE_BYTES);
	assert_true(used > LISTINGS_BYTES_MAX - LISTINGS_SPARE_BYTES - (1u << 20));
	other = listing_new(&own);
	fill(other, 10000);
	assert_int_equal(listing_finish(other), -ENOMEM);
	assert_int_equal(made_room, 1);
	listing_unref(other);
	assert_int_equal(atomic_load(&own.used_bytes), used);
	/* Small ones find room all the same. */
	for (unsigned i = 0; i < 10; i++) {
		small[i] = listing_new(&own);
		fill(small[i], 1000);
		assert_int_equal(listing_finish(small[i]), 0);
	}
	assert_int_equal(made_room, 1);
	for (unsigned i = 0; i < 10; i++)
		listing_unref(small[i]);
	listing_unref(large);
	assert_int_equal(atomic_load(&own.used_bytes), 0);
	other = listing_new(&own);
	fill(other, 10000);
	assert_int_equal(listing_finish(other), 0);
	listing_unref(other);
}

static void versions_come_back_as_they_were(void **state)
{
	static const char *const versions[] = {"\"0123456789abcdef0123456789abcdef\"",
		"\"0123456789ABCDEF0123456789abcdef\"", "\"0123456789abcdef0123456789abcdef-2\"",
		"W/\"x\"", "", "0123456789abcdef0123456789abcdef12"};
	struct listing *listing = listing_new(&room);
	struct listing_entry entry;
	char name[] = "a";

	(void)state;
	for (size_t i = 0; i < 6; i++, name[0]++) {
		struct origin_entry add = {.name = name,
			.name_size = 1,
			.attr = {.version.strong = i % 2},
			.attr_known = true};

		strcpy(add.attr.version.text, versions[i]);
		listing_add(listing, &add);
	}
	assert_int_equal(listing_finish(listing), 0);
	for (size_t i = 0; i < 6; i++) {
		listing_get(listing, i, &entry);
		assert_string_equal(entry.attr.version.text, versions[i]);
		assert_int_equal(entry.attr.version.strong, i % 2);
	}
	listing_unref(listing);
}

static uint64_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 24;
}

static uint8_t *flat(struct listing *listing, size_t *ret_size)
{
	struct iovec parts[LISTING_PARTS];
	uint8_t *bytes = malloc(listing_bytes(listing)), *at = bytes;

	listing_parts(listing, parts);
	for (size_t i = 0; i < LISTING_PARTS; i++) {
		memcpy(at, parts[i].iov_base, parts[i].iov_len);
		at += parts[i].iov_len;
	}
	*ret_size = (size_t)(at - bytes);
	assert_int_equal(*ret_size, listing_bytes(listing));
	return bytes;
}

/* Any damage is seen: what is accepted is what was built. */
static void damage_is_seen(void **state)
{
	struct listing *listing = build(50), *read;
	uint64_t seed = 1;
	size_t size;
	uint8_t *bytes = flat(listing, &size);
	struct listing_entry entry;

	(void)state;
	for (unsigned i = 0; i < 20000; i++) {
		size_t cut = i % 4 == 0 ? next_random(&seed) % (size + 100) : size;
		uint8_t *copy = calloc(1, cut + 1);
		bool other_format;
		int r;

		memcpy(copy, bytes, cut < size ? cut : size);
		for (unsigned n = 1 + next_random(&seed) % 4; cut && n; n--)
			copy[next_random(&seed) % (i % 3             ? cut
							  : cut < 48 ? cut
								     : 48)] ^=
				(uint8_t)(1u << next_random(&seed) % 8);
		if (cut == size && !memcmp(copy, bytes, size)) {
			free(copy);
			continue;
		}
		other_format = cut >= sizeof(struct listing_head) && memcmp(copy, bytes, 4) != 0;
		r = listing_from_bytes(&room, copy, cut, &read);
		assert_int_equal(r, other_format ? -ENOENT : -EUCLEAN);
	}
	/* Undamaged it is the same again. */
	assert_int_equal(listing_from_bytes(&room, bytes, size, &read), 0);
	assert_int_equal(listing_count(read), 50);
	assert_int_equal(listing_state(read), 0);
	assert_int_equal(listing_wall_ns(read), listing_wall_ns(listing));
	assert_true(has(read, "name-49", &entry));
	listing_unref(read);
	listing_unref(listing);
	assert_int_equal(atomic_load(&room.used_bytes), 0);
}

/* Where a reader stands in one listing means the same in another one. */
static void places_outlive_a_listing(void **state)
{
	struct listing *listings[2] = {build(900), build(997)};
	struct listing_entry entry, other;
	uint64_t cookie, last = 0;
	size_t next;

	(void)state;
	for (size_t i = 0; i < 997; i++) {
		cookie = listing_cookie(listings[1], i);
		assert_true(cookie > last && cookie <= INT64_MAX && cookie >= LISTING_COOKIE_MIN);
		assert_int_equal(listing_seek(listings[1], cookie, &next), 0);
		assert_int_equal(next, i + 1);
		last = cookie;
	}
	for (uint64_t early = 0; early < LISTING_COOKIE_MIN; early++) {
		assert_int_equal(listing_seek(listings[1], early, &next), 0);
		assert_int_equal(next, 0);
	}
	for (size_t i = 0; i < 997; i++) {
		int r = listing_seek(listings[0], listing_cookie(listings[1], i), &next);

		listing_get(listings[1], i, &entry);
		if (!has(listings[0], entry.name, &other)) {
			assert_int_equal(r, -ESTALE);
			continue;
		}
		assert_int_equal(r, 0);
		listing_get(listings[0], next - 1, &other);
		assert_string_equal(entry.name, other.name);
	}
	assert_int_equal(listing_seek(listings[0], INT64_MAX, &next), -ESTALE);
	assert_int_equal(listing_seek(listings[0], LISTING_COOKIE_MIN, &next), -ESTALE);
	listing_unref(listings[0]);
	listing_unref(listings[1]);
	listings[0] = build(0);
	assert_int_equal(listing_seek(listings[0], 0, &next), 0);
	assert_int_equal(listing_seek(listings[0], INT64_MAX, &next), -ESTALE);
	listing_unref(listings[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(places_outlive_a_listing),
		cmocka_unit_test(names_are_sorted_and_found),
		cmocka_unit_test(odd_names),
		cmocka_unit_test(repeated_names),
		cmocka_unit_test(names_are_ready_as_they_come),
		cmocka_unit_test(pages_out_of_order),
		cmocka_unit_test(memory_has_a_ceiling),
		cmocka_unit_test(versions_come_back_as_they_were),
		cmocka_unit_test(damage_is_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
