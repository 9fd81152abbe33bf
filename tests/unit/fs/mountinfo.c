#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fs/mountinfo.h"

static const char text[] =
	"21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
	"30 21 0:40 / /mnt/m ro shared:2 master:3 - fuse.cachefs s3://b/p ro,user_id=0\n"
	"31 21 0:40 /sub\\040dir /mnt/with\\040space\\011tab\\134 ro - fuse.cachefs s3://b/p ro\n"
	"32 21 0:41 / /mnt/m2 rw - tmpfs tmpfs rw\n"
	"33 32 0:42 / /mnt/m2 rw - fuse.cachefs file:///d rw\n"
	"34 33 0:43 / /mnt/m/over rw - tmpfs none rw\n"
	"nonsense\n"
	"35 21 x:y / /mnt/bad rw - tmpfs none rw\n"
	"36 21 0:44 / /mnt/nodash rw tmpfs none rw\n";

static void load_text(struct mountinfo *info)
{
	char *copy = strdup(text);

	assert_non_null(copy);
	assert_int_equal(mountinfo_parse(copy, info), 0);
}

static void lines(void **state)
{
	struct mountinfo info;

	(void)state;
	load_text(&info);
	assert_int_equal(info.count, 6);
	assert_string_equal(info.mounts[2].root, "/sub dir");
	assert_string_equal(info.mounts[2].mountpoint, "/mnt/with space\ttab\\");
	assert_string_equal(info.mounts[1].source, "s3://b/p");
	assert_int_equal(info.mounts[1].minor, 40);
	assert_true(mount_is_ours(&info.mounts[1]));
	assert_false(mount_is_ours(&info.mounts[0]));
	mountinfo_free(&info);
}

static void found(void **state)
{
	struct mountinfo info;

	(void)state;
	load_text(&info);
	assert_null(mountinfo_at(&info, "/mnt/none"));
	assert_int_equal(mountinfo_at(&info, "/mnt/m2")->minor, 42);
	assert_int_equal(mountinfo_above(&info, "/mnt/m/a/b")->minor, 40);
	assert_int_equal(mountinfo_above(&info, "/mnt/m")->minor, 40);
	assert_int_equal(mountinfo_above(&info, "/mnt/mm")->major, 8);
	assert_int_equal(mountinfo_above(&info, "/mnt/m/over/x")->minor, 43);
	assert_int_equal(mountinfo_above(&info, "/mnt/m2/x")->minor, 42);
	assert_string_equal(mountinfo_of(&info, 0, 40, true)->mountpoint, "/mnt/m");
	assert_null(mountinfo_of(&info, 0, 99, false));
	mountinfo_free(&info);
}

static void own(void **state)
{
	struct mountinfo info;

	(void)state;
	assert_int_equal(mountinfo_load(&info), 0);
	assert_non_null(mountinfo_above(&info, "/"));
	mountinfo_free(&info);
}

static void normal_paths(void **state)
{
	static const struct {
		const char *path, *normal;
	} cases[] = {
		{"/", "/"},
		{"//", "/"},
		{"/a", "/a"},
		{"/a/", "/a"},
		{"//a/./b//c/.", "/a/b/c"},
		{"/.../..a", "/.../..a"},
		{"a", NULL},
		{"", NULL},
		{"/a/..", NULL},
		{"/../a", NULL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char path[64];

		strcpy(path, cases[i].path);
		assert_int_equal(path_normalize(path), cases[i].normal ? 0 : -EINVAL);
		if (cases[i].normal)
			assert_string_equal(path, cases[i].normal);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines),
		cmocka_unit_test(found),
		cmocka_unit_test(own),
		cmocka_unit_test(normal_paths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
