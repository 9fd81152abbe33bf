/* Few buffers and many readers: all finish, and a stalled origin stops nobody who doesn't need it. */
#include "rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB       (1ull << 20)
#define OBJECTS   8
#define READERS   64
#define OBJECT_MB 6

struct reading_thread {
	pthread_t thread;
	struct rig *rig;
	unsigned n;
};

static void path_of(char path[32], unsigned i)
{
	snprintf(path, 32, "o%u", i % OBJECTS);
}

static void *read_all(void *arg)
{
	struct reading_thread *self = arg;
	struct handle handle;
	char path[32];

	path_of(path, self->n);
	handle_open(self->rig, path, &handle);
	/* Sizes and starts that put up to five chunks into one read. */
	check(read_whole(&handle, self->n % 2 ? OBJECT_READ_MAX : 300000) == 0);
	check(read_now(&handle, MIB / 2, OBJECT_READ_MAX) == OBJECT_READ_MAX);
	check(read_whole(&handle, (uint32_t)(3 * MIB / 2) + self->n) == 0);
	handle_close(&handle);
	return NULL;
}

static void read_by_all(struct rig *rig)
{
	struct reading_thread threads[READERS];

	for (unsigned i = 0; i < READERS; i++) {
		threads[i] = (struct reading_thread){.rig = rig, .n = i};
		check(!pthread_create(&threads[i].thread, NULL, read_all, &threads[i]));
	}
	for (unsigned i = 0; i < READERS; i++)
		pthread_join(threads[i].thread, NULL);
}

/* Of eight buffers six are for fetches, and of those one origin takes half. */
#define SHARE 3

static int set_up_small(void **state)
{
	struct rig *rig;

	rig_set_up_idle(state);
	rig = *state;
	rig->memory_bytes = 8 * MIB;
	rig_start(rig);
	for (unsigned i = 0; i < OBJECTS; i++) {
		char path[32];

		path_of(path, i);
		world_put(rig->world, path, OBJECT_MB * MIB + 17);
	}
	return 0;
}

static void many_readers_share_eight_buffers(void **state)
{
	struct rig *rig = *state;

	read_by_all(rig);
	assert_int_equal(world_counts(rig->world).get_bytes, OBJECTS * (OBJECT_MB * MIB + 17));
	assert_true(world_counts(rig->world).pauses > 0);
	rig_drop_memory(rig);
	read_by_all(rig);
	assert_int_equal(world_counts(rig->world).get_bytes, OBJECTS * (OBJECT_MB * MIB + 17));
}

/* The same with a store that keeps next to nothing. */
static int set_up_small_and_full(void **state)
{
	struct rig *rig;

	set_up_small(state);
	rig = *state;
	rig_stop(rig);
	rig->capacity = "16M";
	rig_start(rig);
	return 0;
}

static void many_readers_without_a_store(void **state)
{
	struct rig *rig = *state;

	read_by_all(rig);
	assert_true(rig_stats(rig).uncached_bytes > 0);
}

/* Without threads: reads that all begin before any buffer can come back. */
static void reads_that_start_together_all_end(void **state)
{
	struct rig *rig = *state;
	struct reading *readings = calloc(READERS, sizeof *readings);
	struct handle handles[OBJECTS];

	for (unsigned i = 0; i < OBJECTS; i++) {
		char path[32];

		path_of(path, i);
		handle_open(rig, path, &handles[i]);
	}
	world_hold(rig->world, "", 500000);
	for (unsigned i = 0; i < READERS; i++)
		reading_start(&readings[i], &handles[i % OBJECTS],
			i % 2 ? MIB / 2 : (i % 5) * MIB + MIB - 1, i % 2 ? OBJECT_READ_MAX : 2);
	world_wait_held(rig->world, SHARE);
	world_release(rig->world);
	for (unsigned i = 0; i < READERS; i++)
		assert_int_equal(reading_wait(&readings[i]), i % 2 ? OBJECT_READ_MAX : 2);
	rig_drop_memory(rig);
	/* The same from the store. */
	for (unsigned i = 0; i < READERS; i++)
		reading_start(&readings[i], &handles[i % OBJECTS], MIB / 2, OBJECT_READ_MAX);
	for (unsigned i = 0; i < READERS; i++)
		assert_int_equal(reading_wait(&readings[i]), OBJECT_READ_MAX);
	for (unsigned i = 0; i < OBJECTS; i++)
		handle_close(&handles[i]);
	free(readings);
}

