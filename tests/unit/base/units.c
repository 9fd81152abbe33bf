#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/units.h"

static void sizes(void **state)
{
	static const struct {
		const char *text;
		int error;
		uint64_t bytes;
	} cases[] = {
		{"0", 0, 0},
		{"4096", 0, 4096},
		{"64K", 0, 65536},
		{"64k", 0, 65536},
		{"1.5TiB", 0, 1649267441664},
		{"500MB", 0, 500000000},
		{"8P", 0, 9007199254740992},
		{"9000P", -ERANGE, 0},
		{"", -EINVAL, 0},
		{"-1", -EINVAL, 0},
		{"1e3", -EINVAL, 0},
		{" 1", -EINVAL, 0},
		{"1X", -EINVAL, 0},
		{"1Gi", -EINVAL, 0},
		{".", -EINVAL, 0},
		{"nan", -EINVAL, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		uint64_t bytes = 0;

		assert_int_equal(parse_size(cases[i].text, &bytes), cases[i].error);
		assert_int_equal(bytes, cases[i].bytes);
	}
}

static void shares(void **state)
{
	uint64_t bytes = 0;

	(void)state;
	assert_int_equal(parse_size_of("80%", 1000, &bytes), 0);
	assert_int_equal(bytes, 800);
	assert_int_equal(parse_size_of("101%", 1000, &bytes), -ERANGE);
	assert_int_equal(parse_size_of("1K", 1000, &bytes), 0);
	assert_int_equal(bytes, 1024);
}

static void durations(void **state)
{
	uint64_t ms = 0;

	(void)state;
	assert_int_equal(parse_duration("90s", &ms), 0);
	assert_int_equal(ms, 90000);
	assert_int_equal(parse_duration("1.5h", &ms), 0);
	assert_int_equal(ms, 5400000);
	assert_int_equal(parse_duration("250ms", &ms), 0);
	assert_int_equal(ms, 250);
	assert_int_equal(parse_duration("7", &ms), 0);
	assert_int_equal(ms, 7000);
	assert_int_equal(parse_duration("7w", &ms), -EINVAL);
}

static void formats(void **state)
{
	char text[16];

	(void)state;
	assert_string_equal(format_size(512, text, sizeof text), "512 B");
	assert_string_equal(format_size(1536, text, sizeof text), "1.5 KiB");
	assert_string_equal(format_size(UINT64_MAX, text, sizeof text), "16384.0 PiB");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes),
		cmocka_unit_test(shares),
		cmocka_unit_test(durations),
		cmocka_unit_test(formats),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
