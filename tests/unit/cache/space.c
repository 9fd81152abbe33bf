/* Room: the store never has more than it may, and reads are right whatever room there is. */
#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "objects.h"

#define MIB (1ull << 20)

static int set_up_64m(void **state)
{
	struct rig *rig;

	rig_set_up_idle(state);
	rig = *state;
	rig->capacity = "64M";
	rig_start(rig);
	return 0;
}

static uint64_t store_disk_bytes(const struct rig *rig)
{
	char path[256];

	snprintf(path, sizeof path, "%s/store/raw", rig->dir);
	return rig_disk_bytes(path);
}

struct watcher {
	pthread_t thread;
	struct rig *rig;
	_Atomic bool end;
};

static void *watch(void *arg)
{
	struct watcher *watcher = arg;

	while (!watcher->end) {
		struct cache_stats stats = rig_stats(watcher->rig);

		check(stats.used_bytes <= stats.capacity_bytes + MIB);
		/* A file being removed is given back after it is gone, never before. */
		check(store_disk_bytes(watcher->rig) <= stats.capacity_bytes + MIB);
		sched_yield();
	}
	return NULL;
}

static void read_object(struct rig *rig, const char *path)
{
	struct handle handle;

	handle_open(rig, path, &handle);
	assert_int_equal(read_whole(&handle, MIB), 0);
	handle_close(&handle);
}

static bool warm(struct rig *rig, const char *path)
{
	struct origin_attr attr = world_attr(rig->world, path);
	struct object_status status;

	assert_int_equal(cache_object_status(rig->cache, rig->origin, path, &attr, &status), 0);
	return status.warm;
}

static void larger_than_the_store(void **state)
{
	struct rig *rig = *state;
	struct watcher watcher = {.rig = rig};
	struct cache_stats stats;
	char path[32];

	pthread_create(&watcher.thread, NULL, watch, &watcher);
	world_put(rig->world, "big", 200 * MIB);
	read_object(rig, "big");
	read_object(rig, "big");
	for (unsigned i = 0; i < 20; i++) {
		snprintf(path, sizeof path, "o%u", i);
		world_put(rig->world, path, 10 * MIB + 1000 * i);
		read_object(rig, path);
		rig_settle(rig);
	}
	watcher.end = true;
	pthread_join(watcher.thread, NULL);
	stats = rig_stats(rig);
	assert_true(stats.evicted_objects >= 10);
	assert_true(stats.evicted_bytes >= 100 * MIB);
	assert_true(stats.uncached_bytes > 0);
	assert_true(warm(rig, "o19"));
	assert_false(warm(rig, "o0"));
	/* What is counted is what is there. */
	assert_in_range(stats.used_bytes, store_disk_bytes(rig) - MIB, store_disk_bytes(rig) + MIB);
	rig_restart(rig);
	stats = rig_stats(rig);
	assert_in_range(stats.used_bytes, store_disk_bytes(rig) - MIB, store_disk_bytes(rig) + MIB);
	read_object(rig, "o19");
	assert_int_equal(rig_stats(rig).fetched_bytes, 0);
}

/* An object that grew after it was chosen gives back what it has, not what it had. */
static void used_does_not_drift(void **state)
{
	struct rig *rig = *state;
	char path[32];

	for (unsigned round = 0; round < 6; round++) {
		for (unsigned i = 0; i < 8; i++) {
			struct handle handle;

			snprintf(path, sizeof path, "o%u", i);
			if (!round)
				world_put(rig->world, path, 12 * MIB);
			handle_open(rig, path, &handle);
			assert_int_equal(read_now(&handle, 0, 100), 100);
			rig_settle(rig);
			if ((i + round) % 2)
				assert_int_equal(read_whole(&handle, MIB), 0);
			handle_close(&handle);
		}
	}
	rig_settle(rig);
	assert_in_range(
		rig_stats(rig).used_bytes, store_disk_bytes(rig), store_disk_bytes(rig) + MIB / 2);
}

static void pinned_and_open_objects_stay(void **state)
{
	struct rig *rig = *state;
	struct origin_attr attr;
	struct object_status status;
	struct handle open;
	uint64_t bytes;
	char path[32];

	world_put(rig->world, "pinned", 10 * MIB);
	world_put(rig->world, "open", 10 * MIB);
	attr = world_attr(rig->world, "pinned");
	assert_int_equal(cache_pinned_bytes(rig->cache, &bytes), 0);
	assert_int_equal(bytes, 0);
	/* Before anything of it is cached. */
	assert_int_equal(cache_object_pin(rig->cache, rig->origin, "pinned", &attr, INT64_MAX), 0);
	assert_int_equal(cache_pinned_bytes(rig->cache, &bytes), 0);
	assert_int_equal(bytes, 10 * MIB);
	read_object(rig, "pinned");
	handle_open(rig, "open", &open);
	assert_int_equal(read_whole(&open, MIB), 0);
	for (unsigned i = 0; i < 12; i++) {
		snprintf(path, sizeof path, "o%u", i);
		world_put(rig->world, path, 10 * MIB);
		read_object(rig, path);
		rig_settle(rig);
	}
	assert_true(rig_stats(rig).evicted_objects >= 6);
	assert_true(warm(rig, "pinned"));
	assert_true(warm(rig, "open"));
	handle_close(&open);
	rig_restart(rig);
	assert_int_equal(cache_object_status(rig->cache, rig->origin, "pinned", &attr, &status), 0);
	assert_true(status.pinned && status.warm);
	assert_int_equal(status.cached_bytes, 10 * MIB);
	assert_int_equal(status.pinned_until_ns, INT64_MAX);
}

