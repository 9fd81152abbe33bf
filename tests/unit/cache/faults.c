/* What origins, disks and strangers do to a cache: never a wrong byte, and the right error. */
#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (1ull << 20)

/* --- the origin's --- */

static void an_error_in_the_middle(void **state)
{
	struct rig *rig = *state;
	struct reading first, last_come, next, across, beyond;
	struct handle handle;

	world_put(rig->world, "o", 4 * MIB);
	handle_open(rig, "o", &handle);
	world_hold(rig->world, "o", 2 * MIB);
	world_fail_gets(rig->world, NULL, -EIO, 2 * MIB + 5000, 1);
	reading_start(&across, &handle, 0, 4 * MIB);
	reading_start(&first, &handle, 0, 4096);
	reading_start(&last_come, &handle, 2 * MIB + 4000, 1000);
	reading_start(&next, &handle, 2 * MIB + 4000, 1001);
	reading_start(&beyond, &handle, 3 * MIB, 1);
	world_wait_held(rig->world, 1);
	world_release(rig->world);
	assert_int_equal(reading_wait(&first), 4096);
	assert_int_equal(reading_wait(&last_come), 1000);
	assert_int_equal(reading_wait(&next), -EIO);
	assert_int_equal(reading_wait(&beyond), -EIO);
	assert_int_equal(reading_wait(&across), -EIO);
	assert_int_equal(world_counts(rig->world).gets, 1);
	/* The half chunk comes again from its start, the whole ones don't. */
	assert_int_equal(read_whole(&handle, 3 * MIB), 0);
	assert_int_equal(world_counts(rig->world).get_bytes, 4 * MIB + 5000);
	rig_drop_memory(rig);
	assert_int_equal(read_whole(&handle, 100000), 0);
	handle_close(&handle);
}

static void what_a_read_fails_with(void **state)
{
	static const struct {
		int origin, read;
	} errors[] = {{-EIO, -EIO}, {-EACCES, -EACCES}, {-ENOENT, -ENOENT}, {-ECANCELED, -EIO},
		{-ENAMETOOLONG, -EIO}};
	struct rig *rig = *state;
	struct handle handle;

	world_put(rig->world, "o", MIB);
	handle_open(rig, "o", &handle);
	for (unsigned i = 0; i < sizeof errors / sizeof errors[0]; i++) {
		world_fail_gets(rig->world, NULL, errors[i].origin, i * 1000, 1);
		assert_int_equal(read_now(&handle, MIB - 5, 5), errors[i].read);
	}
	assert_int_equal(read_now(&handle, MIB - 5, 5), 5);
	handle_close(&handle);
}

static void a_changed_object(void **state)
{
	struct rig *rig = *state;
	struct handle old, new;
	uint64_t gets;

	world_put(rig->world, "o", 6 * MIB);
	handle_open(rig, "o", &old);
	assert_int_equal(read_now(&old, 100, 4096), 4096);
	rig_settle(rig);
	world_put(rig->world, "o", 6 * MIB);
	assert_int_equal(read_now(&old, 3 * MIB, 10), -ESTALE);
	gets = world_counts(rig->world).gets;
	assert_int_equal(read_now(&old, 5 * MIB, 10), -ESTALE);
	assert_int_equal(read_now(&old, MIB - 1, 2), -ESTALE);
	assert_int_equal(world_counts(rig->world).gets, gets);
	rig_drop_memory(rig);
	assert_int_equal(read_now(&old, 0, MIB), MIB);
	handle_open(rig, "o", &new);
	assert_int_equal(read_whole(&new, MIB), 0);
	assert_int_equal(read_now(&old, 3 * MIB, 10), -ESTALE);
	assert_int_equal(read_now(&old, 0, MIB), MIB);
	handle_close(&old);
	handle_close(&new);
}

static void changed_while_it_comes(void **state)
{
	struct rig *rig = *state;
	struct reading came, rest;
	struct handle handle;

	world_put(rig->world, "o", 3 * MIB);
	handle_open(rig, "o", &handle);
	world_hold(rig->world, "o", MIB + 7);
	reading_start(&rest, &handle, 0, 3 * MIB);
	reading_start(&came, &handle, MIB, 7);
	assert_int_equal(reading_wait(&came), 7);
	world_wait_held(rig->world, 1);
	world_put(rig->world, "o", 3 * MIB);
	world_release(rig->world);
	assert_int_equal(reading_wait(&rest), -ESTALE);
	assert_int_equal(read_now(&handle, MIB - 10, 10), 10);
	handle_close(&handle);
}

