/*
 * SIGKILL at random moments of a fill, then what the store says it has is right. The test program
 * runs itself as the process that is killed.
 */
#include "rig.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB     (1ull << 20)
#define OBJECTS 6
#define ROUNDS  20

/* The same objects in each process: versions are counted. */
static void put_objects(struct rig *rig)
{
	for (unsigned i = 0; i < OBJECTS; i++) {
		char path[32];

		snprintf(path, sizeof path, "o%u", i);
		world_put(rig->world, path, (3 + 4 * i) * MIB + 1000 * i);
	}
}

/* Fills until it is killed; tells by a byte that it has begun. Small steps, so that there is much to
 * interrupt; evictions, so that there is always something to fill. */
static int child(const char *dir)
{
	struct rig rig = {.dir = strdup(dir), .capacity = "64M", .memory_bytes = 32 * MIB};

	list_init(&rig.handles);
	rig.world = world_new();
	rig.origin = world_origin(rig.world, "somebody");
	rig_start(&rig);
	put_objects(&rig);
	if (write(STDOUT_FILENO, "x", 1) != 1)
		return 1;
	for (unsigned i = 0;; i++) {
		struct origin_attr attr;
		struct handle handle;
		uint64_t freed;
		char path[32];

		snprintf(path, sizeof path, "o%u", i % OBJECTS);
		handle_open(&rig, path, &handle);
		check(read_whole(&handle, 700000) == 0);
		handle_close(&handle);
		attr = world_attr(rig.world, path);
		cache_object_evict(rig.cache, rig.origin, path, &attr, &freed);
	}
}

static void kill_one(const struct rig *rig, unsigned after_us)
{
	int pipe_fds[2], status;
	char byte;
	pid_t pid;

	check(pipe(pipe_fds) == 0);
	pid = fork();
	check(pid >= 0);
	if (!pid) {
		dup2(pipe_fds[1], STDOUT_FILENO);
		close(pipe_fds[0]);
		close(pipe_fds[1]);
		execl("/proc/self/exe", "crash", rig->dir, (char *)NULL);
		_exit(127);
	}
	close(pipe_fds[1]);
	check(read(pipe_fds[0], &byte, 1) == 1);
	usleep(after_us);
	check(kill(pid, SIGKILL) == 0);
	check(waitpid(pid, &status, 0) == pid);
	check(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	close(pipe_fds[0]);
}

static void what_is_there_is_right(struct rig *rig)
{
	struct verify_result result = {0};
	uint64_t before = world_counts(rig->world).get_bytes, cached = 0, all = 0;

	for (unsigned i = 0; i < OBJECTS; i++) {
		struct object_status status;
		struct origin_attr attr;
		char path[32];

		snprintf(path, sizeof path, "o%u", i);
		attr = world_attr(rig->world, path);
		assert_int_equal(
			cache_object_status(rig->cache, rig->origin, path, &attr, &status), 0);
		cached += status.cached_bytes;
		all += status.size_bytes;
	}
	assert_int_equal(cache_verify_all(rig->cache, &result), 0);
	assert_int_equal(result.bad_chunks, 0);
	for (unsigned i = 0; i < OBJECTS; i++) {
		struct handle handle;
		char path[32];

		snprintf(path, sizeof path, "o%u", i);
		handle_open(rig, path, &handle);
		assert_int_equal(read_whole(&handle, MIB), 0);
		handle_close(&handle);
	}
	/* An eviction that was cut off may have left a record without its file. Of an object that is
	 * there in part, a short last chunk is counted as a whole one. */
	assert_int_equal(result.unreadable_objects, 0);
	if (!result.forgotten_objects)
		assert_in_range(world_counts(rig->world).get_bytes - before, all - cached,
			all - cached + OBJECTS * MIB);
	assert_int_equal(rig_stats(rig).checksum_failures, 0);
}

static void killed_while_it_fills(void **state)
{
	const char *wanted = getenv("CACHE_CRASH_ROUNDS");
	unsigned rounds = wanted ? (unsigned)atoi(wanted) : ROUNDS;
	struct rig *rig = *state;
	uint64_t seed = (uint64_t)getpid();

	print_message("seed %llu\n", (unsigned long long)seed);
	put_objects(rig);
	for (unsigned i = 0; i < rounds; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		kill_one(rig, (unsigned)(seed >> 33) % 150000);
		rig_start(rig);
		what_is_there_is_right(rig);
		rig_stop(rig);
	}
}

static int set_up(void **state)
{
	struct rig *rig;

	rig_set_up_idle(state);
	rig = *state;
	rig->capacity = "200M";
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(killed_while_it_fills, set_up, rig_tear_down),
	};

	if (argc == 2)
		return child(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
