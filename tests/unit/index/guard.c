/*
 * Daemons that die within LMDB, by pages that a disk has changed: the third sees the damage. The test
 * program runs itself as the process that dies, since cmocka has handlers of the same signals.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "internal.h"

#define MAP_BYTES (64ull << 20)

struct fixture {
	char dir[64]; /* the index is dir/index */
	char index[80];
};

static int make(void **state)
{
	static struct fixture f;

	snprintf(f.dir, sizeof f.dir, "/tmp/cachefs-test-XXXXXX");
	if (!mkdtemp(f.dir))
		return -1;
	snprintf(f.index, sizeof f.index, "%s/index", f.dir);
	*state = &f;
	return mkdir(f.index, 0700);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
	(void)st, (void)type, (void)walk;
	return remove(path);
}

static int remove_all(const char *dir)
{
	return nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int unmake(void **state)
{
	return remove_all(((struct fixture *)*state)->dir);
}

static struct index *open_index(struct fixture *f)
{
	struct index *index = NULL;
	struct why why;

	assert_int_equal(index_open(f->index, MAP_BYTES, &index, &why), 0);
	return index;
}

static struct id128 id_of(uint64_t number)
{
	return (struct id128){number, ~number};
}

static void die_within(struct index *index)
{
	guard_enter(index);
	raise(SIGSEGV);
}

static void fault_within(struct index *index)
{
	void *nothing = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	guard_enter(index);
	*(volatile char *)nothing = 1;
}

static void abort_within(struct index *index)
{
	guard_enter(index);
	abort();
}

static void fault_outside(struct index *index)
{
	(void)index;
	fault_within(NULL);
}

static void do_nothing(struct index *index)
{
	(void)index;
}

static int look_at(void *arg, struct id128 id, const struct index_object_record *record)
{
	struct index_object_record again;

	(void)record;
	index_get_object(arg, id, &again);
	return 0;
}

#define DAMAGED_OBJECTS 600u

/* What a daemon does, whatever it is told. */
static void use_all(struct index *index)
{
	struct index_object_record record;
	struct index_totals totals;
	struct index_group group;
	struct index_txn *txn;

	index_each_object(index, look_at, index);
	index_totals(index, &totals);
	for (uint64_t i = 0; i < DAMAGED_OBJECTS; i++) {
		index_get_object(index, id_of(i), &record);
		index_get_group(index, id_of(i), 0, &group);
		if (i % 50 || index_begin(index, &txn))
			continue;
		if (index_delete_object(txn, id_of(i)))
			index_abort(txn);
		else
			index_commit(txn);
	}
}

/* What processes of their own do with an index: cmocka has handlers of the same signals. */
static const struct use {
	const char *name;
	void (*run)(struct index *index);
} uses[] = {
	{"die within", die_within},
	{"fault within", fault_within},
	{"abort within", abort_within},
	{"fault outside", fault_outside},
	{"nothing", do_nothing},
	{"all", use_all},
};

#define DAMAGE_SEEN 3
#define REFUSED     4 /* for another reason, and so for ever */

static int use_index(const char *dir, const char *name)
{
	struct index *index;
	struct why why;

	int r = index_open(dir, MAP_BYTES, &index, &why);

	if (r)
		return r == -EUCLEAN ? DAMAGE_SEEN : REFUSED;
	for (size_t i = 0; i < sizeof uses / sizeof uses[0]; i++) {
		if (!strcmp(uses[i].name, name))
			uses[i].run(index);
	}
	index_close(index);
	return 0;
}

/* False: it didn't come to its end. *ret_killed: by a signal, not by what it saw. */
static bool survives(struct fixture *f, const char *use, bool *ret_killed)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

		dup2(null, STDERR_FILENO);
		execl("/proc/self/exe", "use", f->index, use, (char *)NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	/* A sanitizer makes an exit of a signal, with another status. */
	*ret_killed =
		!WIFEXITED(status) || (WEXITSTATUS(status) && WEXITSTATUS(status) != DAMAGE_SEEN);
	assert_false(WIFEXITED(status) && WEXITSTATUS(status) == REFUSED);
	return WIFEXITED(status) && !WEXITSTATUS(status);
}

/* Two in a row make it damaged; it is set aside with all that is in it, and an empty one is made. */
static void who_dies_within_lmdb_leaves_a_mark(void **state)
{
	struct fixture *f = *state;
	struct index *index = NULL;
	char aside[PATH_MAX];
	struct why why;
	bool killed;

	assert_true(survives(f, "nothing", &killed));
	assert_false(survives(f, "fault outside", &killed));
	assert_true(killed);
	assert_false(survives(f, "die within", &killed)); /* by somebody else's hand */
	assert_int_equal(guard_deaths(f->index), 0);
	assert_false(survives(f, "fault within", &killed));
	assert_int_equal(guard_deaths(f->index), 1);
	/* A clean life in between: it was something that passed. */
	assert_true(survives(f, "nothing", &killed));
	assert_int_equal(guard_deaths(f->index), 0);
	assert_false(survives(f, "abort within", &killed));
	assert_false(survives(f, "fault within", &killed));
	assert_true(killed);
	assert_int_equal(guard_deaths(f->index), 2);
	assert_int_equal(index_open(f->index, MAP_BYTES, &index, &why), -EUCLEAN);

	for (unsigned i = 1; i <= INDEX_ASIDE_MAX; i++) {
		assert_int_equal(index_count_aside(f->index), i - 1);
		assert_int_equal(index_set_aside(f->index, aside, &why), 0);
		if (i == 1)
			assert_int_equal(guard_deaths(aside), 2);
		assert_true(survives(f, "nothing", &killed));
	}
	assert_int_equal(index_set_aside(f->index, aside, &why), -EEXIST);
	assert_non_null(strstr(why.text, "check the disk"));
}

static void put_objects(struct index *index, uint64_t count)
{
	struct index_object_record record = {
		.object = {.size_bytes = 20, .disk_bytes = 10, .n_chunks = 2, .n_present = 1},
		.name = "file:///o",
		.version = "\"v\""};
	struct index_group group = {.present = {1}};
	struct index_txn *txn;

	assert_int_equal(index_begin(index, &txn), 0);
	for (uint64_t i = 0; i < count; i++) {
		assert_int_equal(index_put_object(txn, id_of(i), &record), 0);
		assert_int_equal(index_put_group(txn, id_of(i), 0, &group), 0);
	}
	assert_int_equal(index_commit(txn), 0);
}

static void write_random_pages(const char *path, unsigned seed)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct stat st;
	uint8_t page[4096];

	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	for (off_t at = 2 * 4096; at < st.st_size; at += 4096) {
		seed = seed * 1103515245u + 12345u;
		if (seed >> 16 & 3)
			continue;
		assert_int_equal(pread(fd, page, sizeof page, at), sizeof page);
		/* All of it, or what leads to where the others are. */
		for (size_t i = seed >> 18 & 1 ? 0 : 16; i < sizeof page; i++) {
			seed = seed * 1103515245u + 12345u;
			page[i] = (uint8_t)(seed >> 16);
		}
		assert_int_equal(pwrite(fd, page, sizeof page, at), sizeof page);
	}
	close(fd);
}

