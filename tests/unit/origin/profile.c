#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "s3/credentials.h"
#include "s3/profile.h"

static void settings(void **state)
{
	static const char text[] = "# comment\r\n"
				   "[default]\r\n"
				   "region = us-west-2 # here\r\n"
				   "\n"
				   "  continued = yes\n"
				   "[profile  ml ]\n"
				   "aws_access_key_id=AK=1\n"
				   "s3 =\n"
				   "  endpoint_url = http://nested\n"
				   "region=a\n"
				   "region=b\n"
				   "; end";
	struct ini *ini;
	unsigned line;

	(void)state;
	assert_int_equal(ini_parse(text, &ini, &line), 0);
	assert_string_equal(ini_get(ini, "default", "region"), "us-west-2");
	assert_string_equal(ini_get(ini, "profile  ml", "aws_access_key_id"), "AK=1");
	assert_string_equal(ini_get(ini, "profile  ml", "region"), "b");
	assert_null(ini_get(ini, "profile  ml", "endpoint_url"));
	assert_null(ini_get(ini, "other", "region"));
	assert_true(ini_has_section(ini, "default"));
	assert_false(ini_has_section(ini, "other"));
	ini_free(ini);
}

static void wrong_lines_are_named(void **state)
{
	static const struct {
		const char *text;
		unsigned line;
	} cases[] = {{"a = b\n", 1}, {"[x]\n\nnonsense\n", 3}, {"[x\n", 1}, {"[x]\n= v\n", 2}};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct ini *ini;
		unsigned line = 0;

		assert_int_equal(ini_parse(cases[i].text, &ini, &line), -EINVAL);
		assert_int_equal(line, cases[i].line);
	}
}

static void write_file(const char *path, const char *text, long mtime_s)
{
	struct timespec times[2] = {{.tv_sec = mtime_s}, {.tv_sec = mtime_s}};
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void clear_environment(void)
{
	static const char *const names[] = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
		"AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE",
		"AWS_CONFIG_FILE"};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		unsetenv(names[i]);
}

static void a_file_is_read_again_when_it_changes(void **state)
{
	char dir[] = "/tmp/test-origin-XXXXXX", path[64];
	struct origin_config config = {.credentials = path};
	struct credentials credentials;
	struct chain *chain;
	struct why why;
	char *identity;

	(void)state;
	clear_environment();
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/keys", dir);
	write_file(path,
		"[default]\naws_access_key_id=A\naws_secret_access_key=S\n"
		"aws_session_token=T\n",
		1000);
	assert_int_equal(chain_new(&config, &chain, &why), 0);
	assert_int_equal(chain_get(chain, false, &credentials), 0);
	assert_string_equal(credentials.key_id, "A");
	assert_string_equal(credentials.token, "T");
	write_file(path, "[default]\naws_access_key_id=B\n", 2000);
	assert_int_equal(chain_get(chain, true, &credentials), 0);
	assert_string_equal(credentials.key_id, "A");
	write_file(path, "[default]\naws_access_key_id=B\naws_secret_access_key=S2\n", 3000);
	assert_int_equal(chain_get(chain, true, &credentials), 0);
	assert_string_equal(credentials.key_id, "B");
	assert_string_equal(credentials.token, "");
	identity = chain_identity(chain);
	assert_non_null(strstr(identity, ":default"));
	free(identity);
	chain_free(chain);
	unlink(path);
	rmdir(dir);
}

static void expect_refused(const struct origin_config *config, int error, const char *part)
{
	struct chain *chain = NULL;
	struct why why = {""};

	assert_int_equal(chain_new(config, &chain, &why), error);
	assert_non_null(strstr(why.text, part));
	assert_null(strstr(why.text, "TOPSECRET"));
}

static void refusals(void **state)
{
	char dir[] = "/tmp/test-origin-XXXXXX", path[64];
	struct origin_config config = {0};

	(void)state;
	clear_environment();
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/keys", dir);
	setenv("AWS_SHARED_CREDENTIALS_FILE", path, 1);
	setenv("AWS_CONFIG_FILE", path, 1);
	expect_refused(&config, -ENOENT, "AWS_ACCESS_KEY_ID");
	config.aws_profile = "ml";
	expect_refused(&config, -ENOENT, "\"ml\" does not exist");
	write_file(path, "[ml]\naws_secret_access_key=TOPSECRET\n", 1000);
	expect_refused(&config, -EINVAL, "only one of");
	write_file(path, "[ml]\nTOPSECRET\n", 1000);
	expect_refused(&config, -EINVAL, "line 2");
	config = (struct origin_config){.credentials = "/does/not/exist"};
	expect_refused(&config, -ENOENT, "/does/not/exist");
	config = (struct origin_config){0};
	setenv("AWS_ACCESS_KEY_ID", "A", 1);
	expect_refused(&config, -EINVAL, "AWS_SECRET_ACCESS_KEY");
	clear_environment();
	unlink(path);
	rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(settings),
		cmocka_unit_test(wrong_lines_are_named),
		cmocka_unit_test(a_file_is_read_again_when_it_changes),
		cmocka_unit_test(refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
