/* Bytes: right for every size, offset and way they can come; each range asked for once. */
#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MIB (1ull << 20)

static const uint64_t sizes[] = {
	0, 1, 4095, 4096, 4097, MIB - 1, MIB, MIB + 1, 3 * MIB + 5, 40 * MIB + 123};
#define N_SIZES (sizeof sizes / sizeof sizes[0])

static uint64_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 20;
}

static void read_at_random(const struct handle *handle, unsigned n)
{
	uint64_t size = handle->attr.size_bytes, seed = size + n;

	for (unsigned i = 0; i < n; i++) {
		uint64_t offset = next_random(&seed) % (size + 4096);
		uint32_t most = i % 8 ? 200000 : OBJECT_READ_MAX;
		uint32_t length = (uint32_t)(next_random(&seed) % (most + 1));
		uint64_t left = offset < size ? size - offset : 0;

		assert_int_equal(read_now(handle, offset, length), length < left ? length : left);
	}
}

/* The file that passthrough gets has the object's bytes and no others. */
static void check_backing(const struct handle *handle, int fd)
{
	uint64_t offset = 0;
	uint8_t *bytes = malloc(MIB);
	ssize_t n;

	while ((n = pread(fd, bytes, MIB, (off_t)offset)) > 0) {
		assert_true(seed_right(handle->seed, offset, bytes, (size_t)n));
		offset += (uint64_t)n;
	}
	assert_int_equal(n, 0);
	assert_int_equal(offset, handle->attr.size_bytes);
	free(bytes);
}

static void read_each_size(struct rig *rig, bool warm)
{
	for (unsigned i = 0; i < N_SIZES; i++) {
		struct handle handle;
		char path[32];

		snprintf(path, sizeof path, "o%u", i);
		handle_open(rig, path, &handle);
		assert_int_equal(object_size(handle.object), sizes[i]);
		if (warm && sizes[i])
			check_backing(&handle, object_backing_fd(handle.object));
		else
			assert_int_equal(object_backing_fd(handle.object), -EAGAIN);
		read_at_random(&handle, 60);
		assert_int_equal(read_whole(&handle, 131072 + i), 0);
		assert_int_equal(read_now(&handle, sizes[i], 10), 0);
		assert_int_equal(read_now(&handle, sizes[i] + 100 * MIB, 10), 0);
		assert_int_equal(read_now(&handle, 0, 0), 0);
		rig_settle(rig);
		if (sizes[i])
			check_backing(&handle, object_backing_fd(handle.object));
		handle_close(&handle);
	}
}

static void bytes_are_right_everywhere(void **state)
{
	struct rig *rig = *state;
	uint64_t all = 0;

	for (unsigned i = 0; i < N_SIZES; i++) {
		char path[32];

		snprintf(path, sizeof path, "o%u", i);
		world_put(rig->world, path, sizes[i]);
		all += sizes[i];
	}
	read_each_size(rig, false);
	assert_int_equal(world_counts(rig->world).get_bytes, all);
	read_each_size(rig, true);
	rig_drop_memory(rig);
	read_each_size(rig, true);
	rig_restart(rig);
	read_each_size(rig, true);
	assert_int_equal(world_counts(rig->world).get_bytes, all);
	assert_int_equal(rig_stats(rig).checksum_failures, 0);
}

/* What was read in part is read in part after a restart too, and completed then. */
static void parts_survive_a_restart(void **state)
{
	struct rig *rig = *state;
	struct handle handle;

	world_put(rig->world, "o", 300 * MIB + 17);
	handle_open(rig, "o", &handle);
	for (unsigned i = 0; i < 300; i += 37)
		assert_int_equal(read_now(&handle, i * MIB + 1000, 5), 5);
	assert_int_equal(read_now(&handle, 300 * MIB, 1000), 17);
	rig_settle(rig);
	handle_close(&handle);
	rig_restart(rig);
	handle_open(rig, "o", &handle);
	for (unsigned i = 0; i < 300; i += 37)
		assert_int_equal(read_now(&handle, i * MIB, 4096), 4096);
	assert_int_equal(read_now(&handle, 300 * MIB, 1000), 17);
	assert_int_equal(world_counts(rig->world).get_bytes, 9 * MIB + 17);
	assert_int_equal(object_backing_fd(handle.object), -EAGAIN);
	assert_int_equal(read_whole(&handle, OBJECT_READ_MAX), 0);
	assert_int_equal(world_counts(rig->world).get_bytes, 300 * MIB + 17);
	rig_settle(rig);
	check_backing(&handle, object_backing_fd(handle.object));
	handle_close(&handle);
}

#define READERS 16

struct racer {
	pthread_t thread;
	struct rig *rig;
	pthread_barrier_t *start;
	uint32_t size_bytes;
};

static void *race(void *arg)
{
	struct racer *racer = arg;
	struct handle handle;

	pthread_barrier_wait(racer->start);
	handle_open(racer->rig, "o", &handle);
	check(read_whole(&handle, racer->size_bytes) == 0);
	handle_close(&handle);
	return NULL;
}

static void many_readers_ask_once(void **state)
{
	struct rig *rig = *state;
	struct racer racers[READERS];
	uint64_t size = 40 * MIB + 123;
	pthread_barrier_t start;

	world_put(rig->world, "o", size);
	pthread_barrier_init(&start, NULL, READERS);
	for (unsigned i = 0; i < READERS; i++) {
		racers[i] = (struct racer){
			.rig = rig, .start = &start, .size_bytes = 100000 + i * 70001};
		pthread_create(&racers[i].thread, NULL, race, &racers[i]);
	}
	for (unsigned i = 0; i < READERS; i++)
		pthread_join(racers[i].thread, NULL);
	pthread_barrier_destroy(&start);
	assert_int_equal(world_counts(rig->world).get_bytes, size);
	assert_int_equal(rig_stats(rig).fetched_bytes, size);
	assert_true(world_counts(rig->world).gets <= 41);
}

