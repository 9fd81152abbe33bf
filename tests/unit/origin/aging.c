/* Whether connections become slow, told by what GETs take. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"

#include "aging.h"

#define MS NS_PER_MS

/* GETs, each taking so long for a MiB by its connection; a used one is there from the second on.
 * Returns how many had fresh ones. */
static unsigned run(struct aging *aging, unsigned n, uint64_t fresh_ns, uint64_t used_ns)
{
	unsigned n_fresh = 0;

	for (unsigned i = 0; i < n; i++) {
		bool fresh = aging_next(aging);

		aging_part(aging, fresh, fresh ? fresh_ns : used_ns);
		n_fresh += fresh;
	}
	return n_fresh;
}

static void what_is_fast_is_left_alone(void **state)
{
	struct aging aging = {0};

	(void)state;
	assert_false(aging_is_known(&aging));
	/* The first ones of an origin. */
	for (unsigned i = 0; i < 16; i++)
		aging_part(&aging, true, 10 * MS);
	assert_false(aging_is_known(&aging));
	assert_int_equal(run(&aging, 1000, 10 * MS, 100 * MS), 0);
	assert_true(aging_is_known(&aging));
	assert_false(aging.fresh);
}

static void what_becomes_slow_is_not_used_again(void **state)
{
	struct aging aging = {0};

	(void)state;
	assert_true(run(&aging, 100, 250 * MS, 900 * MS) > 50);
	assert_true(aging.fresh);
	/* Used ones are tried now and then. */
	assert_in_range(run(&aging, 160, 250 * MS, 900 * MS), 149, 151);
	/* A difference within the noise changes nothing. */
	for (unsigned i = 0; i < 100; i++) {
		run(&aging, 1, 250 * MS, 900 * MS);
		run(&aging, 1, 350 * MS, 800 * MS);
		assert_true(aging.fresh);
	}
}

static void a_way_that_gets_better_is_noticed(void **state)
{
	struct aging aging = {0};

	(void)state;
	run(&aging, 100, 250 * MS, 900 * MS);
	assert_true(aging.fresh);
	run(&aging, 400, 250 * MS, 60 * MS);
	assert_false(aging.fresh);
	assert_int_equal(run(&aging, 100, 250 * MS, 60 * MS), 0);
}

/* A narrow link: new connections are no better, and cost. */
static void slow_for_all_is_no_age(void **state)
{
	struct aging aging = {0};

	(void)state;
	assert_in_range(run(&aging, 1600, 1300 * MS, 1300 * MS), 90, 101);
	assert_false(aging.fresh);
	run(&aging, 1600, 1100 * MS, 1300 * MS);
	assert_false(aging.fresh);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_fast_is_left_alone),
		cmocka_unit_test(what_becomes_slow_is_not_used_again),
		cmocka_unit_test(a_way_that_gets_better_is_noticed),
		cmocka_unit_test(slow_for_all_is_no_age),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
