/* A file:// origin through the engine. */
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "wait.h"

struct fixture {
	char dir[32];
	struct origin_engine *engine;
	struct origin *origin;
};

static void make_file(const struct fixture *fixture, const char *name, size_t n)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof path, "%s/%s", fixture->dir, name);
	file = fopen(path, "w");
	assert_non_null(file);
	for (size_t i = 0; i < n; i++)
		fputc((int)(i % 251), file);
	fclose(file);
}

static void open_dir(struct fixture *fixture)
{
	char source[64];
	struct origin_config config = {.source = source};

	strcpy(fixture->dir, "/tmp/test-origin-XXXXXX");
	assert_non_null(mkdtemp(fixture->dir));
	snprintf(source, sizeof source, "file://%s", fixture->dir);
	assert_int_equal(origin_engine_new(&fixture->engine), 0);
	assert_int_equal(origin_open(fixture->engine, &config, &fixture->origin, NULL), 0);
}

static void remove_name(const struct fixture *fixture, const char *name)
{
	char path[128];

	snprintf(path, sizeof path, "%s/%s", fixture->dir, name);
	assert_int_equal(remove(path), 0);
}

static void close_dir(struct fixture *fixture)
{
	origin_unref(fixture->origin);
	origin_engine_free(fixture->engine);
	assert_int_equal(rmdir(fixture->dir), 0);
}

static void link_to(const struct fixture *fixture, const char *target, const char *name)
{
	char path[128];

	snprintf(path, sizeof path, "%s/%s", fixture->dir, name);
	assert_int_equal(symlink(target, path), 0);
}

static void links_stay_beneath_the_root(void **state)
{
	struct fixture fixture;
	struct origin_attr attr;
	struct wait_list *list = calloc(1, sizeof *list);
	char path[64];

	(void)state;
	open_dir(&fixture);
	make_file(&fixture, "file", 5);
	link_to(&fixture, "file", "inside");
	link_to(&fixture, "/etc/passwd", "absolute");
	link_to(&fixture, "../../etc/passwd", "outside");
	link_to(&fixture, "loop", "loop");
	snprintf(path, sizeof path, "%s/fifo", fixture.dir);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(wait_list(fixture.origin, "", list), 0);
	assert_int_equal(strlen(list->names), strlen("file\ninside\n"));
	assert_int_equal(list->hidden, 4);
	assert_int_equal(wait_stat(fixture.origin, "inside", &attr), 0);
	assert_int_equal(attr.size_bytes, 5);
	assert_true(attr.version.strong);
	assert_int_equal(wait_stat(fixture.origin, "absolute", &attr), -ENOENT);
	assert_int_equal(wait_stat(fixture.origin, "outside", &attr), -ENOENT);
	assert_int_equal(wait_stat(fixture.origin, "fifo", &attr), -ENOENT);
	assert_int_equal(wait_stat(fixture.origin, "file/x", &attr), -ENOENT);
	assert_int_equal(wait_stat(fixture.origin, "../x", &attr), -ENOENT);
	assert_int_equal(wait_list(fixture.origin, "none", list), -ENOENT);
	remove_name(&fixture, "file");
	remove_name(&fixture, "inside");
	remove_name(&fixture, "absolute");
	remove_name(&fixture, "outside");
	remove_name(&fixture, "loop");
	remove_name(&fixture, "fifo");
	close_dir(&fixture);
	free(list);
}

static void make_dir(const struct fixture *fixture, const char *name)
{
	char path[128];

	snprintf(path, sizeof path, "%s/%s", fixture->dir, name);
	assert_int_equal(mkdir(path, 0700), 0);
}

static void lists(
	const struct fixture *fixture, const char *dir, const char *names, unsigned hidden)
{
	struct wait_list *list = calloc(1, sizeof *list);

	assert_int_equal(wait_list(fixture->origin, dir, list), 0);
	assert_string_equal(list->names, names);
	assert_int_equal(list->hidden, hidden);
	free(list);
}

/* Links to directories are directories, but for those that would make a walk endless: to itself, to
 * one above, and to one that another link led down from. */
static void links_make_no_walk_endless(void **state)
{
	static const char *const names[] = {
		"a/up", "a/self", "a/top", "a/to-b", "b/to-a", "b/sub", "a", "b"};
	struct fixture fixture;
	struct origin_attr attr;

	(void)state;
	open_dir(&fixture);
	make_dir(&fixture, "a");
	make_dir(&fixture, "b");
	make_dir(&fixture, "b/sub");
	link_to(&fixture, "..", "a/up");
	link_to(&fixture, ".", "a/self");
	link_to(&fixture, "../a/../b/..", "a/top");
	link_to(&fixture, "../b", "a/to-b");
	link_to(&fixture, "../a", "b/to-a");
	lists(&fixture, "a", "to-b/\n", 3);
	lists(&fixture, "a/to-b", "sub/\n", 1);
	assert_int_equal(wait_stat(fixture.origin, "a/to-b", &attr), 0);
	assert_int_equal(attr.kind, ORIGIN_DIR);
	assert_int_equal(wait_stat(fixture.origin, "b/to-a", &attr), 0);
	assert_int_equal(wait_stat(fixture.origin, "a/to-b/to-a", &attr), -ENOENT);
	assert_int_equal(wait_stat(fixture.origin, "a/self", &attr), -ENOENT);
	assert_int_equal(wait_stat(fixture.origin, "a/top", &attr), -ENOENT);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		remove_name(&fixture, names[i]);
	close_dir(&fixture);
}