/* What was read to its end makes way for what wasn't, though it is younger. */
static void what_is_still_to_be_read_stays(void **state)
{
	struct rig *rig = *state;
	struct handle begun, passing;

	world_put(rig->world, "begun", 2 * MIB);
	world_put(rig->world, "passing", 64 * MIB);
	handle_open(rig, "begun", &begun);
	handle_open(rig, "passing", &passing);
	assert_int_equal(read_now(&begun, 100, 100), 100);
	rig_settle(rig);
	/* Backwards and a few only: nothing is fetched ahead, or to complete it. */
	for (unsigned i = 12; i-- > 0;) {
		assert_int_equal(read_now(&passing, 5 * i * MIB, MIB), MIB);
		rig_settle(rig);
	}
	assert_true(resident_has(&rig->cache->resident, begun.object->id, 0));
	/* Once more from the store. */
	for (unsigned i = 12; i-- > 0;)
		assert_int_equal(read_now(&passing, 5 * i * MIB, MIB), MIB);
	assert_true(resident_has(&rig->cache->resident, begun.object->id, 0));
	/* With its end read it is like the others: it goes before what is only begun. */
	assert_int_equal(read_now(&begun, MIB / 2, MIB / 2), MIB / 2);
	for (unsigned i = 12; i-- > 0;)
		assert_int_equal(read_now(&passing, 5 * i * MIB, 100), 100);
	assert_false(resident_has(&rig->cache->resident, begun.object->id, 0));
	handle_close(&begun);
	handle_close(&passing);
}

#define STALLED 200

/* 200 cold reads that the origin stalls, each across two chunks of which it gave the first: reads of
 * what the store has go on. */
static void stalled_reads_stop_no_warm_ones(void **state)
{
	struct rig *rig = *state;
	struct reading *readings = calloc(STALLED, sizeof *readings);
	struct handle *handles = calloc(STALLED, sizeof *handles);
	struct handle warm;
	char path[32];

	world_put(rig->world, "warm", 20 * MIB);
	handle_open(rig, "warm", &warm);
	assert_int_equal(read_whole(&warm, MIB), 0);
	rig_drop_memory(rig);
	world_hold(rig->world, "", 3 * MIB / 2);
	for (unsigned i = 0; i < STALLED; i++) {
		snprintf(path, sizeof path, "cold%u", i);
		world_put(rig->world, path, 4 * MIB);
		handle_open(rig, path, &handles[i]);
		reading_start(&readings[i], &handles[i], MIB - 10, 2 * MIB);
	}
	/* What fetches of one origin may have. */
	world_wait_held(rig->world, SHARE);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(read_whole(&warm, MIB), 0);
		/* Two chunks at once. */
		assert_int_equal(read_now(&warm, MIB / 2 + i, MIB), MIB);
	}
	for (unsigned i = 0; i < STALLED; i++)
		assert_false(reading_done(&readings[i]));
	world_release(rig->world);
	for (unsigned i = 0; i < STALLED; i++) {
		assert_int_equal(reading_wait(&readings[i]), 2 * MIB);
		handle_close(&handles[i]);
	}
	assert_true(rig_stats(rig).miss_bytes > STALLED * MIB);
	handle_close(&warm);
	free(handles);
	free(readings);
}

/* What is still coming when the cache ends is cut off, whatever it waits for. */
static void the_end_cuts_off_what_is_coming(void **state)
{
	struct rig *rig = *state;
	struct handle handle;

	world_pieces(rig->world, 100000);
	for (unsigned round = 0; round < 20; round++) {
		for (unsigned i = 0; i < OBJECTS; i++) {
			char path[32];

			path_of(path, i);
			world_put(rig->world, path, 40 * MIB);
			handle_open(rig, path, &handle);
			/* Sequential: readahead is under way beyond it. */
			for (unsigned j = 0; j < 4; j++)
				assert_int_equal(read_now(&handle, j * MIB, MIB), MIB);
			handle_close(&handle);
		}
		rig_restart(rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			many_readers_share_eight_buffers, set_up_small, rig_tear_down),
		cmocka_unit_test_setup_teardown(
			many_readers_without_a_store, set_up_small_and_full, rig_tear_down),
		cmocka_unit_test_setup_teardown(
			reads_that_start_together_all_end, set_up_small, rig_tear_down),
		cmocka_unit_test_setup_teardown(
			what_is_still_to_be_read_stays, set_up_small, rig_tear_down),
		cmocka_unit_test_setup_teardown(
			stalled_reads_stop_no_warm_ones, set_up_small, rig_tear_down),
		cmocka_unit_test_setup_teardown(
			the_end_cuts_off_what_is_coming, set_up_small, rig_tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