/* Who waits for bytes that another identity was refused asks by itself. */
static void errors_are_of_one_identity(void **state)
{
	struct rig *rig = *state;
	struct origin *other = world_origin(rig->world, "other");
	struct reading refused, waiting, across;
	struct handle mine, others;

	world_put(rig->world, "o", 2 * MIB);
	handle_open(rig, "o", &mine);
	handle_open_by(rig, other, "o", &others);
	assert_ptr_equal(mine.object, others.object);
	world_hold(rig->world, "o", 50);
	world_fail_gets(rig->world, "somebody", -EACCES, 100, UINT32_MAX);
	reading_start(&refused, &mine, 0, 2 * MIB);
	world_wait_held(rig->world, 1);
	reading_start(&waiting, &others, 1000, 4096);
	reading_start(&across, &others, 0, 2 * MIB);
	assert_int_equal(world_counts(rig->world).gets, 1);
	world_release(rig->world);
	assert_int_equal(reading_wait(&refused), -EACCES);
	assert_int_equal(reading_wait(&waiting), 4096);
	assert_int_equal(reading_wait(&across), 2 * MIB);
	handle_close(&mine);
	handle_close(&others);
	origin_unref(other);
}

#define BREAKERS 12

struct breaker {
	pthread_t thread;
	struct rig *rig;
	unsigned n;
};

static void *read_until_whole(void *arg)
{
	struct breaker *breaker = arg;
	struct handle handle;
	char path[32];
	unsigned tries = 0;
	int r;

	snprintf(path, sizeof path, "o%u", breaker->n);
	handle_open(breaker->rig, path, &handle);
	while ((r = read_whole(&handle, 2 * MIB + 3)) && ++tries < 200)
		check(r == -EIO);
	handle_close(&handle);
	return NULL;
}

/* Transfers that end while they wait for memory. */
static void paused_gets_break(void **state)
{
	struct breaker breakers[BREAKERS];
	struct rig *rig = *state;

	for (unsigned i = 0; i < BREAKERS; i++) {
		char path[32];

		snprintf(path, sizeof path, "o%u", i);
		world_put(rig->world, path, 20 * MIB + i);
		breakers[i] = (struct breaker){.rig = rig, .n = i};
	}
	for (unsigned i = 0; i < BREAKERS; i++)
		pthread_create(&breakers[i].thread, NULL, read_until_whole, &breakers[i]);
	for (unsigned i = 0; i < 300; i++) {
		world_break_paused(rig->world, -EIO);
		sched_yield();
	}
	for (unsigned i = 0; i < BREAKERS; i++)
		pthread_join(breakers[i].thread, NULL);
}

static int set_up_small(void **state)
{
	struct rig *rig;

	rig_set_up_idle(state);
	rig = *state;
	rig->memory_bytes = 8 * MIB;
	rig_start(rig);
	return 0;
}

/* --- the disk's --- */

static void fill_and_close(struct rig *rig, uint64_t size_bytes, char **ret_raw_path)
{
	struct handle handle;

	world_put(rig->world, "o", size_bytes);
	handle_open(rig, "o", &handle);
	assert_int_equal(read_whole(&handle, OBJECT_READ_MAX), 0);
	rig_drop_memory(rig);
	assert_true(object_backing_fd(handle.object) >= 0);
	*ret_raw_path = handle_raw_path(&handle);
	handle_close(&handle);
}

/* Right bytes, and in the end a file that passthrough may have again. expected_bytes: that come again,
 * for a reader or to make the object whole. */
static void read_and_recover(struct rig *rig, uint64_t expected_bytes)
{
	struct handle handle;

	handle_open(rig, "o", &handle);
	assert_int_equal(read_whole(&handle, 3 * MIB), 0);
	rig_drop_memory(rig);
	assert_int_equal(read_whole(&handle, 300000), 0);
	assert_int_equal(
		world_counts(rig->world).get_bytes, handle.attr.size_bytes + expected_bytes);
	if (object_backing_fd(handle.object) < 0) {
		handle_wait_verified(&handle);
		assert_true(object_backing_fd(handle.object) >= 0);
	}
	handle_close(&handle);
}

