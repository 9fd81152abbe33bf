#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "records.h"

#define ROUNDS 20000

static struct index_object_record example(void)
{
	struct index_object_record record = {.object = {.size_bytes = 7ull << 40,
						     .disk_bytes = 3ull << 40,
						     .mtime_ns = -5,
						     .opened_wall_ns = 1234567890123456789,
						     .pinned_until_ns = INT64_MAX,
						     .ctime_ns = 42,
						     .verified_epoch = 9,
						     .n_chunks = 7u << 20,
						     .n_present = 3u << 20,
						     .complete = false,
						     .strong = true},
		.name = "s3://endpoint/bucket/a b\n\xff",
		.version = "\"0123456789abcdef\""};

	return record;
}

static void assert_same(const struct index_object_record *a, const struct index_object_record *b)
{
	assert_int_equal(a->object.size_bytes, b->object.size_bytes);
	assert_int_equal(a->object.disk_bytes, b->object.disk_bytes);
	assert_int_equal(a->object.mtime_ns, b->object.mtime_ns);
	assert_int_equal(a->object.opened_wall_ns, b->object.opened_wall_ns);
	assert_int_equal(a->object.pinned_until_ns, b->object.pinned_until_ns);
	assert_int_equal(a->object.ctime_ns, b->object.ctime_ns);
	assert_int_equal(a->object.verified_epoch, b->object.verified_epoch);
	assert_int_equal(a->object.n_chunks, b->object.n_chunks);
	assert_int_equal(a->object.n_present, b->object.n_present);
	assert_int_equal(a->object.complete, b->object.complete);
	assert_int_equal(a->object.strong, b->object.strong);
	assert_string_equal(a->name, b->name);
	assert_string_equal(a->version, b->version);
}

static void an_object_comes_back_as_it_was(void **state)
{
	struct index_object_record record = example(), back;
	uint8_t bytes[OBJECT_SIZE_MAX];
	size_t size = object_encode(&record, bytes);

	(void)state;
	assert_int_equal(size, 80 + strlen(record.name) + strlen(record.version));
	assert_int_equal(object_decode(bytes, size, &back), 0);
	assert_same(&record, &back);

	memset(record.name, 'n', INDEX_NAME_MAX - 1);
	memset(record.version, 'v', sizeof record.version - 1);
	record.name[INDEX_NAME_MAX - 1] = record.version[sizeof record.version - 1] = '\0';
	record.object.complete = true;
	record.object.strong = false;
	size = object_encode(&record, bytes);
	assert_true(size <= sizeof bytes);
	assert_int_equal(object_decode(bytes, size, &back), 0);
	assert_same(&record, &back);
}

/* What is on the disk must not change by accident. */
static void the_layout_is_the_documented_one(void **state)
{
	struct index_object_record record = {.object = {.size_bytes = 0x0102030405060708,
						     .n_chunks = 3,
						     .n_present = 3,
						     .complete = true,
						     .strong = true},
		.name = "ab",
		.version = "v"};
	static const uint8_t head[] = {1, 3, 1, 0, 2, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1};
	uint8_t bytes[OBJECT_SIZE_MAX];

	(void)state;
	assert_int_equal(object_encode(&record, bytes), 83);
	assert_memory_equal(bytes + 8, head, sizeof head);
	assert_memory_equal(bytes + 80, "abv", 3);
}

static void only_present_sums_are_stored(void **state)
{
	struct index_group group = {.present = {1ull << 3 | 1ull << 63, 1}}, back;
	uint8_t bytes[GROUP_SIZE_MAX];
	size_t size;

	(void)state;
	for (unsigned i = 0; i < INDEX_GROUP_CHUNKS; i++)
		group.sum[i] = i * 1000003ull;
	size = group_encode(&group, bytes);
	assert_int_equal(size, 32 + 3 * 8);
	assert_int_equal(group_decode(bytes, size, &back), 0);
	assert_memory_equal(back.present, group.present, sizeof back.present);
	for (unsigned i = 0; i < INDEX_GROUP_CHUNKS; i++)
		assert_int_equal(back.sum[i], i == 3 || i == 63 || i == 64 ? i * 1000003ull : 0);

	memset(group.present, 0xff, sizeof group.present);
	size = group_encode(&group, bytes);
	assert_int_equal(size, GROUP_SIZE_MAX);
	assert_int_equal(group_decode(bytes, size, &back), 0);
	assert_memory_equal(&back, &group, sizeof back);
}