static void ranges_pauses_and_changes(void **state)
{
	struct fixture fixture;
	struct origin_attr attr;
	struct wait_get *wait = calloc(1, sizeof *wait);

	(void)state;
	open_dir(&fixture);
	make_file(&fixture, "f", 700000);
	assert_int_equal(wait_stat(fixture.origin, "f", &attr), 0);
	wait->get = (struct origin_get){.origin = fixture.origin,
		.path = "f",
		.offset = 1000,
		.length = 600000,
		.version = attr.version,
		.size_bytes = attr.size_bytes};
	wait->pause_at = 300001;
	wait_get_start(wait);
	sem_wait(&wait->paused);
	origin_get_resume(&wait->get);
	assert_int_equal(wait_get_done(wait), 0);
	assert_int_equal(wait->size, 600000);
	for (size_t i = 0; i < wait->size; i++)
		assert_int_equal((uint8_t)wait->bytes[i], (i + 1000) % 251);
	wait->pause_at = 5;
	wait_get_start(wait);
	sem_wait(&wait->paused);
	origin_get_cancel(&wait->get);
	assert_int_equal(wait_get_done(wait), -ECANCELED);
	make_file(&fixture, "f", 700001);
	assert_int_equal(wait_get(wait), -ESTALE);
	assert_int_equal(wait->size, 0);
	remove_name(&fixture, "f");
	assert_int_equal(wait_get(wait), -ESTALE);
	close_dir(&fixture);
	free(wait);
}

static void long_directories_come_in_pages(void **state)
{
	struct fixture fixture;
	struct wait_list *list = calloc(1, sizeof *list);
	char name[16];
	size_t lines = 0;

	(void)state;
	open_dir(&fixture);
	for (int i = 0; i < 2500; i++) {
		snprintf(name, sizeof name, "f%d", i);
		make_file(&fixture, name, 0);
	}
	assert_int_equal(wait_list(fixture.origin, "", list), 0);
	for (const char *c = list->names; *c; c++)
		lines += *c == '\n';
	assert_int_equal(lines, 2500);
	assert_int_equal(list->pages, 3);
	for (int i = 0; i < 2500; i++) {
		snprintf(name, sizeof name, "f%d", i);
		remove_name(&fixture, name);
	}
	close_dir(&fixture);
	free(list);
}

#define HUNG 16

static sem_t hung, released;

/* As a read of a file server that is gone: it comes back when somebody says so. */
static size_t hang(struct origin_get *get, const uint8_t *bytes, size_t n)
{
	(void)get, (void)bytes;
	sem_post(&hung);
	sem_wait(&released);
	return n;
}

static void count_done(struct origin_get *get, int error)
{
	(void)get;
	assert_int_equal(error, 0);
	sem_post(&hung);
}

static void a_directory_that_hangs_stops_no_other(void **state)
{
	struct fixture fixture;
	struct origin_config config = {.source = "file:///"};
	struct origin_get gets[HUNG];
	struct origin_attr attr;
	struct origin *other;

	(void)state;
	sem_init(&hung, 0, 0);
	sem_init(&released, 0, 0);
	open_dir(&fixture);
	make_file(&fixture, "f", 10);
	assert_int_equal(wait_stat(fixture.origin, "f", &attr), 0);
	assert_int_equal(origin_open(fixture.engine, &config, &other, NULL), 0);
	for (int i = 0; i < HUNG; i++) {
		gets[i] = (struct origin_get){.origin = fixture.origin,
			.path = "f",
			.length = 10,
			.version = attr.version,
			.size_bytes = 10,
			.data = hang,
			.done = count_done};
		origin_get_start(&gets[i]);
	}
	sem_wait(&hung);
	assert_int_equal(wait_stat(other, "proc", &attr), 0);
	for (int i = 0; i < HUNG; i++)
		sem_post(&released);
	/* Each hung once more and was done; one of them was waited for. */
	for (int i = 0; i < 2 * HUNG - 1; i++)
		sem_wait(&hung);
	origin_unref(other);
	remove_name(&fixture, "f");
	close_dir(&fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(links_stay_beneath_the_root),
		cmocka_unit_test(links_make_no_walk_endless),
		cmocka_unit_test(ranges_pauses_and_changes),
		cmocka_unit_test(long_directories_come_in_pages),
		cmocka_unit_test(a_directory_that_hangs_stops_no_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
