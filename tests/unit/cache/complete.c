/* Completion: what is mostly here comes whole by itself, and nothing else does. */
#include "complete.h"

#include "evict.h"
#include "rig.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#define MIB (1ull << 20)

/* Waits until nothing is being completed, fetched or kept: twice, since what is kept may be what a
 * completion begins with. */
static void wait_quiet(struct rig *rig)
{
	struct completions *all = &rig->cache->completions;
	unsigned quiet = 0;

	while (quiet < 2) {
		bool busy;

		rig_settle(rig);
		lock_take(&all->lock);
		busy = all->n_objects || all->posted;
		lock_drop(&all->lock);
		quiet = busy ? 0 : quiet + 1;
		sched_yield();
	}
}

static bool is_whole(const struct handle *handle)
{
	bool whole;

	lock_take(&handle->object->lock);
	whole = handle->object->complete;
	lock_drop(&handle->object->lock);
	return whole;
}

/* Every n-th chunk of [0, end). */
static void read_some(const struct handle *handle, unsigned nth, unsigned end)
{
	for (unsigned i = 0; i < end; i += nth)
		assert_int_equal(read_now(handle, i * MIB + 100, 10), 10);
}

/* Waits until n chunks are in the index. */
static void wait_present(const struct handle *handle, uint32_t n)
{
	uint32_t present;

	do {
		commit_flush(handle->rig->cache);
		lock_take(&handle->object->lock);
		present = handle->object->n_present;
		lock_drop(&handle->object->lock);
		sched_yield();
	} while (present < n);
}

static unsigned n_in_line(struct rig *rig)
{
	struct completions *all = &rig->cache->completions;
	unsigned n;

	lock_take(&all->lock);
	n = all->n_objects;
	lock_drop(&all->lock);
	return n;
}

/* Reads "other" for ever by an origin of its own. */
struct somebody {
	struct origin *origin;
	struct handle handle;
	struct reading reading;
};

static void somebody_waits(struct rig *rig, struct somebody *ret)
{
	world_put(rig->world, "other", 1);
	ret->origin = world_origin(rig->world, "somebody else");
	handle_open_by(rig, ret->origin, "other", &ret->handle);
	world_hold(rig->world, "other", 0);
	reading_start(&ret->reading, &ret->handle, 0, 1);
	world_wait_held(rig->world, 1);
}

static void nobody_waits(struct somebody *somebody)
{
	origin_shutdown(somebody->origin);
	assert_int_equal(reading_wait(&somebody->reading), -EIO);
	handle_close(&somebody->handle);
	origin_unref(somebody->origin);
}

/* Most of "o" is here and the rest not asked for yet, since somebody waits. */
static void most_but_no_more(struct rig *rig, struct handle *handle, struct somebody *somebody)
{
	world_put(rig->world, "o", 100 * MIB);
	handle_open(rig, "o", handle);
	somebody_waits(rig, somebody);
	for (unsigned i = 0; i < 60; i++)
		assert_int_equal(read_now(handle, (i * 7 % 60) * MIB, 4096), 4096);
	wait_present(handle, 60);
}

static void more_than_half_comes_whole(void **state)
{
	struct rig *rig = *state;
	struct handle handle;

	world_put(rig->world, "o", 40 * MIB + 5);
	handle_open(rig, "o", &handle);
	read_some(&handle, 1, 22);
	/* Nobody has it open any more. */
	handle_close(&handle);
	wait_quiet(rig);
	handle_open(rig, "o", &handle);
	assert_true(is_whole(&handle));
	assert_true(object_backing_fd(handle.object) >= 0);
	assert_int_equal(world_counts(rig->world).get_bytes, 40 * MIB + 5);
	handle_close(&handle);
}

/* From one end to the other with holes: as a stream of tensors that are not all wanted. */
static void holes_are_filled(void **state)
{
	struct rig *rig = *state;
	struct handle handle;

	world_put(rig->world, "o", 300 * MIB);
	handle_open(rig, "o", &handle);
	for (unsigned i = 0; i < 300; i += 3)
		assert_true(read_now(&handle, (299 - i) * MIB - MIB, 2 * MIB) > 0);
	wait_quiet(rig);
	assert_true(is_whole(&handle));
	assert_int_equal(world_counts(rig->world).get_bytes, 300 * MIB);
	handle_close(&handle);
}

