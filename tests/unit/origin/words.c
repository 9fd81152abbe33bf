#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "credentials/provider.h"
#include "credentials/words.h"

static void a_line_is_cut_as_by_a_shell(void **state)
{
	static const struct {
		const char *line, *words[5];
	} cases[] = {
		{"/bin/helper", {"/bin/helper"}},
		{"  a  b\tc ", {"a", "b", "c"}},
		{"'a b' \"c d\"e '' x", {"a b", "c de", "", "x"}},
		{"a\\ b \"\\\"\\x\" '\\'", {"a b", "\"\\x", "\\"}},
		{"$HOME `id` ;|", {"$HOME", "`id`", ";|"}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char **words;
		size_t n = 0;

		assert_int_equal(words_split(cases[i].line, &words), 0);
		for (; cases[i].words[n]; n++)
			assert_string_equal(words[n], cases[i].words[n]);
		assert_null(words[n]);
		free(words);
	}
}

static void lines_that_are_no_command(void **state)
{
	char many[4 * WORDS_MAX] = "", **words;

	(void)state;
	assert_int_equal(words_split("", &words), -EINVAL);
	assert_int_equal(words_split("   ", &words), -EINVAL);
	assert_int_equal(words_split("a 'b", &words), -EINVAL);
	assert_int_equal(words_split("a \"b\\\"", &words), -EINVAL);
	for (size_t i = 0; i < WORDS_MAX + 1; i++)
		strcat(many, "a ");
	assert_int_equal(words_split(many, &words), -E2BIG);
}

static void what_may_be_secret_is_not_shown(void **state)
{
	char out[64];

	(void)state;
	redact("no such user\nexample.com", out, sizeof out);
	assert_string_equal(out, "no such user example.com");
	redact("key=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY, sorry", out, sizeof out);
	assert_string_equal(out, "..., sorry");
	redact("a 0123456789012345678901234567890123456789", out, 4);
	assert_string_equal(out, "a .");
	redact("", out, sizeof out);
	assert_string_equal(out, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_line_is_cut_as_by_a_shell),
		cmocka_unit_test(lines_that_are_no_command),
		cmocka_unit_test(what_may_be_secret_is_not_shown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
