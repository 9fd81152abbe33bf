/* Files that no record knows, and an index that nobody can read: what a start makes of them. */
#include "rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (1ull << 20)

/* A whole object in the store, closed. */
static void fill(struct rig *rig)
{
	struct handle handle;

	world_put(rig->world, "o", 3 * MIB + 5);
	handle_open(rig, "o", &handle);
	assert_int_equal(read_whole(&handle, MIB), 0);
	rig_drop_memory(rig);
	assert_true(object_backing_fd(handle.object) >= 0);
	handle_close(&handle);
}

/* Right bytes; returns how many the origin had to give. */
static uint64_t read_again(struct rig *rig)
{
	uint64_t before = world_counts(rig->world).get_bytes;
	struct handle handle;

	handle_open(rig, "o", &handle);
	assert_int_equal(read_whole(&handle, MIB), 0);
	handle_close(&handle);
	return world_counts(rig->world).get_bytes - before;
}

/* As a fill leaves it that is killed before its first commit. */
static void put_stray(const struct rig *rig, char path[256])
{
	int fd;

	snprintf(path, 256, "%s/store/raw/ab", rig->dir);
	mkdir(path, 0700);
	snprintf(path, 256, "%s/store/raw/ab/ab%030d", rig->dir, 7);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 5 * MIB), 0);
	assert_int_equal(pwrite(fd, "x", 1, 0), 1);
	close(fd);
}

static void wait_swept(struct rig *rig)
{
	for (int i = 0; i < 30000 && rig->cache->strays.next < RAW_DIRECTORIES; i++)
		usleep(1000);
	assert_int_equal(rig->cache->strays.next, RAW_DIRECTORIES);
}

static void they_go_after_an_unclean_stop(void **state)
{
	struct rig *rig = *state;
	char stray[256];

	wait_swept(rig); /* a new store is as good as unclean */
	fill(rig);
	rig_stop(rig);
	put_stray(rig, stray);
	rig_start(rig);
	rig_stop(rig);
	assert_int_equal(access(stray, F_OK), 0);

	rig_start(rig);
	rig_machine_crash(rig);
	rig_start(rig);
	wait_swept(rig);
	assert_int_equal(access(stray, F_OK), -1);
	assert_int_equal(rig_stats(rig).stray_files, 1);
	assert_int_equal(read_again(rig), 0);
}

/* Whoever has it open or mapped goes on. */
static void one_that_is_in_use_stays(void **state)
{
	struct rig *rig = *state;
	char stray[256];
	int fd;

	rig_machine_crash(rig);
	put_stray(rig, stray);
	fd = open(stray, O_RDONLY | O_CLOEXEC);
	rig_start(rig);
	wait_swept(rig);
	assert_int_equal(access(stray, F_OK), 0);
	assert_int_equal(rig_stats(rig).stray_files, 0);
	close(fd);
}

static void damage_index(const struct rig *rig)
{
	char path[256], bytes[8192];
	int fd;

	snprintf(path, sizeof path, "%s/store/index/data.mdb", rig->dir);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	memset(bytes, 0x5a, sizeof bytes);
	assert_int_equal(write(fd, bytes, sizeof bytes), sizeof bytes);
	close(fd);
}

/* It is set aside, what it knew comes from the origin again, and its files give their room back. */
static void a_damaged_index_is_set_aside(void **state)
{
	struct rig *rig = *state;
	char aside[256], bytes[16] = "";
	int fd;

	fill(rig);
	rig_stop(rig);
	damage_index(rig);
	rig_start(rig);
	assert_int_equal(rig_stats(rig).indexes_set_aside, 1);
	wait_swept(rig);
	assert_int_equal(rig_stats(rig).stray_files, 1);
	assert_int_equal(read_again(rig), 3 * MIB + 5);
	rig_settle(rig);
	rig_restart(rig);
	assert_int_equal(read_again(rig), 0);
	assert_int_equal(rig_stats(rig).indexes_set_aside, 1);
	snprintf(aside, sizeof aside, "%s/store/index.damaged/data.mdb", rig->dir);
	fd = open(aside, O_RDONLY | O_CLOEXEC);
	assert_int_equal(read(fd, bytes, sizeof bytes), sizeof bytes);
	close(fd);
	assert_memory_equal(bytes, "ZZZZ", 4);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(they_go_after_an_unclean_stop),
		TEST(one_that_is_in_use_stays),
		TEST(a_damaged_index_is_set_aside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
