/* When the successor of a dead daemon is started. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backoff.h"
#include "base/clock.h"

#define SHORT_NS (100 * NS_PER_MS)
#define GOOD_NS  (2 * NS_PER_SEC)

static void one_that_was_ready_comes_back_at_once(void **state)
{
	struct backoff backoff = {0};

	(void)state;
	for (int i = 0; i < 8; i++)
		assert_int_equal(backoff_after(&backoff, SHORT_NS), 0);
	for (int i = 0; i < 100; i++)
		assert_int_equal(backoff_after(&backoff, GOOD_NS), 0);
	for (int i = 0; i < 8; i++)
		assert_int_equal(backoff_after(&backoff, 1), 0);
}

static void again_and_again_is_slowed_down(void **state)
{
	struct backoff backoff = {.short_lives = 8};

	(void)state;
	assert_int_equal(backoff_after(&backoff, SHORT_NS), 50);
	assert_int_equal(backoff_after(&backoff, SHORT_NS), 100);
	for (int i = 0; i < 100; i++)
		assert_in_range(backoff_after(&backoff, SHORT_NS), 100, 1000);
	/* A pause of less than two seconds, as promised to readers. */
	assert_int_equal(backoff_after(&backoff, SHORT_NS), 1000);
	assert_int_equal(backoff_after(&backoff, GOOD_NS), 0);
	assert_int_equal(backoff_after(&backoff, SHORT_NS), 0);
}

static void a_failed_start_backs_off(void **state)
{
	static const uint64_t delays_ms[] = {0, 50, 100, 200, 400, 800, 1600, 3200, 5000, 5000};
	struct backoff backoff = {0};

	(void)state;
	for (size_t i = 0; i < sizeof delays_ms / sizeof delays_ms[0]; i++)
		assert_int_equal(backoff_after(&backoff, 0), delays_ms[i]);
	/* The next one got ready: that it was killed then has another reason. */
	assert_int_equal(backoff_after(&backoff, SHORT_NS), 0);
	assert_int_equal(backoff_after(&backoff, 0), 0);
	assert_int_equal(backoff_after(&backoff, 0), 50);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_that_was_ready_comes_back_at_once),
		cmocka_unit_test(again_and_again_is_slowed_down),
		cmocka_unit_test(a_failed_start_backs_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