static void every_flipped_bit_and_every_cut_is_found(void **state)
{
	struct index_object_record record = example(), back;
	struct index_group group = {.present = {5, 0}, .sum = {1, 2, 3}}, group_back;
	uint8_t bytes[OBJECT_SIZE_MAX], group_bytes[GROUP_SIZE_MAX];
	size_t size = object_encode(&record, bytes), group_size = group_encode(&group, group_bytes);

	(void)state;
	for (size_t bit = 0; bit < 8 * size; bit++) {
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(object_decode(bytes, size, &back), -EUCLEAN);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	for (size_t bit = 0; bit < 8 * group_size; bit++) {
		group_bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(group_decode(group_bytes, group_size, &group_back), -EUCLEAN);
		group_bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	for (size_t cut = 0; cut < size; cut++)
		assert_int_equal(object_decode(bytes, cut, &back), -EUCLEAN);
	for (size_t cut = 0; cut < group_size; cut++)
		assert_int_equal(group_decode(group_bytes, cut, &group_back), -EUCLEAN);
}

/* Decodes from a block of exactly this size, so that ASan sees a read beyond it; the strings must
 * be strings. */
static void decode_exact(const uint8_t *bytes, size_t size)
{
	struct index_object_record record;
	struct index_group group;
	uint8_t *exact = malloc(size ? size : 1);

	assert_non_null(exact);
	memcpy(exact, bytes, size);
	if (size >= RECORD_SUM_SIZE)
		record_seal(exact, size);
	if (object_decode(exact, size, &record) == 0) {
		assert_true(strlen(record.name) < sizeof record.name);
		assert_true(strlen(record.version) < sizeof record.version);
		assert_true(record.object.n_present <= record.object.n_chunks);
	}
	group_decode(exact, size, &group);
	free(exact);
}

static void random_bytes_with_a_right_sum_never_crash(void **state)
{
	struct index_object_record record = example();
	struct index_group group = {.present = {~0ull, 3}};
	uint8_t bytes[OBJECT_SIZE_MAX];
	unsigned seed = 1;

	(void)state;
	for (unsigned round = 0; round < ROUNDS; round++) {
		size_t size = (size_t)rand_r(&seed) % 400;

		if (round % 3 == 0)
			size = object_encode(&record, bytes);
		else if (round % 3 == 1)
			size = group_encode(&group, bytes);
		else
			for (size_t i = 0; i < size; i++)
				bytes[i] = (uint8_t)rand_r(&seed);
		for (unsigned i = 0; i < 3 && size > 0; i++)
			bytes[(size_t)rand_r(&seed) % size] = (uint8_t)rand_r(&seed);
		if (rand_r(&seed) % 2)
			size = (size_t)rand_r(&seed) % (size + 1);
		decode_exact(bytes, size);
	}
}

/* Each refused for its own reason, not for its sum. */
static void impossible_objects_are_refused(void **state)
{
	static const struct {
		size_t at;
		uint8_t value;
	} changes[] = {
		{8, 2},     /* another kind */
		{9, 4},     /* an unknown flag */
		{10, 200},  /* a version longer than the record */
		{12, 200},  /* a name longer than the record */
		{15, 0xff}, /* by 4 GiB */
		{76, 0xff}, /* more present than there are */
		{80, 0},    /* a NUL in the name */
		{100, 0},
	};
	struct index_object_record record = example(), back;
	uint8_t bytes[OBJECT_SIZE_MAX];

	(void)state;
	record.object.n_chunks = record.object.n_present = 1;
	for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
		size_t size = object_encode(&record, bytes);

		bytes[changes[i].at] = changes[i].value;
		record_seal(bytes, size);
		assert_int_equal(object_decode(bytes, size, &back), -EUCLEAN);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_object_comes_back_as_it_was),
		cmocka_unit_test(the_layout_is_the_documented_one),
		cmocka_unit_test(only_present_sums_are_stored),
		cmocka_unit_test(every_flipped_bit_and_every_cut_is_found),
		cmocka_unit_test(random_bytes_with_a_right_sum_never_crash),
		cmocka_unit_test(impossible_objects_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
