/* How many GETs run, over simulated links: rates and refusals as functions of that number. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"

#include "adapt.h"

#define STEP_NS (10 * NS_PER_MS)
#define MBIT    (1e6 / 8)

struct link {
	double rate;       /* bytes/s of the link */
	double connection; /* bytes/s of one connection */
	unsigned most;     /* the server refuses more; 0: never */
	uint64_t latency_ns;
	uint64_t now_ns;
	unsigned noise; /* state of the noise */
};

static double min(double a, double b)
{
	return a < b ? a : b;
}

/* Within 2 percent of 1, always the same sequence. */
static double noise(struct link *link)
{
	link->noise = link->noise * 1103515245u + 12345u;
	return 0.98 + 0.04 * (double)(link->noise >> 16 & 1023) / 1023;
}

static void begin(struct link *link)
{
	link->now_ns = NS_PER_SEC;
	link->noise = 1;
}

/* A step of the link with `gets` of this origin and `others` on it. Returns the bytes. */
static double step(struct link *link, struct adapt *adapt, unsigned others, bool held)
{
	unsigned gets = adapt->limit;
	double share = min(gets * link->connection, link->rate * gets / (gets + others));
	double bytes = share * STEP_NS / NS_PER_SEC * noise(link);

	link->now_ns += STEP_NS;
	adapt_latency(adapt, link->latency_ns);
	if (link->most && gets > link->most)
		adapt_refused(adapt, link->now_ns);
	adapt_bytes(adapt, link->now_ns, (uint64_t)bytes, held);
	return bytes;
}

/* Returns bytes/s. */
static double run(struct link *link, struct adapt *adapt, double seconds)
{
	double bytes = 0;
	uint64_t end_ns = link->now_ns + (uint64_t)(seconds * NS_PER_SEC);

	while (link->now_ns < end_ns)
		bytes += step(link, adapt, 0, true);
	return bytes / seconds;
}

static void a_long_fat_link_is_filled(void **state)
{
	/* 50 ms, and a window of 3 MB for each connection */
	struct link link = {
		.rate = 2500 * MBIT, .connection = 60e6 / 4, .latency_ns = 100 * NS_PER_MS};
	struct adapt adapt;

	(void)state;
	begin(&link);
	adapt_init(&adapt, 2, 64);
	run(&link, &adapt, 10);
	assert_in_range(adapt.limit, 20, 64);
	assert_true(run(&link, &adapt, 60) > 0.97 * link.rate);
	assert_in_range(adapt.limit, 19, 40);
}

/* It takes no trials to find that out, which are long there; a near one begins with half. */
static void a_far_origin_is_asked_with_all_at_once(void **state)
{
	struct adapt far, near;

	(void)state;
	adapt_init(&far, 4, 16);
	adapt_init(&near, 4, 16);
	assert_true(adapt_latency(&far, ADAPT_FAR_NS));
	assert_int_equal(far.limit, 16);
	assert_false(adapt_latency(&far, 2 * ADAPT_FAR_NS));
	assert_false(adapt_latency(&near, ADAPT_FAR_NS - 1));
	assert_int_equal(near.limit, 8);
	/* One that refuses has said what it wants. */
	assert_true(adapt_refused(&far, NS_PER_SEC));
	assert_int_equal(far.limit, 8);
	assert_false(adapt_latency(&far, ADAPT_FAR_NS));
	assert_int_equal(far.limit, 8);
}

static void more_than_helps_is_given_up(void **state)
{
	struct link link = {.rate = 1000 * MBIT, .connection = 1e9, .latency_ns = NS_PER_MS};
	struct adapt adapt;

	(void)state;
	begin(&link);
	adapt_init(&adapt, 2, 32);
	assert_true(run(&link, &adapt, 60) > 0.97 * link.rate);
	assert_in_range(adapt.limit, 2, 8);
}

static void a_faster_link_is_noticed(void **state)
{
	struct link link = {.rate = 100 * MBIT, .connection = 10e6, .latency_ns = 10 * NS_PER_MS};
	struct adapt adapt;

	(void)state;
	begin(&link);
	adapt_init(&adapt, 2, 32);
	run(&link, &adapt, 60);
	assert_in_range(adapt.limit, 2, 5);
	link.rate = 1000 * MBIT;
	run(&link, &adapt, 30);
	assert_true(run(&link, &adapt, 10) > 0.95 * link.rate);
}

