/* What a crash of the machine, or somebody else's write, puts in doubt: passed through only after it was verified. */
#include "rig.h"

#include <errno.h>
#include <stdlib.h>

#define MIB (1ull << 20)

/* Opened anew, and verified if need be. The descriptor or -errno. */
static int verified_fd(struct rig *rig, const char *path)
{
	struct handle handle;
	int fd;

	handle_open(rig, path, &handle);
	fd = object_backing_fd(handle.object);
	if (fd == -EAGAIN) {
		handle_wait_verified(&handle);
		fd = object_backing_fd(handle.object);
	}
	handle_close(&handle);
	return fd;
}

static void a_whole_file(void **state)
{
	struct rig *rig = *state;
	struct handle handle;

	world_put(rig->world, "o", 2 * MIB + 5);
	handle_open(rig, "o", &handle);
	assert_int_equal(read_whole(&handle, MIB), 0);
	rig_drop_memory(rig);
	assert_true(object_backing_fd(handle.object) >= 0);
	handle_close(&handle);
	rig_restart(rig);
	handle_open(rig, "o", &handle);
	assert_true(object_backing_fd(handle.object) >= 0);
	handle_close(&handle);
	rig_machine_crash(rig);
	rig_start(rig);
	handle_open(rig, "o", &handle);
	assert_int_equal(object_backing_fd(handle.object), -EAGAIN);
	handle_wait_verified(&handle);
	assert_true(object_backing_fd(handle.object) >= 0);
	handle_close(&handle);
	rig_restart(rig);
	handle_open(rig, "o", &handle);
	assert_true(object_backing_fd(handle.object) >= 0);
	handle_close(&handle);
}

/* The chunks from before are no better for the others having come after. */
static void complete_a_part(struct rig *rig, void (*stop)(struct rig *rig))
{
	struct handle handle;
	char *path;

	world_put(rig->world, "o", 3 * MIB);
	handle_open(rig, "o", &handle);
	assert_int_equal(read_now(&handle, 2 * MIB + 100, 10), 10);
	rig_settle(rig);
	path = handle_raw_path(&handle);
	handle_close(&handle);
	stop(rig);
	flip_byte(path, 2 * MIB + 3);
	rig_start(rig);
	handle_open(rig, "o", &handle);
	assert_int_equal(read_now(&handle, 0, 10), 10);
	assert_int_equal(read_now(&handle, MIB, 10), 10);
	rig_drop_memory(rig);
	assert_int_equal(object_backing_fd(handle.object), -EAGAIN);
	handle_wait_verified(&handle);
	assert_int_equal(rig_stats(rig).checksum_failures, 1);
	assert_int_equal(read_whole(&handle, MIB), 0);
	rig_drop_memory(rig);
	handle_close(&handle);
	assert_true(verified_fd(rig, "o") >= 0);
	free(path);
}

static void a_part_that_is_completed_after(void **state)
{
	complete_a_part(*state, rig_machine_crash);
}

static void a_part_that_somebody_wrote_to(void **state)
{
	complete_a_part(*state, rig_stop);
}

/* Nothing to verify: all of it came after the crash, or was checked while it was a part. */
static void a_part_that_needs_no_more(void **state)
{
	struct verify_result result = {0};
	struct rig *rig = *state;
	struct origin_attr attr;
	struct handle handle;

	world_put(rig->world, "checked", 2 * MIB);
	world_put(rig->world, "later", 2 * MIB);
	attr = world_attr(rig->world, "later");
	handle_open(rig, "checked", &handle);
	assert_int_equal(read_now(&handle, MIB, 10), 10);
	rig_settle(rig);
	handle_close(&handle);
	assert_int_equal(cache_object_pin(rig->cache, rig->origin, "later", &attr, INT64_MAX), 0);
	rig_machine_crash(rig);
	rig_start(rig);
	attr = world_attr(rig->world, "checked");
	assert_int_equal(
		cache_object_verify(rig->cache, rig->origin, "checked", &attr, false, &result), 0);
	assert_int_equal(result.chunks, 1);
	for (int i = 0; i < 2; i++) {
		handle_open(rig, i ? "later" : "checked", &handle);
		assert_int_equal(read_whole(&handle, MIB), 0);
		rig_drop_memory(rig);
		assert_true(object_backing_fd(handle.object) >= 0);
		handle_close(&handle);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_whole_file, rig_set_up, rig_tear_down),
		cmocka_unit_test_setup_teardown(
			a_part_that_is_completed_after, rig_set_up, rig_tear_down),
		cmocka_unit_test_setup_teardown(
			a_part_that_somebody_wrote_to, rig_set_up, rig_tear_down),
		cmocka_unit_test_setup_teardown(
			a_part_that_needs_no_more, rig_set_up, rig_tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