static void flipped_while_closed(void **state)
{
	struct rig *rig = *state;
	char *path;

	fill_and_close(rig, 5 * MIB + 9, &path);
	rig_stop(rig);
	flip_byte(path, 3 * MIB + 77);
	flip_byte(path, 5 * MIB + 8);
	rig_start(rig);
	read_and_recover(rig, MIB + 9);
	assert_int_equal(rig_stats(rig).checksum_failures, 2);
	free(path);
}

static void flipped_while_open(void **state)
{
	struct rig *rig = *state;
	struct handle handle;
	char *path;

	fill_and_close(rig, 5 * MIB + 9, &path);
	handle_open(rig, "o", &handle);
	assert_true(object_backing_fd(handle.object) >= 0);
	flip_byte(path, 2 * MIB);
	/* Somebody else's write is seen, and what it wrote is not passed through. */
	assert_int_equal(object_backing_fd(handle.object), -EAGAIN);
	handle_wait_verified(&handle);
	assert_int_equal(rig_stats(rig).checksum_failures, 1);
	read_and_recover(rig, MIB);
	handle_close(&handle);
	free(path);
}

/* A stranger that changes nothing costs a verification. */
static void touched_while_open(void **state)
{
	struct rig *rig = *state;
	struct handle handle;
	char *path;

	fill_and_close(rig, 5 * MIB, &path);
	handle_open(rig, "o", &handle);
	flip_byte(path, 1000);
	flip_byte(path, 1000);
	assert_int_equal(object_backing_fd(handle.object), -EAGAIN);
	handle_wait_verified(&handle);
	assert_true(object_backing_fd(handle.object) >= 0);
	handle_close(&handle);
	rig_restart(rig);
	handle_open(rig, "o", &handle);
	assert_true(object_backing_fd(handle.object) >= 0);
	handle_close(&handle);
	assert_int_equal(rig_stats(rig).checksum_failures, 0);
	free(path);
}

static void truncated_while_closed(void **state)
{
	struct rig *rig = *state;
	char *path;

	fill_and_close(rig, 5 * MIB, &path);
	rig_stop(rig);
	assert_int_equal(truncate(path, 2 * MIB), 0);
	rig_start(rig);
	read_and_recover(rig, 5 * MIB);
	free(path);
}

static void truncated_while_open(void **state)
{
	struct rig *rig = *state;
	struct handle handle;
	char *path;

	fill_and_close(rig, 5 * MIB, &path);
	handle_open(rig, "o", &handle);
	assert_int_equal(truncate(path, 2 * MIB + 100), 0);
	assert_int_equal(object_backing_fd(handle.object), -EAGAIN);
	handle_wait_verified(&handle);
	read_and_recover(rig, 3 * MIB);
	handle_close(&handle);
	free(path);
}

/* What is beyond the object's end is cut off again, whoever has it open. */
static void longer_while_open(void **state)
{
	struct rig *rig = *state;
	struct handle handle;
	struct stat st;
	char *path;

	fill_and_close(rig, 5 * MIB, &path);
	handle_open(rig, "o", &handle);
	assert_int_equal(truncate(path, 6 * MIB), 0);
	assert_int_equal(object_backing_fd(handle.object), -EAGAIN);
	handle_wait_verified(&handle);
	assert_true(object_backing_fd(handle.object) >= 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 5 * MIB);
	assert_int_equal(read_whole(&handle, MIB), 0);
	handle_close(&handle);
	assert_int_equal(rig_stats(rig).checksum_failures, 0);
	free(path);
}

static void longer_while_closed(void **state)
{
	struct rig *rig = *state;
	char *path;

	fill_and_close(rig, 5 * MIB, &path);
	rig_stop(rig);
	assert_int_equal(truncate(path, 6 * MIB), 0);
	rig_start(rig);
	read_and_recover(rig, 5 * MIB);
	free(path);
}