/* Pinned after the candidates were chosen. */
static void a_late_pin_counts(void **state)
{
	struct rig *rig = *state;
	struct origin_attr attr;
	char path[32];

	for (unsigned i = 0; i < 6; i++) {
		snprintf(path, sizeof path, "o%u", i);
		world_put(rig->world, path, 10 * MIB);
		read_object(rig, path);
		rig_settle(rig);
	}
	world_put(rig->world, "first", 9 * MIB);
	read_object(rig, "first");
	rig_settle(rig);
	assert_int_equal(rig_stats(rig).evicted_objects, 1);
	attr = world_attr(rig->world, "o1");
	assert_int_equal(cache_object_pin(rig->cache, rig->origin, "o1", &attr, INT64_MAX), 0);
	world_put(rig->world, "second", 20 * MIB);
	read_object(rig, "second");
	rig_settle(rig);
	assert_true(warm(rig, "o1"));
	assert_true(warm(rig, "second"));
}

static void what_evict_says(void **state)
{
	struct rig *rig = *state;
	struct object_status status;
	struct origin_attr attr;
	struct handle handle;
	uint64_t freed = 1;
	char *path;
	void *map;
	int fd;

	world_put(rig->world, "o", 4 * MIB + 5);
	attr = world_attr(rig->world, "o");
	assert_int_equal(cache_object_evict(rig->cache, rig->origin, "o", &attr, &freed), -ENOENT);
	handle_open(rig, "o", &handle);
	assert_int_equal(read_whole(&handle, MIB), 0);
	rig_settle(rig);
	path = handle_raw_path(&handle);
	assert_int_equal(cache_object_evict(rig->cache, rig->origin, "o", &attr, &freed), -EBUSY);
	handle_close(&handle);
	/* A mapping that outlived its descriptor, with the object closed. */
	fd = open(path, O_RDONLY | O_CLOEXEC);
	map = mmap(NULL, 4 * MIB, PROT_READ, MAP_SHARED, fd, 0);
	assert_true(map != MAP_FAILED);
	close(fd);
	assert_int_equal(cache_object_evict(rig->cache, rig->origin, "o", &attr, &freed), -EBUSY);
	assert_true(warm(rig, "o"));
	munmap(map, 4 * MIB);
	assert_int_equal(cache_object_pin(rig->cache, rig->origin, "o", &attr,
				 clock_wall_ns() + 1000000000ll * 3600),
		0);
	assert_int_equal(cache_object_evict(rig->cache, rig->origin, "o", &attr, &freed), -EPERM);
	assert_int_equal(cache_object_pin(rig->cache, rig->origin, "o", &attr, 0), 0);
	assert_int_equal(cache_object_status(rig->cache, rig->origin, "o", &attr, &status), 0);
	assert_true(status.warm && !status.pinned);
	assert_int_equal(status.size_bytes, 4 * MIB + 5);
	assert_int_equal(status.cached_bytes, 4 * MIB + 5);
	assert_true(status.disk_bytes >= 4 * MIB + 5);
	assert_int_equal(cache_object_evict(rig->cache, rig->origin, "o", &attr, &freed), 0);
	assert_true(freed >= 4 * MIB + 5);
	assert_int_not_equal(access(path, F_OK), 0);
	assert_int_equal(cache_object_evict(rig->cache, rig->origin, "o", &attr, &freed), -ENOENT);
	assert_int_equal(cache_object_status(rig->cache, rig->origin, "o", &attr, &status), 0);
	assert_true(!status.warm && !status.cached_bytes && !status.disk_bytes);
	assert_int_equal(status.size_bytes, 4 * MIB + 5);
	assert_int_equal(rig_stats(rig).objects, 0);
	/* Comes again, to the store too. */
	read_object(rig, "o");
	rig_settle(rig);
	assert_true(warm(rig, "o"));
	free(path);
}

