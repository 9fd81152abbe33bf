#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fs/options.h"

static void normal_form(void **state)
{
	static const struct {
		const char *text, *normal;
	} cases[] = {
		{NULL, ""},
		{"", ""},
		{",,ro,", ""},
		{"ro,defaults,_netdev,nofail,x-systemd.automount", ""},
		{"ttl=60s,umask=22,connections=32", ""},
		{"ttl=2m,region=eu-1,anonymous", "anonymous,region=eu-1,ttl=120000ms"},
		{"immutable", "immutable"},
		{"store=/s,size=1G", ""},
		{"strict,protect", "protect,strict"},
		{"endpoint=http://h/a\\,b", "endpoint=http://h/a\\,b"},
		{"subdir=//a/b/", "subdir=a/b"},
		{"umask=077,uid=7,gid=8", "gid=8,uid=7,umask=077"},
		{"readahead=0,bandwidth=1K", "bandwidth=1024,readahead=0"},
		{"credentials=/a=b", "credentials=/a=b"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct volume_options options, again;
		struct why why;
		char *normal, *twice;

		assert_int_equal(volume_options_parse(cases[i].text, &options, &why), 0);
		normal = volume_options_normal(&options);
		assert_string_equal(normal, cases[i].normal);
		assert_int_equal(volume_options_parse(normal, &again, &why), 0);
		twice = volume_options_normal(&again);
		assert_string_equal(twice, normal);
		free(normal);
		free(twice);
		volume_options_free(&options);
		volume_options_free(&again);
	}
}

static void values(void **state)
{
	struct volume_options options;

	(void)state;
	assert_int_equal(volume_options_parse(NULL, &options, NULL), 0);
	assert_int_equal(options.ttl_ms, 60000);
	assert_int_equal(options.negative_ttl_ms, 5000);
	assert_int_equal(options.timeout_ms, 300000);
	assert_int_equal(options.umask, 022);
	assert_int_equal(options.readahead_bytes, 4 << 20);
	assert_int_equal(options.allow_other, geteuid() == 0);
	volume_options_free(&options);

	assert_int_equal(
		volume_options_parse("immutable,store=/s,size=80%,ca=/x\\,y,uid=3", &options, NULL),
		0);
	assert_true(options.ttl_ms == UINT64_MAX);
	assert_string_equal(options.store, "/s");
	assert_string_equal(options.size, "80%");
	assert_string_equal(options.ca, "/x,y");
	assert_int_equal(options.uid, 3);
	volume_options_free(&options);
}

static void refused(void **state)
{
	static const struct {
		const char *text, *part_of_why;
	} cases[] = {
		{"tll=5", "tll is not known"},
		{"ttl", "needs a value"},
		{"ttl=", "needs a value"},
		{"ttl=soon", "ttl=soon: give a duration"},
		{"strict=1", "takes no value"},
		{"ro=1", "takes no value"},
		{"rw", "read-only in this version"},
		{"write=back", "read-only in this version"},
		{"quota=5G", "not available in this version"},
		{"umask=99", "octal mask"},
		{"uid=root", "numeric id"},
		{"uid=4294967295", "numeric id"},
		{"connections=0", "from 1 to 256"},
		{"connections=+5", "from 1 to 256"},
		{"readahead=-1", "give a size"},
		{"timeout=0", "timeout=0"},
		{"addressing=host", "auto, path or virtual"},
		{"subdir=/", "subdir="},
		{"subdir=a/../b", "subdir="},
		{"subdir=a//b", "subdir="},
		{"subdir=.", "subdir="},
		{"ttl=1,ttl=2", "given twice"},
		{"immutable,ttl=5s", "contradict"},
		{"strict,immutable", "contradict"},
		{"anonymous,credentials=/f", "contradict"},
		{"=5", "not known"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct volume_options options;
		struct why why = {""};

		assert_int_equal(volume_options_parse(cases[i].text, &options, &why), -22);
		if (!strstr(why.text, cases[i].part_of_why))
			fail_msg("%s: %s", cases[i].text, why.text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(normal_form),
		cmocka_unit_test(values),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