/* 1,000 of 10,000 chunks, and half to the chunk. */
static void less_is_let_be(void **state)
{
	struct rig *rig = *state;
	struct handle handle;
	uint64_t bytes;

	world_put(rig->world, "o", 1000 * MIB);
	world_put(rig->world, "half", 20 * MIB);
	handle_open(rig, "o", &handle);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(read_now(&handle, (i * 37 % 100) * 10 * MIB, 4096), 4096);
	wait_quiet(rig);
	assert_int_equal(world_counts(rig->world).get_bytes, 100 * MIB);
	handle_close(&handle);
	handle_open(rig, "half", &handle);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(read_now(&handle, (i * 7 % 10) * 2 * MIB, 4096), 4096);
	handle_close(&handle);
	handle_open(rig, "half", &handle);
	wait_quiet(rig);
	bytes = world_counts(rig->world).get_bytes;
	assert_int_equal(bytes, 110 * MIB);
	handle_close(&handle);
}

static void an_error_ends_it_until_the_next_open(void **state)
{
	struct rig *rig = *state;
	struct somebody somebody;
	struct handle handle, other;

	most_but_no_more(rig, &handle, &somebody);
	world_fail_gets(rig->world, NULL, -EIO, MIB, 100);
	nobody_waits(&somebody);
	wait_quiet(rig);
	assert_false(is_whole(&handle));
	assert_in_range(world_counts(rig->world).gets, 62, 61 + COMPLETE_PARTS_OF_ONE);
	world_fail_gets(rig->world, NULL, 0, 0, 0);
	handle_open(rig, "o", &other);
	wait_quiet(rig);
	assert_true(is_whole(&handle));
	handle_close(&handle);
	handle_close(&other);
}

/* One chunk of one too, of which no share is left. Nobody reads: the kernel's page cache may have
 * all of it. */
static void damage_is_mended_unread(void **state)
{
	static const unsigned sizes[] = {1, 1 << 20, 9 << 20};
	struct rig *rig = *state;

	for (unsigned i = 0; i < 3; i++) {
		struct handle handle;
		char *raw;

		world_put(rig->world, "o", sizes[i]);
		handle_open(rig, "o", &handle);
		assert_int_equal(read_whole(&handle, MIB), 0);
		wait_quiet(rig);
		raw = handle_raw_path(&handle);
		handle_close(&handle);
		flip_byte(raw, 0);
		free(raw);
		handle_open(rig, "o", &handle);
		assert_int_equal(object_backing_fd(handle.object), -EAGAIN);
		handle_wait_verified(&handle);
		wait_quiet(rig);
		assert_true(object_backing_fd(handle.object) >= 0);
		assert_int_equal(rig_stats(rig).checksum_failures, i + 1);
		handle_close(&handle);
	}
}

static void who_waits_comes_first(void **state)
{
	struct rig *rig = *state;
	struct somebody somebody;
	struct handle handle;

	most_but_no_more(rig, &handle, &somebody);
	assert_int_equal(n_in_line(rig), 1);
	assert_int_equal(world_counts(rig->world).gets, 61);
	nobody_waits(&somebody);
	wait_quiet(rig);
	assert_true(is_whole(&handle));
	assert_int_equal(world_counts(rig->world).gets, 61 + 3);
	assert_int_equal(world_counts(rig->world).get_bytes, 100 * MIB);
	handle_close(&handle);
}

/* The completion of "o" has two parts under way, which have stopped after a chunk and a half. */
static void start_held(struct rig *rig, struct handle *handle)
{
	struct somebody somebody;

	most_but_no_more(rig, handle, &somebody);
	world_hold(rig->world, "o", MIB + MIB / 2);
	nobody_waits(&somebody);
	world_wait_held(rig->world, COMPLETE_PARTS_OF_ONE);
}

/* Who reads what is being brought waits for that, and for nothing else. */
static void a_reader_joins(void **state)
{
	struct rig *rig = *state;
	struct handle handle;
	struct reading reading;

	start_held(rig, &handle);
	assert_int_equal(read_now(&handle, 60 * MIB, MIB), MIB);
	reading_start(&reading, &handle, 62 * MIB, 10);
	assert_false(reading_done(&reading));
	world_release(rig->world);
	assert_int_equal(reading_wait(&reading), 10);
	wait_quiet(rig);
	assert_true(is_whole(&handle));
	assert_int_equal(world_counts(rig->world).get_bytes, 100 * MIB);
	handle_close(&handle);
}