/* The index's disk fails: memory says what the index has. */
static void a_pin_that_is_not_committed(void **state)
{
	struct rig *rig = *state;
	struct rlimit before, none;
	struct origin_attr attr;
	struct handle handle;
	int r;

	world_put(rig->world, "o", MIB);
	attr = world_attr(rig->world, "o");
	assert_int_equal(cache_object_pin(rig->cache, rig->origin, "o", &attr, INT64_MAX), 0);
	handle_open(rig, "o", &handle);
	rig_settle(rig);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	none = (struct rlimit){.rlim_max = before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
	r = cache_object_pin(rig->cache, rig->origin, "o", &attr, 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_true(r < 0);
	lock_take(&handle.object->lock);
	assert_true(handle.object->has_record);
	assert_true(handle.object->pinned_until_ns == INT64_MAX);
	lock_drop(&handle.object->lock);
	handle_close(&handle);
}

/* A mapped file is passed over by the eviction that makes room. */
static void mapped_files_stay(void **state)
{
	struct rig *rig = *state;
	struct handle handle;
	char name[32], *path;
	uint8_t *map;
	uint64_t seed;
	int fd;

	world_put(rig->world, "mapped", 10 * MIB);
	handle_open(rig, "mapped", &handle);
	assert_int_equal(read_whole(&handle, MIB), 0);
	rig_settle(rig);
	seed = handle.seed;
	path = handle_raw_path(&handle);
	handle_close(&handle);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	map = mmap(NULL, 10 * MIB, PROT_READ, MAP_SHARED, fd, 0);
	assert_true(map != MAP_FAILED);
	close(fd);
	for (unsigned i = 0; i < 12; i++) {
		snprintf(name, sizeof name, "o%u", i);
		world_put(rig->world, name, 10 * MIB);
		read_object(rig, name);
		rig_settle(rig);
	}
	assert_true(seed_right(seed, 0, map, 10 * MIB));
	assert_true(warm(rig, "mapped"));
	munmap(map, 10 * MIB);
	free(path);
}

/* A flush ends although others go on filling. */
struct filler {
	pthread_t thread;
	struct rig *rig;
	unsigned n;
	_Atomic bool end;
};

static void *fill(void *arg)
{
	struct filler *filler = arg;

	for (unsigned i = 0; !filler->end; i++) {
		struct handle handle;
		char path[32];

		snprintf(path, sizeof path, "f%u-%u", filler->n, i % 40);
		world_put(filler->rig->world, path, MIB / 4);
		handle_open(filler->rig, path, &handle);
		check(read_whole(&handle, MIB) == 0);
		handle_close(&handle);
	}
	return NULL;
}

static void a_flush_ends_under_load(void **state)
{
	struct rig *rig = *state;
	struct filler fillers[4];

	for (unsigned i = 0; i < 4; i++) {
		fillers[i] = (struct filler){.rig = rig, .n = i};
		pthread_create(&fillers[i].thread, NULL, fill, &fillers[i]);
	}
	for (unsigned i = 0; i < 20; i++)
		commit_flush(rig->cache);
	for (unsigned i = 0; i < 4; i++) {
		fillers[i].end = true;
		pthread_join(fillers[i].thread, NULL);
	}
}

/* --- a small file system of its own --- */

static int set_up_tmpfs(void **state)
{
	struct rig *rig;

	rig_set_up_idle(state);
	rig = *state;
	rig->capacity = "90%";
	if (mount("tmpfs", rig->dir, "tmpfs", 0, "size=64m")) {
		free(rig->dir);
		rig->dir = NULL;
		return 0;
	}
	rig_start(rig);
	return 0;
}

static int tear_down_tmpfs(void **state)
{
	struct rig *rig = *state;

	if (!rig->dir) {
		rig->dir = strdup("/nowhere");
		rig_tear_down(state);
		return 0;
	}
	rig_stop(rig);
	umount2(rig->dir, MNT_DETACH);
	return rig_tear_down(state);
}

static void somebody_else_fills_the_disk(void **state)
{
	struct rig *rig = *state;
	struct cache_stats stats;
	struct handle handle;
	char path[256], *bytes;
	ssize_t n;
	int fd;

	if (!rig->dir)
		skip();
	world_put(rig->world, "small", 4 * MIB);
	world_put(rig->world, "o", 60 * MIB);
	read_object(rig, "small");
	handle_open(rig, "o", &handle);
	assert_int_equal(read_now(&handle, 0, MIB), MIB);
	rig_settle(rig);
	snprintf(path, sizeof path, "%s/other", rig->dir);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	bytes = calloc(1, MIB);
	while ((n = write(fd, bytes, MIB)) > 0)
		;
	assert_int_equal(errno, ENOSPC);
	assert_int_equal(read_whole(&handle, MIB), 0);
	rig_settle(rig);
	stats = rig_stats(rig);
	assert_true(stats.uncached_bytes >= 50 * MIB);
	assert_true(stats.store_full);
	/* The other one goes: the store is used again. */
	close(fd);
	unlink(path);
	handle_close(&handle);
	rig_restart(rig);
	handle_open(rig, "o", &handle);
	assert_int_equal(read_whole(&handle, MIB), 0);
	rig_settle(rig);
	assert_true(rig_stats(rig).written_bytes > 30 * MIB);
	rig_drop_memory(rig);
	assert_int_equal(read_whole(&handle, 123456), 0);
	handle_close(&handle);
	free(bytes);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up_64m, rig_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(larger_than_the_store),
		TEST(used_does_not_drift),
		TEST(pinned_and_open_objects_stay),
		TEST(a_late_pin_counts),
		TEST(what_evict_says),
		TEST(a_pin_that_is_not_committed),
		TEST(mapped_files_stay),
		TEST(a_flush_ends_under_load),
		cmocka_unit_test_setup_teardown(
			somebody_else_fills_the_disk, set_up_tmpfs, tear_down_tmpfs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