static void removed_while_closed(void **state)
{
	struct rig *rig = *state;
	struct origin_attr attr;
	struct object_status status;
	char *path;

	fill_and_close(rig, 5 * MIB, &path);
	attr = world_attr(rig->world, "o");
	assert_int_equal(cache_object_pin(rig->cache, rig->origin, "o", &attr, INT64_MAX), 0);
	rig_stop(rig);
	assert_int_equal(unlink(path), 0);
	rig_start(rig);
	read_and_recover(rig, 5 * MIB);
	assert_int_equal(cache_object_status(rig->cache, rig->origin, "o", &attr, &status), 0);
	assert_true(status.pinned && status.warm);
	rig_restart(rig);
	assert_int_equal(cache_object_status(rig->cache, rig->origin, "o", &attr, &status), 0);
	assert_true(status.pinned && status.warm);
	free(path);
}

/* A hole punched by somebody is found before passthrough, whatever the ctime says. */
static void punched_while_open(void **state)
{
	struct rig *rig = *state;
	struct handle handle;
	char *path;
	int fd;

	fill_and_close(rig, 5 * MIB, &path);
	handle_open(rig, "o", &handle);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, MIB, 4096), 0);
	close(fd);
	assert_int_equal(object_backing_fd(handle.object), -EAGAIN);
	handle_wait_verified(&handle);
	read_and_recover(rig, MIB);
	handle_close(&handle);
	free(path);
}

/* No descriptors left is no reason to forget what the store has. */
static void no_descriptors(void **state)
{
	struct rig *rig = *state;
	struct rlimit limit, none;
	struct handle handle;
	char *path;

	fill_and_close(rig, 3 * MIB, &path);
	rig_restart(rig);
	getrlimit(RLIMIT_NOFILE, &limit);
	none = limit;
	none.rlim_cur = 3;
	setrlimit(RLIMIT_NOFILE, &none);
	handle_open(rig, "o", &handle);
	assert_int_equal(read_whole(&handle, MIB), 0);
	assert_int_equal(object_backing_fd(handle.object), -EAGAIN);
	handle_close(&handle);
	setrlimit(RLIMIT_NOFILE, &limit);
	rig_restart(rig);
	read_and_recover(rig, 3 * MIB);
	free(path);
}

/* --- a disk that fails --- */

/* One try, not one for each chunk; and the disk gets another chance. */
static void nothing_can_be_made(void **state)
{
	struct rig *rig = *state;
	struct handle handle;
	char raw[512];

	snprintf(raw, sizeof raw, "%s/store/raw", rig->dir);
	assert_int_equal(rmdir(raw), 0);
	world_put(rig->world, "o", 5 * MIB);
	handle_open(rig, "o", &handle);
	assert_int_equal(read_now(&handle, 0, 1), 1);
	rig_settle(rig);
	assert_int_equal(rig_stats(rig).store_errors, 1);
	assert_int_equal(read_whole(&handle, MIB), 0);
	assert_int_equal(read_whole(&handle, MIB), 0);
	rig_settle(rig);
	assert_int_equal(rig_stats(rig).store_errors, 1);
	atomic_store(&rig->cache->trouble.unwritable_until_ns, 0);
	assert_int_equal(read_now(&handle, 0, 1), 1);
	rig_settle(rig);
	assert_int_equal(rig_stats(rig).store_errors, 2);
	handle_close(&handle);
}

/* Every byte comes by the daemon as long as the medium is in doubt, and then the disk again. */
static void a_medium_in_doubt(void **state)
{
	struct rig *rig = *state;
	struct handle handle;
	char *path;

	fill_and_close(rig, 5 * MIB, &path);
	handle_open(rig, "o", &handle);
	trouble_note(rig->cache, "store_write_failed", "other", -EROFS);
	assert_true(object_backing_fd(handle.object) >= 0);
	trouble_note(rig->cache, "store_read_failed", "other", -EIO);
	assert_int_equal(object_backing_fd(handle.object), -EAGAIN);
	rig_drop_memory(rig);
	assert_int_equal(read_whole(&handle, MIB), 0);
	atomic_store(&rig->cache->trouble.unreadable_until_ns, 0);
	assert_true(object_backing_fd(handle.object) >= 0);
	handle_close(&handle);
	assert_int_equal(rig_stats(rig).store_errors, 2);
	free(path);
}

/* --- verification --- */

