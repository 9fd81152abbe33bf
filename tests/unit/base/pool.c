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
	struct pool_share shares[8] = {{0}};
	struct pool *pool;
	struct waiter waiter = {.base = {.use = POOL_FETCH, .share = &shares[6], .got = got}};

	(void)state;
	assert_int_equal(pool_new(8, &pool), 0);
	for (int i = 0; i < 6; i++)
		assert_non_null(held[i] = pool_try_get(pool, POOL_FETCH, &shares[i]));
	assert_null(pool_try_get(pool, POOL_FETCH, &shares[6]));
	assert_false(pool_lacks_free(pool, POOL_FETCH, &shares[6]));
	assert_non_null(held[6] = pool_try_get(pool, POOL_READ, NULL));
	pool_wait(pool, &waiter.base);
	assert_null(waiter.buffer);
	/* A free buffer would not do. */
	assert_false(pool_wanted(pool));
	pool_buffer_fetched(held[0]);
	assert_non_null(waiter.buffer);
	for (int i = 0; i < 7; i++)
		pool_buffer_unref(held[i]);
	pool_buffer_unref(waiter.buffer);
	pool_free(pool);
}

/* One that keeps what it has: it gets half, the next half of the rest, and who has none gets one. */
static void a_share_leaves_as_much_as_it_holds(void **state)
{
	struct pool_share greedy = {0}, second = {0}, third = {0}, late = {0};
	struct pool_buffer *held[24], *own;
	struct pool *pool;
	struct waiter waiters[3] = {{.base = {.use = POOL_FETCH, .share = &greedy, .got = got}},
		{.base = {.use = POOL_FETCH, .share = &greedy, .got = got}},
		{.base = {.use = POOL_FETCH, .share = &late, .got = got}}};
	size_t n = 0;

	(void)state;
	assert_int_equal(pool_new(32, &pool), 0); /* 24 for fetches */
	while ((held[n] = pool_try_get(pool, POOL_FETCH, &greedy)))
		n++;
	assert_int_equal(n, 12);
	pool_wait(pool, &waiters[0].base);
	pool_wait(pool, &waiters[1].base);
	/* Who waits for its own limit keeps nobody waiting. */
	while ((held[n] = pool_try_get(pool, POOL_FETCH, &second)))
		n++;
	assert_int_equal(n, 18);
	while ((held[n] = pool_try_get(pool, POOL_FETCH, &third)))
		n++;
	assert_int_equal(n, 21);
	assert_false(pool_wanted(pool));
	assert_non_null(own = pool_try_get(pool, POOL_FETCH, &late));
	pool_wait(pool, &waiters[2].base);
	/* Its turn comes though others came first. */
	assert_non_null(waiters[2].buffer);
	pool_buffer_unref(own);
	assert_null(waiters[0].buffer);
	assert_null(waiters[1].buffer);
	/* And theirs when they hold less. */
	pool_buffer_fetched(held[0]);
	for (size_t i = 1; i < 9; i++)
		pool_buffer_unref(held[i]);
	assert_non_null(waiters[0].buffer);
	assert_non_null(waiters[1].buffer);
	pool_buffer_unref(held[0]);
	for (size_t i = 9; i < n; i++)
		pool_buffer_unref(held[i]);
	for (int i = 0; i < 3; i++)
		pool_buffer_unref(waiters[i].buffer);
	assert_int_equal(greedy.held + second.held + third.held + late.held, 0);
	assert_int_equal(greedy.waiting + late.waiting, 0);
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
		assert_non_null(held[i] = pool_try_get(pool, POOL_READ, NULL));
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
		cmocka_unit_test(a_share_leaves_as_much_as_it_holds),
		cmocka_unit_test(waiters_are_served_in_order_and_can_leave),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
