#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scratch.h"
#include "store/store.h"

static bool exists(const char *scratch, const char *name)
{
	struct stat st;

	return lstat(scratch_path(scratch, name), &st) == 0;
}

static void opens(const char *dir)
{
	struct store *store;
	struct why why = {""};
	int r = store_open(dir, 0, &store, &why);

	if (r)
		print_error("%s\n", why.text);
	assert_int_equal(r, 0);
	store_close(store);
}

/* The text names the directory and the other thing that the person must know. */
static void refused(const char *dir, int error, const char *names)
{
	struct store *store = NULL;
	struct why why = {""};

	assert_int_equal(store_open(dir, 0, &store, &why), error);
	assert_null(store);
	assert_non_null(strstr(why.text, dir));
	if (!strstr(why.text, names))
		fail_msg("\"%s\" does not name \"%s\"", why.text, names);
}

static void a_store_is_made_and_opened_again(void **state)
{
	const char *dir = scratch_path(*state, "store");
	struct store *store;
	struct store_space space;
	char format[64] = "";
	int fd;

	for (int i = 0; i < 2; i++) {
		assert_int_equal(store_open(dir, 0, &store, NULL), 0);
		assert_string_equal(store_dir(store), dir);
		assert_string_equal(store_index_dir(store), scratch_path(*state, "store/index"));
		assert_int_equal(store_space(store, &space), 0);
		assert_true(space.total_bytes >= space.free_bytes && space.free_bytes > 0);
		store_close(store);
	}
	fd = open(scratch_path(*state, "store/FORMAT"), O_RDONLY);
	assert_true(read(fd, format, sizeof format - 1) > 0);
	close(fd);
	assert_string_equal(format, "cachefs-store 1\n");
	assert_false(exists(*state, "store/probe"));
	assert_false(exists(*state, "store/FORMAT.new"));
}

static void an_empty_disk_with_lost_and_found_will_do(void **state)
{
	assert_int_equal(mkdir(scratch_path(*state, "lost+found"), 0700), 0);
	opens(*state);
}

static void an_interrupted_making_is_finished(void **state)
{
	assert_int_equal(mkdir(scratch_path(*state, "index"), 0700), 0);
	scratch_write(scratch_path(*state, "lock"), "");
	scratch_write(scratch_path(*state, "FORMAT.new"), "cachefs-st");
	opens(*state);
	assert_true(exists(*state, "FORMAT"));
	assert_true(exists(*state, "raw"));
}

static void other_contents_are_refused_and_left_alone(void **state)
{
	scratch_write(scratch_path(*state, "thesis.tex"), "x");
	refused(*state, -ENOTEMPTY, "thesis.tex");
	assert_false(exists(*state, "lock"));
	assert_false(exists(*state, "FORMAT"));
}

static void files_below_raw_without_format_are_refused(void **state)
{
	assert_int_equal(mkdir(scratch_path(*state, "raw"), 0700), 0);
	scratch_write(scratch_path(*state, "raw/photo"), "x");
	refused(*state, -ENOTEMPTY, "raw/photo");
	assert_false(exists(*state, "lock"));
}

static void another_format_is_refused(void **state)
{
	scratch_write(scratch_path(*state, "FORMAT"), "cachefs-store 2\n");
	refused(*state, -EPROTONOSUPPORT, "format 2");
	scratch_write(scratch_path(*state, "FORMAT"), "");
	refused(*state, -EPROTONOSUPPORT, "FORMAT");
	assert_false(exists(*state, "lock"));
}

static void links_inside_are_not_followed(void **state)
{
	assert_int_equal(mkdir(scratch_path(*state, "s"), 0700), 0);
	scratch_write(scratch_path(*state, "elsewhere"), "precious");
	assert_int_equal(
		symlink(scratch_path(*state, "elsewhere"), scratch_path(*state, "s/lock")), 0);
	refused(scratch_path(*state, "s"), -ELOOP, "lock");
	unlink(scratch_path(*state, "s/lock"));
	opens(scratch_path(*state, "s"));
	assert_int_equal(rmdir(scratch_path(*state, "s/raw")), 0);
	assert_int_equal(symlink(*state, scratch_path(*state, "s/raw")), 0);
	refused(scratch_path(*state, "s"), -ENOTDIR, "raw");
}

