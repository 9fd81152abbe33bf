#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "credentials/ini.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(settings),
		cmocka_unit_test(wrong_lines_are_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