static void a_server_that_refuses_is_asked_for_less(void **state)
{
	struct link link = {.rate = 1e10, .connection = 10e6, .most = 10, .latency_ns = NS_PER_MS};
	struct adapt adapt;
	unsigned refusals = 0;

	(void)state;
	begin(&link);
	adapt_init(&adapt, 2, 32);
	run(&link, &adapt, 20);
	for (int i = 0; i < 3000; i++) {
		step(&link, &adapt, 0, true);
		refusals += adapt.limit > link.most;
		assert_in_range(adapt.limit, 2, 13);
	}
	/* now and then it asks whether more is possible */
	assert_in_range(refusals, 0, 300);
	assert_true(run(&link, &adapt, 30) > 0.7 * 10 * link.connection);
}

static void one_refusal_of_many_counts_once(void **state)
{
	struct adapt adapt;

	(void)state;
	adapt_init(&adapt, 2, 32);
	assert_int_equal(adapt.limit, 16);
	assert_true(adapt_refused(&adapt, NS_PER_SEC));
	assert_int_equal(adapt.limit, 8);
	assert_false(adapt_refused(&adapt, NS_PER_SEC + NS_PER_MS));
	assert_int_equal(adapt.limit, 8);
	for (uint64_t second = 3; second < 20; second++)
		adapt_refused(&adapt, second * NS_PER_SEC);
	assert_int_equal(adapt.limit, 2);
}

static void one_connection_is_one(void **state)
{
	struct link link = {.rate = 1e9, .connection = 1e8, .most = 1, .latency_ns = NS_PER_MS};
	struct adapt adapt;

	(void)state;
	begin(&link);
	adapt_init(&adapt, 1, 1);
	run(&link, &adapt, 10);
	assert_int_equal(adapt.limit, 1);
	adapt_refused(&adapt, link.now_ns);
	assert_int_equal(adapt.limit, 1);
}

/* While nothing waits for a place, rates say nothing about the number of places. */
static void an_idle_limit_stays(void **state)
{
	struct link link = {.rate = 1e9, .connection = 1e7, .latency_ns = NS_PER_MS};
	struct adapt adapt;

	(void)state;
	begin(&link);
	adapt_init(&adapt, 2, 32);
	for (int i = 0; i < 1000; i++)
		step(&link, &adapt, 0, false);
	assert_int_equal(adapt.limit, 16);
}

static void two_origins_share(void **state)
{
	struct link left = {.rate = 2500 * MBIT, .connection = 20e6, .latency_ns = NS_PER_MS};
	struct link right = left;
	struct adapt a, b;
	double got_a = 0, got_b = 0;

	(void)state;
	begin(&left);
	begin(&right);
	right.noise = 77;
	adapt_init(&a, 2, 32);
	adapt_init(&b, 2, 32);
	/* one begins long before the other, which then starts at its least */
	run(&left, &a, 20);
	right.now_ns = left.now_ns;
	adapt_refused(&b, right.now_ns);
	for (int i = 0; i < 12000; i++) {
		unsigned others = b.limit;
		double bytes_a = step(&left, &a, others, true);
		double bytes_b = step(&right, &b, a.limit, true);

		if (i >= 4000) {
			got_a += bytes_a;
			got_b += bytes_b;
		}
	}
	assert_true(got_a > 0.3 * (got_a + got_b));
	assert_true(got_b > 0.3 * (got_a + got_b));
}

static void saturation_is_known(void **state)
{
	struct link link = {.rate = 100 * MBIT, .connection = 1e9, .latency_ns = NS_PER_MS};
	struct adapt adapt;

	(void)state;
	begin(&link);
	adapt_init(&adapt, 2, 32);
	assert_false(adapt_saturated(&adapt, link.now_ns));
	run(&link, &adapt, 5);
	assert_true(adapt_saturated(&adapt, link.now_ns));
	link.rate /= 2;
	run(&link, &adapt, 0.2);
	assert_false(adapt_saturated(&adapt, link.now_ns));
	/* nothing comes at all */
	assert_false(adapt_saturated(&adapt, link.now_ns + NS_PER_SEC));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_long_fat_link_is_filled),
		cmocka_unit_test(a_far_origin_is_asked_with_all_at_once),
		cmocka_unit_test(more_than_helps_is_given_up),
		cmocka_unit_test(a_faster_link_is_noticed),
		cmocka_unit_test(a_server_that_refuses_is_asked_for_less),
		cmocka_unit_test(one_refusal_of_many_counts_once),
		cmocka_unit_test(one_connection_is_one),
		cmocka_unit_test(an_idle_limit_stays),
		cmocka_unit_test(two_origins_share),
		cmocka_unit_test(saturation_is_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
