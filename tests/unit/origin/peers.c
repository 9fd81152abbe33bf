/* What is usual for GETs, and what is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"

#include "peers.h"

#define MIB (1u << 20)

static void few_say_nothing(void **state)
{
	struct peers peers = {0};

	(void)state;
	for (int i = 0; i < PEERS_LEAST - 1; i++) {
		peers_part(&peers, 16 * MIB, NS_PER_SEC);
		peers_latency(&peers, NS_PER_MS);
	}
	assert_int_equal(peers_slow_rate(&peers), 0);
	assert_int_equal(peers_stall_ns(&peers), 15 * NS_PER_SEC);
	peers_part(&peers, MIB - 1, 1);
	assert_int_equal(peers_slow_rate(&peers), 0);
	peers_part(&peers, 16 * MIB, NS_PER_SEC);
	peers_latency(&peers, NS_PER_MS);
	assert_int_equal(peers_slow_rate(&peers), 8 * MIB);
	assert_int_equal(peers_stall_ns(&peers), 2 * NS_PER_SEC);
}

static void far_answers_are_waited_for(void **state)
{
	struct peers peers = {0};

	(void)state;
	for (int i = 0; i < PEERS_KEPT; i++)
		peers_latency(&peers, 500 * NS_PER_MS);
	assert_int_equal(peers_stall_ns(&peers), 4 * NS_PER_SEC);
	for (int i = 0; i < PEERS_KEPT; i++)
		peers_latency(&peers, 9 * NS_PER_SEC);
	assert_int_equal(peers_stall_ns(&peers), 15 * NS_PER_SEC);
}

static void the_slowest_of_a_hundred_is_still_usual(void **state)
{
	struct peers peers = {0};

	(void)state;
	for (int i = 0; i < PEERS_KEPT; i++)
		peers_part(&peers, 16 * MIB, i % 50 ? NS_PER_SEC : 4 * NS_PER_SEC);
	assert_int_equal(peers_slow_rate(&peers), 2 * MIB);
	/* old ones are forgotten */
	for (int i = 0; i < PEERS_KEPT; i++)
		peers_part(&peers, 16 * MIB, NS_PER_SEC / 2);
	assert_int_equal(peers_slow_rate(&peers), 16 * MIB);
}

static void a_twentieth_may_come_twice(void **state)
{
	struct peers peers = {0};
	uint64_t hedged = 0;

	(void)state;
	assert_false(peers_hedge(&peers, 1));
	for (int i = 0; i < 1000; i++) {
		peers_bytes(&peers, NS_PER_SEC, MIB);
		hedged += peers_hedge(&peers, 3 * MIB) ? 3 * MIB : 0;
	}
	assert_in_range(hedged, 45u * MIB, 50u * MIB);
	peers_hedge_back(&peers, 3 * MIB);
	assert_true(peers_hedge(&peers, 3 * MIB));
	/* A long quiet time saves up no more than so much. */
	for (int i = 0; i < 5000; i++)
		peers_bytes(&peers, NS_PER_SEC, MIB);
	assert_true(peers_hedge(&peers, 64 * MIB));
	assert_false(peers_hedge(&peers, MIB));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(few_say_nothing),
		cmocka_unit_test(far_answers_are_waited_for),
		cmocka_unit_test(the_slowest_of_a_hundred_is_still_usual),
		cmocka_unit_test(a_twentieth_may_come_twice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
