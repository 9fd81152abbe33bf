/* Readahead: sequential reads are run ahead of, random ones are not, and nothing is asked twice. */
#include "readahead.h"

#include "rig.h"

#include <stdlib.h>
#include <string.h>

#define MIB    (1ull << 20)
#define CHUNKS 4096u

static struct readahead *start(void)
{
	struct readahead *readahead = calloc(1, sizeof *readahead);

	lock_init(&readahead->lock);
	return readahead;
}

static void end(struct readahead *readahead)
{
	lock_destroy(&readahead->lock);
	free(readahead);
}

/* Notes the read, and that no chunk that was asked for is asked for again. Returns how many were. */
static uint32_t note(
	struct readahead *readahead, uint64_t offset, uint32_t size_bytes, uint8_t *asked)
{
	uint32_t from, to;

	readahead_note(readahead, offset, size_bytes, &from, &to);
	assert_true(from <= to);
	if (from < to)
		assert_true(from > (offset + size_bytes - 1) / CHUNK_SIZE);
	for (uint32_t i = from; i < to && i < CHUNKS; i++) {
		assert_int_equal(asked[i], 0);
		asked[i] = 1;
	}
	return to - from;
}

static void random_reads_ask_for_nothing(void **state)
{
	struct readahead *readahead = start();
	uint8_t asked[CHUNKS] = {0};

	(void)state;
	/* Never within a window's reach of one of the last few. */
	for (uint64_t i = 0; i < 500; i++) {
		uint64_t offset = (i * 1237 * 16 * MIB) % (CHUNKS * 16 * MIB);

		assert_int_equal(note(readahead, offset, 4096, asked), 0);
	}
	end(readahead);
}

static void sequential_reads_grow(void **state)
{
	static const uint32_t sizes[] = {4096, 131072, 1 << 20, (1 << 20) + 5000, 4 << 20};

	(void)state;
	for (unsigned s = 0; s < 5; s++) {
		struct readahead *readahead = start();
		uint8_t asked[CHUNKS] = {0};
		uint64_t offset = 0;
		uint32_t all = 0, largest = 0;

		/* One read alone is no sequence. */
		assert_int_equal(note(readahead, 0, sizes[s], asked), 0);
		while (offset < 512 * MIB) {
			uint32_t n;

			offset += sizes[s];
			n = note(readahead, offset, sizes[s], asked);
			largest = n > largest ? n : largest;
			all += n;
		}
		assert_true(largest >= 16);
		/* What lies ahead at the end is no more than the largest window. */
		assert_in_range(all, 512 - 16, 512 + 64 + 8);
		end(readahead);
	}
}

static void four_streams_at_once(void **state)
{
	struct readahead *readahead = start();
	uint8_t asked[CHUNKS] = {0};
	uint32_t all[4] = {0};

	(void)state;
	for (uint64_t i = 0; i < 300; i++) {
		for (uint64_t s = 0; s < 4; s++)
			all[s] += note(readahead, s * 1000 * MIB + i * MIB, MIB, asked);
	}
	for (unsigned s = 0; s < 4; s++)
		assert_in_range(all[s], 284, 372);
	end(readahead);
}

/* The kernel's own readahead may turn neighbours round. */
static void neighbours_in_any_order(void **state)
{
	struct readahead *readahead = start();
	uint8_t asked[CHUNKS] = {0};
	uint32_t all = 0;

	(void)state;
	for (uint64_t i = 0; i < 300; i += 2) {
		all += note(readahead, (i + 1) * MIB, MIB, asked);
		all += note(readahead, i * MIB, MIB, asked);
	}
	assert_true(all >= 200);
	end(readahead);
}

/* The ends of what can be asked for. */
static void far_offsets(void **state)
{
	struct readahead *readahead = start();
	uint64_t last = (uint64_t)UINT32_MAX * CHUNK_SIZE - 40 * MIB;
	uint32_t from, to;

	(void)state;
	for (uint64_t i = 0; i < 40; i++) {
		readahead_note(readahead, last + i * MIB, MIB, &from, &to);
		assert_true(from <= to);
	}
	end(readahead);
}

/* A whole object, as handles do it: each byte once, in few requests. */
static void a_sequential_reader_makes_large_requests(void **state)
{
	struct rig *rig = *state;
	struct handle handle;

	world_put(rig->world, "o", 100 * MIB + 1);
	handle_open(rig, "o", &handle);
	assert_int_equal(read_whole(&handle, 128 << 10), 0);
	assert_int_equal(world_counts(rig->world).get_bytes, 100 * MIB + 1);
	assert_true(world_counts(rig->world).gets <= 25);
	handle_close(&handle);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_reads_ask_for_nothing),
		cmocka_unit_test(sequential_reads_grow),
		cmocka_unit_test(four_streams_at_once),
		cmocka_unit_test(neighbours_in_any_order),
		cmocka_unit_test(far_offsets),
		cmocka_unit_test_setup_teardown(
			a_sequential_reader_makes_large_requests, rig_set_up, rig_tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