/* Whatever a disk makes of the pages: at the third try at the latest one lives, or sees the damage. */
static void no_damage_kills_more_than_twice(void **state)
{
	struct fixture *f = *state;
	unsigned deaths = 0;

	for (unsigned seed = 1; seed <= 80; seed++) {
		char path[PATH_MAX + 16], aside[PATH_MAX];
		struct index *index;
		struct why why;
		bool killed;
		unsigned n = 0;

		index = open_index(f);
		put_objects(index, DAMAGED_OBJECTS);
		index_close(index);
		snprintf(path, sizeof path, "%s/data.mdb", f->index);
		write_random_pages(path, seed);
		while (!survives(f, "all", &killed) && killed)
			assert_in_range(++n, 1, GUARD_DEATHS_MAX);
		deaths += n;
		assert_int_equal(index_set_aside(f->index, aside, &why), 0);
		assert_int_equal(remove_all(aside), 0);
	}
	/* Else nothing was tried. */
	assert_true(deaths > 0);
}

/* In both meta pages: page size, last page. */
static void numbers_that_can_not_be_are_damage(void **state)
{
	static const struct {
		off_t at;
		uint64_t number;
		size_t size;
	} damages[] = {{40, UINT32_MAX, 4}, {40, 1, 4}, {136, 1ull << 40, 8}, {136, UINT64_MAX, 8}};
	struct fixture *f = *state;
	char path[PATH_MAX], aside[PATH_MAX];
	struct index *index = NULL;
	struct why why;

	snprintf(path, sizeof path, "%s/data.mdb", f->index);
	for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
		int fd;

		index = open_index(f);
		put_objects(index, 10);
		index_close(index);
		index_close(open_index(f)); /* a right one stays right */
		fd = open(path, O_RDWR | O_CLOEXEC);
		for (off_t page = 0; page < 2; page++)
			assert_int_equal(pwrite(fd, &damages[i].number, damages[i].size,
						 page * sysconf(_SC_PAGESIZE) + damages[i].at),
				damages[i].size);
		close(fd);
		index = NULL;
		assert_int_equal(index_open(f->index, MAP_BYTES, &index, &why), -EUCLEAN);
		assert_int_equal(index_set_aside(f->index, aside, &why), 0);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make, unmake)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(who_dies_within_lmdb_leaves_a_mark),
		TEST(no_damage_kills_more_than_twice),
		TEST(numbers_that_can_not_be_are_damage),
	};

	if (argc == 3)
		return use_index(argv[1], argv[2]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