static void verify_and_repair(void **state)
{
	struct rig *rig = *state;
	struct verify_result result = {0};
	struct origin_attr attr;
	char *path;

	fill_and_close(rig, 5 * MIB + 9, &path);
	attr = world_attr(rig->world, "o");
	assert_int_equal(
		cache_object_verify(rig->cache, rig->origin, "o", &attr, true, &result), 0);
	assert_int_equal(result.chunks, 6);
	assert_int_equal(result.bytes, 5 * MIB + 9);
	assert_int_equal(result.bad_chunks, 0);
	flip_byte(path, 2 * MIB);
	flip_byte(path, 4 * MIB);
	result = (struct verify_result){0};
	assert_int_equal(
		cache_object_verify(rig->cache, rig->origin, "o", &attr, true, &result), 0);
	assert_int_equal(result.bad_chunks, 2);
	assert_int_equal(result.repaired_chunks, 2);
	assert_string_equal(result.first_bad, "fake://world/o");
	flip_byte(path, 0);
	result = (struct verify_result){0};
	assert_int_equal(cache_verify_all(rig->cache, &result), 0);
	assert_int_equal(result.objects, 1);
	assert_int_equal(result.bad_chunks, 1);
	assert_int_equal(result.repaired_chunks, 0);
	result = (struct verify_result){0};
	assert_int_equal(cache_verify_all(rig->cache, &result), 0);
	assert_int_equal(result.bad_chunks, 0);
	assert_int_equal(result.chunks, 5);
	read_and_recover(rig, 3 * MIB);
	free(path);
}

static void repair_without_an_origin(void **state)
{
	struct rig *rig = *state;
	struct verify_result result = {0};
	struct origin_attr attr;
	char *path;

	fill_and_close(rig, 2 * MIB, &path);
	attr = world_attr(rig->world, "o");
	flip_byte(path, 0);
	/* Every one: the object's completion asks for the dropped chunk as well. */
	world_fail_gets(rig->world, NULL, -EIO, 0, UINT32_MAX);
	assert_int_equal(
		cache_object_verify(rig->cache, rig->origin, "o", &attr, true, &result), -EIO);
	assert_int_equal(result.bad_chunks, 1);
	assert_int_equal(result.repaired_chunks, 0);
	world_fail_gets(rig->world, NULL, 0, 0, 0);
	read_and_recover(rig, MIB);
	free(path);
}

static void strays_and_the_lost(void **state)
{
	struct rig *rig = *state;
	struct verify_result result = {0};
	char *path, *stray;
	int fd;

	fill_and_close(rig, 2 * MIB, &path);
	rig_stop(rig);
	/* In a sub-directory that exists: the one of the file. */
	stray = strdup(path);
	stray[strlen(stray) - 1] = stray[strlen(stray) - 1] == '0' ? '1' : '0';
	fd = open(stray, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
	rig_start(rig);
	assert_int_equal(cache_verify_all(rig->cache, &result), 0);
	assert_int_equal(result.stray_files, 1);
	assert_int_equal(result.objects, 1);
	assert_int_not_equal(access(stray, F_OK), 0);
	rig_stop(rig);
	assert_int_equal(unlink(path), 0);
	rig_start(rig);
	result = (struct verify_result){0};
	assert_int_equal(cache_verify_all(rig->cache, &result), 0);
	assert_int_equal(result.forgotten_objects, 1);
	assert_int_equal(result.unreadable_objects, 0);
	assert_string_equal(result.first_bad, "");
	assert_int_equal(result.stray_files, 0);
	assert_int_equal(rig_stats(rig).objects, 0);
	free(stray);
	free(path);
}

#define TEST(name)       cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)
#define SMALL_TEST(name) cmocka_unit_test_setup_teardown(name, set_up_small, rig_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_error_in_the_middle),
		TEST(what_a_read_fails_with),
		TEST(a_changed_object),
		TEST(changed_while_it_comes),
		TEST(errors_are_of_one_identity),
		SMALL_TEST(paused_gets_break),
		TEST(flipped_while_closed),
		TEST(flipped_while_open),
		TEST(touched_while_open),
		TEST(truncated_while_closed),
		TEST(truncated_while_open),
		TEST(longer_while_open),
		TEST(longer_while_closed),
		TEST(removed_while_closed),
		TEST(punched_while_open),
		TEST(no_descriptors),
		TEST(nothing_can_be_made),
		TEST(a_medium_in_doubt),
		TEST(verify_and_repair),
		TEST(repair_without_an_origin),
		TEST(strays_and_the_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