/* Who wants bytes that have come doesn't wait for the rest of the range. */
static void first_bytes_come_first(void **state)
{
	struct rig *rig = *state;
	struct reading whole, first[8], later;
	struct handle handle;

	world_put(rig->world, "o", 4 * MIB);
	handle_open(rig, "o", &handle);
	world_hold(rig->world, "o", 1000000);
	reading_start(&whole, &handle, 0, 4 * MIB);
	for (unsigned i = 0; i < 8; i++)
		reading_start(&first[i], &handle, i, 4096);
	reading_start(&later, &handle, 1000000, 1);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(reading_wait(&first[i]), 4096);
	world_wait_held(rig->world, 1);
	assert_int_equal(read_now(&handle, 999999, 1), 1);
	assert_false(reading_done(&whole));
	assert_false(reading_done(&later));
	assert_int_equal(world_counts(rig->world).gets, 1);
	world_release(rig->world);
	assert_int_equal(reading_wait(&whole), 4 * MIB);
	assert_int_equal(reading_wait(&later), 1);
	assert_int_equal(world_counts(rig->world).get_bytes, 4 * MIB);
	handle_close(&handle);
}

/* What was fetched ahead is wanted at once by whoever waits for it, and only once. */
static void who_waits_for_readahead_hurries_it(void **state)
{
	struct rig *rig = *state;
	struct reading second, waits[2];
	struct handle handle;

	world_put(rig->world, "o", 8 * MIB);
	handle_open(rig, "o", &handle);
	assert_int_equal(read_now(&handle, 0, MIB), MIB);
	world_hold(rig->world, "o", 0);
	reading_start(&second, &handle, MIB, MIB);
	world_wait_held(rig->world, 2);
	assert_int_equal(world_counts(rig->world).promotions, 0);
	for (unsigned i = 0; i < 2; i++)
		reading_start(&waits[i], &handle, 2 * MIB, 4096);
	assert_int_equal(world_counts(rig->world).promotions, 1);
	world_release(rig->world);
	assert_int_equal(reading_wait(&second), MIB);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(reading_wait(&waits[i]), 4096);
	handle_close(&handle);
}

/* Handles of two versions at once read each its own. */
static void versions_do_not_mix(void **state)
{
	struct rig *rig = *state;
	struct handle old, new;

	world_put(rig->world, "o", 3 * MIB);
	handle_open(rig, "o", &old);
	assert_int_equal(read_whole(&old, MIB), 0);
	world_put(rig->world, "o", 3 * MIB);
	handle_open(rig, "o", &new);
	assert_ptr_not_equal(old.object, new.object);
	assert_int_equal(read_whole(&new, MIB), 0);
	rig_drop_memory(rig);
	assert_int_equal(read_whole(&old, MIB), 0);
	assert_int_equal(read_whole(&new, MIB), 0);
	handle_close(&old);
	handle_close(&new);
}

/* A size that no memory could describe is an error, not the end of the daemon. */
static void absurd_sizes_are_refused(void **state)
{
	static const uint64_t absurd[] = {UINT64_MAX, UINT64_MAX - 5, INT64_MAX, 1ull << 53};
	struct rig *rig = *state;

	for (unsigned i = 0; i < 4; i++)
		assert_int_not_equal(
			open_error(rig, "o", (struct origin_attr){.size_bytes = absurd[i]}), 0);
}

/* Opens and closes of one object by many threads, some of which evict it, find it whole each time. */
static void *open_and_close(void *arg)
{
	struct rig *rig = arg;

	for (unsigned i = 0; i < 50; i++) {
		struct origin_attr attr = world_attr(rig->world, "o");
		struct handle handle;
		uint64_t freed;

		handle_open(rig, "o", &handle);
		check(read_now(&handle, MIB - 2, 4) == 4);
		handle_close(&handle);
		cache_object_evict(rig->cache, rig->origin, "o", &attr, &freed);
	}
	return NULL;
}

static void opens_meet_evictions(void **state)
{
	struct rig *rig = *state;
	pthread_t threads[4];

	world_put(rig->world, "o", 2 * MIB + 1);
	for (unsigned i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, open_and_close, rig);
	for (unsigned i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(rig_stats(rig).checksum_failures, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			bytes_are_right_everywhere, rig_set_up, rig_tear_down),
		cmocka_unit_test_setup_teardown(parts_survive_a_restart, rig_set_up, rig_tear_down),
		cmocka_unit_test_setup_teardown(many_readers_ask_once, rig_set_up, rig_tear_down),
		cmocka_unit_test_setup_teardown(first_bytes_come_first, rig_set_up, rig_tear_down),
		cmocka_unit_test_setup_teardown(
			who_waits_for_readahead_hurries_it, rig_set_up, rig_tear_down),
		cmocka_unit_test_setup_teardown(versions_do_not_mix, rig_set_up, rig_tear_down),
		cmocka_unit_test_setup_teardown(
			absurd_sizes_are_refused, rig_set_up, rig_tear_down),
		cmocka_unit_test_setup_teardown(opens_meet_evictions, rig_set_up, rig_tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
