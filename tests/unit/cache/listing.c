/* The listing as one block: what is built is found, and no damage gets through. */
#include "rig.h"
#include "listing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add(struct listing_builder *builder, const char *name, enum origin_kind kind,
	uint64_t size_bytes)
{
	struct origin_entry entry = {.name = name,
		.name_size = strlen(name),
		.attr = {.kind = kind, .size_bytes = size_bytes, .version = {"\"v\"", true}},
		.attr_known = true};

	listing_builder_add(builder, &entry);
}

static struct listing *build(unsigned n)
{
	struct listing_builder builder;
	struct listing *listing;
	char name[32];

	listing_builder_init(&builder);
	builder.hidden_keys = 7;
	for (unsigned i = 0; i < n; i++) {
		/* Not in order. */
		snprintf(name, sizeof name, "name-%u", (i * 7919) % n);
		add(&builder, name, i % 3 ? ORIGIN_FILE : ORIGIN_DIR, i);
	}
	assert_int_equal(listing_build(&builder, &listing), 0);
	return listing;
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
			assert_true(strcmp(before.name, entry.name) < 0);
		before = entry;
		snprintf(name, sizeof name, "name-%u", i);
		assert_true(listing_find(listing, name, strlen(name), &entry));
		assert_string_equal(entry.name, name);
		assert_string_equal(entry.attr.version.text, "\"v\"");
	}
	assert_false(listing_find(listing, "name-", 5, &entry));
	assert_false(listing_find(listing, "name-997", 8, &entry));
	assert_false(listing_find(listing, "", 0, &entry));
	assert_false(listing_find(listing, "zzz", 3, &entry));
	listing_unref(listing);
}

static void odd_names(void **state)
{
	static const char *const names[] = {" ", "\n", "\xff\xfe", "a", "a ", "a%2F", "ab", "\x01"};
	struct listing_builder builder;
	struct listing *listing;
	struct listing_entry entry;
	char longest[1024];

	(void)state;
	memset(longest, 'x', 1023);
	longest[1023] = '\0';
	listing_builder_init(&builder);
	for (unsigned i = 0; i < 8; i++)
		add(&builder, names[i], ORIGIN_FILE, i);
	add(&builder, longest, ORIGIN_FILE, 1023);
	assert_int_equal(listing_build(&builder, &listing), 0);
	for (unsigned i = 0; i < 8; i++) {
		assert_true(listing_find(listing, names[i], strlen(names[i]), &entry));
		assert_int_equal(entry.attr.size_bytes, i);
	}
	assert_true(listing_find(listing, longest, 1023, &entry));
	assert_int_equal(entry.name_size, 1023);
	listing_unref(listing);
}

static void repeated_names(void **state)
{
	struct listing_builder builder;
	struct listing *listing;
	struct listing_entry entry;

	(void)state;
	listing_builder_init(&builder);
	for (unsigned i = 0; i < 5; i++) {
		add(&builder, "both", ORIGIN_FILE, 1);
		add(&builder, "file", ORIGIN_FILE, 1);
		add(&builder, "dir", ORIGIN_DIR, 0);
	}
	add(&builder, "both", ORIGIN_DIR, 0);
	assert_int_equal(listing_build(&builder, &listing), 0);
	assert_int_equal(listing_count(listing), 3);
	assert_true(listing_find(listing, "both", 4, &entry));
	assert_int_equal(entry.attr.kind, ORIGIN_DIR);
	listing_unref(listing);
	/* And none at all. */
	assert_int_equal(listing_build(&builder, &listing), 0);
	assert_int_equal(listing_count(listing), 0);
	assert_false(listing_find(listing, "x", 1, &entry));
	listing_unref(listing);
}

static uint64_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 24;
}

/* Any damage is seen: what is accepted is what was built. */
static void damage_is_seen(void **state)
{
	struct listing *listing = build(50), *read;
	uint64_t seed = 1;
	size_t size;
	const void *bytes = listing_bytes(listing, &size);

	(void)state;
	for (unsigned i = 0; i < 20000; i++) {
		size_t cut = i % 4 == 0 ? next_random(&seed) % (size + 100) : size;
		uint8_t *copy = calloc(1, cut + 1);
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
		r = listing_from_bytes(copy, cut, &read);
		assert_int_equal(r, -EUCLEAN);
	}
	/* Undamaged it is the same again. */
	{
		uint8_t *copy = malloc(size);
		struct listing_entry entry;

		memcpy(copy, bytes, size);
		assert_int_equal(listing_from_bytes(copy, size, &read), 0);
		assert_int_equal(listing_count(read), 50);
		assert_int_equal(listing_wall_ns(read), listing_wall_ns(listing));
		assert_true(listing_find(read, "name-49", 7, &entry));
		listing_unref(read);
	}
	listing_unref(listing);
}

/* Where a reader stands in one listing means the same in another one. */
static void places_outlive_a_listing(void **state)
{
	struct listing *listings[2] = {build(900), build(997)};
	struct listing_place place, last = {0};
	struct listing_entry entry, other;
	uint64_t sum = 0;

	(void)state;
	for (size_t rank = 0; rank < 997; rank++) {
		listing_place(listings[1], rank, &place);
		assert_true(place.cookie > last.cookie && place.cookie <= INT64_MAX);
		assert_true(place.cookie >= LISTING_COOKIE_MIN);
		assert_int_equal(listing_rank_after(listings[1], place.cookie), rank + 1);
		assert_int_equal(listing_rank_after(listings[1], place.cookie - 1), rank);
		sum += place.entry;
		last = place;
	}
	assert_int_equal(sum, 996 * 997 / 2);
	assert_int_equal(listing_rank_after(listings[1], 0), 0);
	for (size_t rank = 0; rank < 900; rank++) {
		listing_place(listings[0], rank, &place);
		listing_get(listings[0], place.entry, &entry);
		listing_place(
			listings[1], listing_rank_after(listings[1], place.cookie - 1), &last);
		listing_get(listings[1], last.entry, &other);
		assert_true(last.cookie == place.cookie);
		assert_string_equal(entry.name, other.name);
	}
	listing_unref(listings[0]);
	listing_unref(listings[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(places_outlive_a_listing),
		cmocka_unit_test(names_are_sorted_and_found),
		cmocka_unit_test(odd_names),
		cmocka_unit_test(repeated_names),
		cmocka_unit_test(damage_is_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
