#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/pool.h"

struct waiter {
	struct pool_waiter base;
	struct pool_buffer *buffer;
};

static void got(struct pool_waiter *base, struct pool_buffer *buffer)
{
	container_of(base, struct waiter, base)->buffer = buffer;
}

static void fetches_leave_a_quarter_for_reads(void **state)
{
	struct pool_buffer *held[8];
	struct pool *pool;
	struct waiter waiter = {.base = {.use = POOL_FETCH, .got = got}};

	(void)state;
	assert_int_equal(pool_new(8, &pool), 0);
	for (int i = 0; i < 6; i++)
		assert_non_null(held[i] = pool_try_get(pool, POOL_FETCH));
	assert_null(pool_try_get(pool, POOL_FETCH));
	assert_non_null(held[6] = pool_try_get(pool, POOL_READ));
	pool_wait(pool, &waiter.base);
	assert_null(waiter.buffer);
	assert_true(pool_wanted(pool));
	pool_buffer_fetched(held[0]);
	assert_non_null(waiter.buffer);
	assert_false(pool_wanted(pool));
	for (int i = 0; i < 7; i++)
		pool_buffer_unref(held[i]);
	pool_buffer_unref(waiter.buffer);
	pool_free(pool);
}

static void waiters_are_served_in_order_and_can_leave(void **state)
{
	struct pool_buffer *held[8];
	struct pool *pool;
	struct waiter waiters[3] = {
		{.base = {.use = POOL_READ, .got = got}},
		{.base = {.use = POOL_READ, .got = got}},
		{.base = {.use = POOL_READ, .got = got}},
	};

	(void)state;
	assert_int_equal(pool_new(8, &pool), 0);
	for (int i = 0; i < 8; i++)
		assert_non_null(held[i] = pool_try_get(pool, POOL_READ));
	for (int i = 0; i < 3; i++)
		pool_wait(pool, &waiters[i].base);
	assert_true(pool_cancel(pool, &waiters[1].base));
	assert_false(pool_cancel(pool, &waiters[1].base));
	pool_buffer_unref(held[0]);
	assert_non_null(waiters[0].buffer);
	assert_null(waiters[2].buffer);
	pool_buffer_unref(held[1]);
	assert_non_null(waiters[2].buffer);
	pool_buffer_ref(held[2]);
	pool_buffer_unref(held[2]);
	for (int i = 2; i < 8; i++)
		pool_buffer_unref(held[i]);
	pool_buffer_unref(waiters[0].buffer);
	pool_buffer_unref(waiters[2].buffer);
	pool_free(pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fetches_leave_a_quarter_for_reads),
		cmocka_unit_test(waiters_are_served_in_order_and_can_leave),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