static void a_new_version_ends_it(void **state)
{
	struct rig *rig = *state;
	struct handle handle;

	start_held(rig, &handle);
	world_put(rig->world, "o", 100 * MIB);
	world_release(rig->world);
	wait_quiet(rig);
	assert_false(is_whole(&handle));
	assert_int_equal(world_counts(rig->world).get_bytes, 63 * MIB);
	assert_int_equal(world_counts(rig->world).gets, 63);
	assert_int_equal(read_now(&handle, 99 * MIB, 1), -ESTALE);
	handle_close(&handle);
}

static void the_end_of_the_volume_ends_it(void **state)
{
	struct rig *rig = *state;
	struct handle handle;

	start_held(rig, &handle);
	handle_close(&handle);
	origin_shutdown(rig->origin);
	wait_quiet(rig);
	assert_int_equal(world_counts(rig->world).gets, 63);
}

/* Also the daemon's, with parts that nobody will ever answer. */
static void the_end_of_the_daemon_ends_it(void **state)
{
	struct rig *rig = *state;
	struct handle handle;

	start_held(rig, &handle);
	handle_close(&handle);
	rig_restart(rig);
	handle_open(rig, "o", &handle);
	world_release(rig->world);
	wait_quiet(rig);
	assert_true(is_whole(&handle));
	handle_close(&handle);
}

/* A completion is no use of the object; and it doesn't begin anew by itself. */
static void an_eviction_ends_it(void **state)
{
	struct rig *rig = *state;
	struct handle handle;
	uint64_t freed;
	struct id128 id;
	int r;

	start_held(rig, &handle);
	id = handle.object->id;
	handle_close(&handle);
	/* A chunk that came before may be on its way to the store. */
	while ((r = evict_object(rig->cache, id, &freed)) == -EBUSY)
		sched_yield();
	assert_int_equal(r, 0);
	assert_true(freed >= 60 * MIB);
	wait_quiet(rig);
	assert_int_equal(rig_stats(rig).objects, 0);
	assert_int_equal(world_counts(rig->world).gets, 63);
}

/* Room is short, or somebody evicts: what a reader waits for is the reader's, and asked for once. */
static void a_part_that_is_waited_for_goes_on(void **state)
{
	struct rig *rig = *state;
	struct handle handle;
	struct reading reading;

	start_held(rig, &handle);
	reading_start(&reading, &handle, 63 * MIB, 10);
	complete_give_way(rig->cache);
	complete_cancel(rig->cache, handle.object->id);
	assert_int_equal(n_in_line(rig), 0);
	world_release(rig->world);
	assert_int_equal(reading_wait(&reading), 10);
	wait_quiet(rig);
	assert_false(is_whole(&handle));
	assert_int_equal(world_counts(rig->world).gets, 63);
	handle_close(&handle);
}

/* What others have in the store is not evicted for it. */
static void free_room_only(void **state)
{
	struct rig *rig = *state;
	struct handle handle;

	rig->capacity = "64M";
	rig_start(rig);
	world_put(rig->world, "kept", 20 * MIB);
	world_put(rig->world, "o", 50 * MIB);
	handle_open(rig, "kept", &handle);
	assert_int_equal(read_whole(&handle, MIB), 0);
	handle_close(&handle);
	handle_open(rig, "o", &handle);
	for (unsigned i = 0; i < 30; i++)
		assert_int_equal(read_now(&handle, (i * 11 % 30) * MIB, 4096), 4096);
	wait_quiet(rig);
	assert_int_equal(world_counts(rig->world).get_bytes, 50 * MIB);
	assert_int_equal(rig_stats(rig).evicted_objects, 0);
	assert_false(is_whole(&handle));
	handle_close(&handle);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(more_than_half_comes_whole),
		TEST(holes_are_filled),
		TEST(less_is_let_be),
		TEST(an_error_ends_it_until_the_next_open),
		TEST(damage_is_mended_unread),
		TEST(who_waits_comes_first),
		TEST(a_reader_joins),
		TEST(a_new_version_ends_it),
		TEST(the_end_of_the_volume_ends_it),
		TEST(the_end_of_the_daemon_ends_it),
		TEST(an_eviction_ends_it),
		TEST(a_part_that_is_waited_for_goes_on),
		cmocka_unit_test_setup_teardown(free_room_only, rig_set_up_idle, rig_tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