/* A child that holds the store until its end of the pipe is closed. */
static pid_t holder(const char *dir, int *ret_release)
{
	int ready[2], release[2];
	struct store *store;
	char byte = 0;
	pid_t pid;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	assert_int_equal(pipe2(release, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		close(release[1]);
		if (store_open(dir, 0, &store, NULL) < 0 || write(ready[1], &byte, 1) != 1)
			_exit(1);
		_exit(read(release[0], &byte, 1) == 0 ? 0 : 1);
	}
	assert_true(pid > 0);
	close(ready[1]);
	close(release[0]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	*ret_release = release[1];
	return pid;
}

static void another_daemons_store_is_refused_with_its_pid(void **state)
{
	char pid_text[32];
	int release, status;
	pid_t pid = holder(*state, &release);

	snprintf(pid_text, sizeof pid_text, "pid %d ", (int)pid);
	refused(*state, -EBUSY, pid_text);
	close(release);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	opens(*state);
}

static void the_lock_also_holds_within_a_process(void **state)
{
	struct store *store;

	assert_int_equal(store_open(*state, 0, &store, NULL), 0);
	refused(*state, -EBUSY, "pid");
	store_close(store);
	opens(*state);
}

static void places_that_cannot_hold_a_store_are_refused(void **state)
{
	scratch_write(scratch_path(*state, "file"), "x");
	refused(scratch_path(*state, "file"), -ENOTDIR, "directory");
	refused(scratch_path(*state, "file/store"), -ENOTDIR, "directory");
	refused(scratch_path(*state, "no/store"), -ENOENT, "parent");
	refused("/proc/cachefs-store", -ENOENT, "/proc/cachefs-store");
	refused("/proc/self/fdinfo", -ENOTEMPTY, "empty");
}

/* Mounts a tmpfs on scratch/disk, or skips: only root may. */
static const char *tmpfs(const char *scratch, const char *options)
{
	const char *disk = scratch_path(scratch, "disk");

	assert_int_equal(mkdir(disk, 0700), 0);
	if (mount("test", disk, "tmpfs", 0, options) < 0) {
		assert_true(errno == EPERM || errno == EACCES);
		print_message("[  SKIP    ] mounting a tmpfs needs root\n");
		skip();
	}
	return disk;
}

static int unmount_and_remove(void **state)
{
	umount2(scratch_path(*state, "disk"), MNT_DETACH);
	return scratch_remove(state);
}

static void a_disk_without_room_is_refused_unchanged(void **state)
{
	const char *disk = tmpfs(*state, "size=1m");

	refused(disk, -ENOSPC, "free");
	assert_false(exists(disk, "lock"));
	refused(scratch_path(disk, "new"), -ENOSPC, "free");
	assert_false(exists(disk, "new"));
}

static void a_full_store_opens_again(void **state)
{
	const char *disk = tmpfs(*state, "size=20m");
	static char block[1 << 20];
	int fd;

	opens(disk);
	fd = open(scratch_path(disk, "raw/filler"), O_WRONLY | O_CREAT, 0600);
	assert_true(fd >= 0);
	while (write(fd, block, sizeof block) > 0)
		;
	assert_int_equal(errno, ENOSPC);
	close(fd);
	opens(disk);
}

static void a_read_only_disk_is_refused(void **state)
{
	const char *disk = tmpfs(*state, "size=20m");

	assert_int_equal(mount("test", disk, "tmpfs", MS_REMOUNT | MS_RDONLY, NULL), 0);
	refused(disk, -EROFS, "lock");
	refused(scratch_path(disk, "new"), -EROFS, "another directory");
}

static void a_relative_path_becomes_absolute(void **state)
{
	char before[4096];
	struct store *store;

	assert_non_null(getcwd(before, sizeof before));
	assert_int_equal(chdir(*state), 0);
	assert_int_equal(store_open("here", 0, &store, NULL), 0);
	assert_int_equal(chdir(before), 0);
	assert_int_equal(store_dir(store)[0], '/');
	assert_int_equal(access(store_index_dir(store), W_OK), 0);
	store_close(store);
}

#define scratch_test(function)                                                                     \
	cmocka_unit_test_setup_teardown(function, scratch_make, scratch_remove)
#define disk_test(function)                                                                        \
	cmocka_unit_test_setup_teardown(function, scratch_make, unmount_and_remove)

int main(void)
{
	const struct CMUnitTest tests[] = {
		scratch_test(a_store_is_made_and_opened_again),
		scratch_test(an_empty_disk_with_lost_and_found_will_do),
		scratch_test(an_interrupted_making_is_finished),
		scratch_test(other_contents_are_refused_and_left_alone),
		scratch_test(files_below_raw_without_format_are_refused),
		scratch_test(another_format_is_refused),
		scratch_test(links_inside_are_not_followed),
		scratch_test(another_daemons_store_is_refused_with_its_pid),
		scratch_test(the_lock_also_holds_within_a_process),
		scratch_test(places_that_cannot_hold_a_store_are_refused),
		scratch_test(a_relative_path_becomes_absolute),
		disk_test(a_disk_without_room_is_refused_unchanged),
		disk_test(a_full_store_opens_again),
		disk_test(a_read_only_disk_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
