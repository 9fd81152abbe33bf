#include <errno.h>
#include <limits.h>
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

#include "paths.h"

/* A directory of its own with "real/", and "link" that points to it; the working directory. */
static int set_up(void **state)
{
	static char directory[PATH_MAX];

	strcpy(directory, "/tmp/cachefs-paths-XXXXXX");
	assert_non_null(mkdtemp(directory));
	assert_int_equal(chdir(directory), 0);
	assert_int_equal(mkdir("real", 0700), 0);
	assert_int_equal(symlink("real", "link"), 0);
	assert_int_equal(symlink("loop", "loop"), 0);
	*state = directory;
	return 0;
}

static int tear_down(void **state)
{
	unlink("loop");
	unlink("link");
	rmdir("real");
	assert_int_equal(chdir("/"), 0);
	return rmdir(*state);
}

static void expect(char *path, const char *directory, const char *rest)
{
	char wanted[PATH_MAX];

	snprintf(wanted, sizeof wanted, "%s%s", directory, rest);
	assert_non_null(path);
	assert_string_equal(path, wanted);
	free(path);
}

static void by_text(void **state)
{
	static const struct {
		const char *path, *absolute;
	} cases[] = {
		{"/", "/"},
		{"//a///b/", "/a/b"},
		{"/a/./b/.", "/a/b"},
		{"/a/../b", "/b"},
		{"/../..", "/"},
		{"/a/b/..", "/a"},
		{"/a/..b/...", "/a/..b/..."},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		expect(path_absolute(cases[i].path), "", cases[i].absolute);
	expect(path_absolute("x/../y"), *state, "/y");
	expect(path_absolute("."), *state, "");
	assert_null(path_absolute(""));
	assert_int_equal(errno, ENOENT);
}

static void of_mountpoints(void **state)
{
	expect(path_of_mountpoint("real"), *state, "/real");
	expect(path_of_mountpoint("link"), *state, "/real");
	expect(path_of_mountpoint("link/new"), *state, "/real/new");
	expect(path_of_mountpoint("/"), "", "/");
	assert_null(path_of_mountpoint("missing/new"));
	assert_int_equal(errno, ENOENT);
	assert_null(path_of_mountpoint(""));
	assert_int_equal(errno, ENOENT);
	assert_null(path_of_mountpoint("loop"));
	assert_int_equal(errno, ELOOP);
	assert_int_equal(errno, ELOOP);
}

static void of_files(void **state)
{
	expect(path_resolved("link"), *state, "/real");
	expect(path_resolved("link/store"), *state, "/real/store");
	expect(path_resolved("missing/store"), *state, "/missing/store");
	expect(path_below_mounts("link/x/../y"), *state, "/link/y");
	assert_false(path_is_mount("/"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_text),
		cmocka_unit_test(of_mountpoints),
		cmocka_unit_test(of_files),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
