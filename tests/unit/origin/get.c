/* Range GETs against a scripted server: what is tried again, where it goes on, what is refused. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"

#include "script.h"
#include "wait.h"

#define OK_HEAD(length, range)                                                                     \
	"HTTP/1.1 206 Partial Content\r\nETag: \"v1\"\r\nContent-Length: " length "\r\n"           \
	"Content-Range: bytes " range "\r\n\r\n"

struct fixture {
	struct origin_engine *engine;
	struct script *script;
	struct origin *origin;
	struct wait_get *wait;
};

static void open_script(struct fixture *fixture, const struct script_step *steps, size_t n)
{
	char source[64];
	struct origin_config config = {.source = source, .timeout_ms = 20000};

	fixture->script = script_start(steps, n);
	snprintf(source, sizeof source, "http://127.0.0.1:%u/d/", script_port(fixture->script));
	assert_int_equal(origin_engine_new(&fixture->engine), 0);
	assert_int_equal(origin_open(fixture->engine, &config, &fixture->origin, NULL), 0);
	fixture->wait = calloc(1, sizeof *fixture->wait);
	fixture->wait->get = (struct origin_get){.origin = fixture->origin,
		.path = "f",
		.offset = 10,
		.length = 10,
		.version = {.text = "\"v1\"", .strong = true},
		.size_bytes = 30};
}

static void close_script(struct fixture *fixture)
{
	origin_unref(fixture->origin);
	origin_engine_free(fixture->engine);
	script_stop(fixture->script);
	free(fixture->wait);
}

static int run(struct fixture *fixture, const struct script_step *steps, size_t n)
{
	open_script(fixture, steps, n);
	return wait_get(fixture->wait);
}

#define RUN(fixture, steps) run(fixture, steps, sizeof(steps) / sizeof((steps)[0]))

static void expect_bytes(const struct fixture *fixture, const char *bytes)
{
	assert_int_equal(fixture->wait->size, strlen(bytes));
	assert_memory_equal(fixture->wait->bytes, bytes, strlen(bytes));
}

static void a_failure_that_passes_is_tried_again(void **state)
{
	static const struct script_step steps[] = {
		{"GET /d/f ", "HTTP/1.1 503 Slow\r\nContent-Length: 11\r\n\r\nerror text!"},
		{"GET /d/f ", NULL},
		{"GET /d/f ", OK_HEAD("10", "10-19/30") "0123456789"},
	};
	struct fixture fixture;
	struct origin_stats stats;

	(void)state;
	assert_int_equal(RUN(&fixture, steps), 0);
	expect_bytes(&fixture, "0123456789");
	assert_int_equal(script_requests(fixture.script), 3);
	assert_non_null(strstr(script_request(fixture.script, 0), "\r\nRange: bytes=10-19\r\n"));
	assert_non_null(strstr(script_request(fixture.script, 0), "\r\nIf-Match: \"v1\"\r\n"));
	assert_non_null(
		strstr(script_request(fixture.script, 0), "\r\nAccept-Encoding: identity\r\n"));
	origin_stats(fixture.origin, &stats);
	assert_int_equal(stats.gets[ORIGIN_OK], 1);
	assert_int_equal(stats.gets[ORIGIN_THROTTLED], 1);
	assert_int_equal(stats.gets[ORIGIN_NETWORK_ERROR], 1);
	assert_int_equal(stats.retries, 2);
	assert_int_equal(stats.in_flight, 0);
	assert_true(stats.reachable);
	close_script(&fixture);
}

static void a_cut_body_goes_on_where_it_broke(void **state)
{
	static const char head[] = OK_HEAD("10", "10-19/30");
	static const struct script_step steps[] = {
		{"GET", OK_HEAD("10", "10-19/30") "0123456789", .cut = sizeof head - 1 + 4},
		{"GET", OK_HEAD("6", "14-19/30") "456789"},
	};
	struct fixture fixture;

	(void)state;
	assert_int_equal(RUN(&fixture, steps), 0);
	expect_bytes(&fixture, "0123456789");
	assert_non_null(strstr(script_request(fixture.script, 1), "\r\nRange: bytes=14-19\r\n"));
	assert_non_null(strstr(script_request(fixture.script, 1), "\r\nIf-Match: \"v1\"\r\n"));
	close_script(&fixture);
}

/* Pieces that are worth a try each: were the pauses to grow all the same, the time would be up long
 * before the last. */
static void cuts_after_good_pieces_cost_no_time(void **state)
{
	enum { PIECES = 14, PIECE = 70000, SIZE = PIECES * PIECE };
	static char heads[PIECES][256];
	struct script_step steps[PIECES];
	struct fixture fixture;

	(void)state;
	for (int i = 0; i < PIECES; i++) {
		snprintf(heads[i], sizeof heads[i],
			"HTTP/1.1 206 Partial Content\r\nETag: \"v1\"\r\nContent-Length: %d\r\n"
			"Content-Range: bytes %d-%d/%d\r\n\r\n",
			SIZE - i * PIECE, i * PIECE, SIZE - 1, SIZE);
		steps[i] = (struct script_step){"GET", heads[i], .zeros = PIECE};
	}
	open_script(&fixture, steps, PIECES);
	fixture.wait->get.offset = 0;
	fixture.wait->get.length = fixture.wait->get.size_bytes = SIZE;
	assert_int_equal(wait_get(fixture.wait), 0);
	assert_int_equal(fixture.wait->size, SIZE);
	assert_int_equal(script_requests(fixture.script), PIECES);
	close_script(&fixture);
}

static void a_change_in_the_middle_is_stale(void **state)
{
	static const char head[] = OK_HEAD("10", "10-19/30");
	static const struct script_step steps[] = {
		{"GET", OK_HEAD("10", "10-19/30") "0123456789", .cut = sizeof head - 1 + 4},
		{"GET", "HTTP/1.1 206 P\r\nETag: \"v2\"\r\nContent-Length: 6\r\n"
			"Content-Range: bytes 14-19/30\r\n\r\nxxxxxx"},
	};
	struct fixture fixture;

	(void)state;
	assert_int_equal(RUN(&fixture, steps), -ESTALE);
	expect_bytes(&fixture, "0123");
	close_script(&fixture);
}

static void final_answers(void **state)
{
	static const struct {
		const char *answer;
		int error;
	} cases[] = {
		{"HTTP/1.1 412 Precondition Failed\r\nContent-Length: 3\r\n\r\nbad", -ESTALE},
		{"HTTP/1.1 416 Range\r\nContent-Range: bytes */5\r\nContent-Length: 0\r\n\r\n",
			-ESTALE},
		{"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", -ENOENT},
		{"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", -EACCES},
		{"HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n", -EIO},
		{"HTTP/1.1 206 P\r\nETag: \"v2\"\r\nContent-Length: 10\r\n"
		 "Content-Range: bytes 10-19/30\r\n\r\nxxxxxxxxxx",
			-ESTALE},
		{"HTTP/1.1 206 P\r\nETag: \"v2\"\r\nContent-Length: 5\r\n"
		 "Content-Range: bytes 10-14/15\r\n\r\nxxxxx",
			-ESTALE},
		{"HTTP/1.1 200 OK\r\nETag: \"v2\"\r\nContent-Length: 5\r\n\r\nxxxxx", -ESTALE},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct script_step step = {"GET", cases[i].answer};
		struct fixture fixture;

		assert_int_equal(run(&fixture, &step, 1), cases[i].error);
		expect_bytes(&fixture, "");
		assert_int_equal(script_requests(fixture.script), 1);
		close_script(&fixture);
	}
}

static void answers_that_cannot_be_right_are_tried_again(void **state)
{
	static const char *const cases[] = {
		OK_HEAD("10", "0-9/30") "xxxxxxxxxx",
		OK_HEAD("10", "10-18/30") "xxxxxxxxxx",
		OK_HEAD("9", "10-19/30") "xxxxxxxxx",
		OK_HEAD("10", "10-19/31") "xxxxxxxxxx",
		OK_HEAD("5", "10-14/15") "xxxxx",
		"HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nContent-Length: 31\r\n\r\n"
		"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
		"HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nContent-Length: 12\r\n\r\nxxxxxxxxxxxx",
		/* Packed on the way: no part of it is the object's. */
		"HTTP/1.1 206 P\r\nETag: \"v1\"\r\nContent-Encoding: gzip\r\n"
		"Transfer-Encoding: chunked\r\nContent-Range: bytes 10-19/30\r\n\r\n"
		"5\r\nxxxxx\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nContent-Encoding: gzip\r\n"
		"Transfer-Encoding: chunked\r\n\r\n5\r\nxxxxx\r\n0\r\n\r\n",
		"HTTP/1.1 206 P\r\nETag: \"v1\"\r\nContent-Length: 10\r\n\r\nxxxxxxxxxx",
		"HTTP/1.1 206 P\r\nContent-Length: 10\r\nContent-Range: bytes 10-19/30\r\n\r\n"
		"xxxxxxxxxx",
		"HTTP/1.1 204 None\r\nETag: \"v1\"\r\n\r\n",
		"HTTP/1.1 206 P\r\nETag: \"v1\"\r\nTransfer-Encoding: chunked\r\n"
		"Content-Range: bytes 10-19/30\r\n\r\nb\r\nxxxxxxxxxxx\r\n0\r\n\r\n",
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct script_step steps[] = {
			{"GET", cases[i]},
			{"GET", OK_HEAD("10", "10-19/30") "0123456789"},
		};
		struct fixture fixture;

		assert_int_equal(RUN(&fixture, steps), 0);
		expect_bytes(&fixture, "0123456789");
		assert_int_equal(script_requests(fixture.script), 2);
		close_script(&fixture);
	}
}

static void a_server_without_ranges_is_skipped_through(void **state)
{
	static const struct script_step steps[] = {
		{"GET", "HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nContent-Length: 30\r\n\r\n"
			"xxxxxxxxxx0123456789yyyyyyyyyy"},
	};
	struct fixture fixture;

	(void)state;
	assert_int_equal(RUN(&fixture, steps), 0);
	expect_bytes(&fixture, "0123456789");
	close_script(&fixture);
}

static void a_long_object_without_ranges_is_refused(void **state)
{
	static const struct script_step steps[] = {
		{"GET", "HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nContent-Length: "
			"100000000\r\n\r\nxxxxx"},
	};
	struct fixture fixture;

	(void)state;
	open_script(&fixture, steps, 1);
	fixture.wait->get.size_bytes = 100000000;
	assert_int_equal(wait_get(fixture.wait), -EIO);
	expect_bytes(&fixture, "");
	assert_int_equal(script_requests(fixture.script), 1);
	close_script(&fixture);
}

/* A server that knows no ETag, and not the size of what it sends a part of. */
static void a_range_of_an_unknown_total(void **state)
{
	static const struct script_step steps[] = {
		{"GET", "HTTP/1.1 206 P\r\nLast-Modified: Thu, 01 Jan 1970 00:00:10 GMT\r\n"
			"Content-Length: 10\r\nContent-Range: bytes 10-19/*\r\n\r\n0123456789"},
	};
	struct fixture fixture;

	(void)state;
	open_script(&fixture, steps, 1);
	fixture.wait->get.version = (struct origin_version){.text = "modified-10-30"};
	assert_int_equal(wait_get(fixture.wait), 0);
	expect_bytes(&fixture, "0123456789");
	close_script(&fixture);
}

static void a_pause_repeats_what_was_not_taken(void **state)
{
	static const struct script_step steps[] = {
		{"GET", OK_HEAD("300010", "10-300019/400000") "0123456789", .zeros = 300000},
	};
	struct fixture fixture;

	(void)state;
	open_script(&fixture, steps, 1);
	fixture.wait->get.length = 300010;
	fixture.wait->get.size_bytes = 400000;
	fixture.wait->pause_at = 7;
	wait_get_start(fixture.wait);
	sem_wait(&fixture.wait->paused);
	assert_int_equal(fixture.wait->size, 7);
	origin_get_resume(&fixture.wait->get);
	assert_int_equal(wait_get_done(fixture.wait), 0);
	assert_int_equal(fixture.wait->size, 300010);
	assert_memory_equal(fixture.wait->bytes, "0123456789\0\0", 12);
	assert_int_equal(fixture.wait->bytes[300009], 0);
	close_script(&fixture);
}

static void a_paused_get_can_be_cancelled(void **state)
{
	static const struct script_step steps[] = {
		{"GET", OK_HEAD("10", "10-19/30") "0123456789"},
	};
	struct fixture fixture;

	(void)state;
	open_script(&fixture, steps, 1);
	fixture.wait->pause_at = 3;
	wait_get_start(fixture.wait);
	sem_wait(&fixture.wait->paused);
	origin_get_cancel(&fixture.wait->get);
	assert_int_equal(wait_get_done(fixture.wait), -ECANCELED);
	expect_bytes(&fixture, "012");
	close_script(&fixture);
}

static void a_waiting_get_can_be_cancelled(void **state)
{
	static const struct script_step steps[] = {
		{"GET", "HTTP/1.1 503 Slow\r\nRetry-After: 15\r\nContent-Length: 0\r\n\r\n"},
	};
	struct fixture fixture;

	(void)state;
	open_script(&fixture, steps, 1);
	wait_get_start(fixture.wait);
	while (script_requests(fixture.script) < 1)
		sched_yield();
	origin_get_cancel(&fixture.wait->get);
	assert_int_equal(wait_get_done(fixture.wait), -ECANCELED);
	assert_int_equal(script_requests(fixture.script), 1);
	close_script(&fixture);
}

static void a_shut_origin_waits_for_nothing(void **state)
{
	static const struct script_step steps[] = {
		{"GET", "HTTP/1.1 503 Slow\r\nRetry-After: 15\r\nContent-Length: 0\r\n\r\n"},
	};
	struct fixture fixture;

	(void)state;
	open_script(&fixture, steps, 1);
	wait_get_start(fixture.wait);
	while (script_requests(fixture.script) < 1)
		sched_yield();
	origin_shutdown(fixture.origin);
	assert_int_equal(wait_get_done(fixture.wait), -ECANCELED);
	assert_int_equal(wait_get(fixture.wait), -ECANCELED);
	assert_int_equal(script_requests(fixture.script), 1);
	close_script(&fixture);
}

static void retry_after_is_honoured(void **state)
{
	static const struct script_step steps[] = {
		{"GET", "HTTP/1.1 503 Slow\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"},
		{"GET", OK_HEAD("10", "10-19/30") "0123456789"},
	};
	struct fixture fixture;
	uint64_t start_ns = clock_now_ns();

	(void)state;
	assert_int_equal(RUN(&fixture, steps), 0);
	assert_true(clock_now_ns() - start_ns >= NS_PER_SEC);
	close_script(&fixture);
}

/* A pause that is longer than the budget ends the request at once. */
static void retry_after_beyond_the_budget(void **state)
{
	static const struct script_step steps[] = {
		{"GET", "HTTP/1.1 503 Slow\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n"},
	};
	struct fixture fixture;
	struct origin_stats stats;

	(void)state;
	assert_int_equal(RUN(&fixture, steps), -EIO);
	assert_int_equal(script_requests(fixture.script), 1);
	origin_stats(fixture.origin, &stats);
	assert_string_equal(stats.last_error, "HTTP 503");
	assert_int_equal(stats.gets[ORIGIN_THROTTLED], 1);
	close_script(&fixture);
}

static void the_budget_ends_the_tries(void **state)
{
	static const struct script_step steps[] = {
		{"GET", "HTTP/1.1 500 Bad\r\nContent-Length: 0\r\n\r\n", .again = 1},
	};
	struct origin_config config = {.timeout_ms = 700};
	struct fixture fixture;
	struct wait_get *wait;
	struct origin *origin;
	char source[64];

	(void)state;
	open_script(&fixture, steps, 1);
	snprintf(source, sizeof source, "http://127.0.0.1:%u/", script_port(fixture.script));
	config.source = source;
	assert_int_equal(origin_open(fixture.engine, &config, &origin, NULL), 0);
	wait = fixture.wait;
	wait->get.origin = origin;
	assert_int_equal(wait_get(wait), -EIO);
	assert_in_range(script_requests(fixture.script), 2, 7);
	origin_unref(origin);
	close_script(&fixture);
}

/* A server that takes the request and says nothing. */
static void the_budget_ends_a_silent_try(void **state)
{
	static const struct script_step steps[] = {
		{"GET", "HTTP/1.1 200 OK\r\n", .silent = 1},
	};
	struct origin_config config = {.timeout_ms = 300};
	struct origin_stats stats;
	struct fixture fixture;
	struct origin *origin;
	char source[64];

	(void)state;
	open_script(&fixture, steps, 1);
	snprintf(source, sizeof source, "http://127.0.0.1:%u/", script_port(fixture.script));
	config.source = source;
	assert_int_equal(origin_open(fixture.engine, &config, &origin, NULL), 0);
	fixture.wait->get.origin = origin;
	assert_int_equal(wait_get(fixture.wait), -EIO);
	origin_stats(origin, &stats);
	assert_string_equal(stats.last_error, "no answer within 300 ms");
	assert_false(stats.reachable);
	origin_unref(origin);
	close_script(&fixture);
}

static void bandwidth_is_kept(void **state)
{
	static const struct script_step steps[] = {
		{"GET", OK_HEAD("300010", "10-300019/400000") "0123456789", .zeros = 300000},
	};
	struct origin_config config = {.bandwidth_bytes = 1000000};
	uint64_t start_ns = clock_now_ns();
	struct fixture fixture;
	struct origin *origin;
	char source[64];

	(void)state;
	open_script(&fixture, steps, 1);
	snprintf(source, sizeof source, "http://127.0.0.1:%u/", script_port(fixture.script));
	config.source = source;
	assert_int_equal(origin_open(fixture.engine, &config, &origin, NULL), 0);
	fixture.wait->get.origin = origin;
	fixture.wait->get.length = 300010;
	fixture.wait->get.size_bytes = 400000;
	assert_int_equal(wait_get(fixture.wait), 0);
	assert_int_equal(fixture.wait->size, 300010);
	assert_true(clock_now_ns() - start_ns >= 150 * NS_PER_MS);
	origin_unref(origin);
	close_script(&fixture);
}

static void many_at_once(void **state)
{
	static const struct script_step steps[] = {
		{"GET", OK_HEAD("10", "10-19/30") "0123456789", .again = 1},
	};
	struct fixture fixture;
	struct wait_get *waits;

	(void)state;
	open_script(&fixture, steps, 1);
	waits = calloc(40, sizeof *waits);
	for (int i = 0; i < 40; i++) {
		waits[i].get = fixture.wait->get;
		waits[i].get.priority = (enum origin_priority)(i % 3);
		wait_get_start(&waits[i]);
	}
	for (int i = 0; i < 40; i++) {
		assert_int_equal(wait_get_done(&waits[i]), 0);
		assert_memory_equal(waits[i].bytes, "0123456789", 10);
	}
	free(waits);
	close_script(&fixture);
}

/* With one place that is taken, what was wanted least comes first once it is wanted most. */
static void a_promoted_get_overtakes(void **state)
{
	static const struct script_step steps[] = {
		{"GET /first ", "HTTP/1.1 200 OK\r\n", .silent = 1},
		{"GET", OK_HEAD("10", "10-19/30") "0123456789", .again = 1},
	};
	static const char *const paths[] = {"first", "ahead", "promoted", "prefetch"};
	struct origin_config config = {.connections = 1};
	struct fixture fixture;
	struct origin *origin;
	struct wait_get *waits;
	char source[64];

	(void)state;
	open_script(&fixture, steps, 2);
	snprintf(source, sizeof source, "http://127.0.0.1:%u/", script_port(fixture.script));
	config.source = source;
	assert_int_equal(origin_open(fixture.engine, &config, &origin, NULL), 0);
	waits = calloc(4, sizeof *waits);
	for (int i = 0; i < 4; i++) {
		waits[i].get = fixture.wait->get;
		waits[i].get.origin = origin;
		waits[i].get.path = paths[i];
		waits[i].get.priority = i > 1 ? ORIGIN_PREFETCH : ORIGIN_READAHEAD;
		wait_get_start(&waits[i]);
		while (!i && script_requests(fixture.script) < 1)
			sched_yield();
	}
	origin_get_promote(&waits[2].get, ORIGIN_DEMAND);
	/* It is no longer wanted less than it was. */
	origin_get_promote(&waits[2].get, ORIGIN_READAHEAD);
	origin_get_cancel(&waits[0].get);
	assert_int_equal(wait_get_done(&waits[0]), -ECANCELED);
	for (int i = 1; i < 4; i++)
		assert_int_equal(wait_get_done(&waits[i]), 0);
	assert_int_equal(script_requests(fixture.script), 4);
	assert_non_null(strstr(script_request(fixture.script, 1), "GET /promoted "));
	assert_non_null(strstr(script_request(fixture.script, 2), "GET /ahead "));
	assert_non_null(strstr(script_request(fixture.script, 3), "GET /prefetch "));
	free(waits);
	origin_unref(origin);
	close_script(&fixture);
}

static void http_stat_and_list(void **state)
{
	static const struct script_step steps[] = {
		{"HEAD /d/file ", "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nETag: W/\"w\"\r\n\r\n"},
		{"HEAD /d/sub%20dir ", "HTTP/1.1 301 M\r\nLocation: /d/sub%20dir/\r\n"
				       "Content-Length: 0\r\n\r\n"},
		{"HEAD /d/sub%20dir/ ", "HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"},
		{"HEAD /d/none ", "HTTP/1.1 404 No\r\n\r\n"},
		{"HEAD /d/nosize ", "HTTP/1.1 200 OK\r\nETag: \"x\"\r\n\r\n"},
		{"GET /d/sub%20dir/ ",
			"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n"
			"\r\n<a href=\"../\">up</a><a href=\"a\">a</a>"
			"<a href=\"b/\">b</a>"},
		{"GET /d/ ", "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"},
	};
	struct fixture fixture;
	struct origin_attr attr;
	struct wait_list *list = calloc(1, sizeof *list);

	(void)state;
	open_script(&fixture, steps, sizeof steps / sizeof steps[0]);
	assert_int_equal(wait_stat(fixture.origin, "", &attr), 0);
	assert_int_equal(attr.kind, ORIGIN_DIR);
	assert_int_equal(wait_stat(fixture.origin, "file", &attr), 0);
	assert_int_equal(attr.kind, ORIGIN_FILE);
	assert_int_equal(attr.size_bytes, 7);
	assert_string_equal(attr.version.text, "W/\"w\"");
	assert_false(attr.version.strong);
	assert_int_equal(wait_stat(fixture.origin, "sub dir", &attr), 0);
	assert_int_equal(attr.kind, ORIGIN_DIR);
	assert_int_equal(wait_stat(fixture.origin, "none", &attr), -ENOENT);
	assert_int_equal(wait_stat(fixture.origin, "nosize", &attr), -EIO);
	assert_int_equal(wait_list(fixture.origin, "sub dir", list), 0);
	assert_string_equal(list->names, "a\nb/\n");
	assert_int_equal(wait_list(fixture.origin, "", list), 0);
	assert_string_equal(list->names, "");
	close_script(&fixture);
	free(list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_failure_that_passes_is_tried_again),
		cmocka_unit_test(a_cut_body_goes_on_where_it_broke),
		cmocka_unit_test(cuts_after_good_pieces_cost_no_time),
		cmocka_unit_test(a_change_in_the_middle_is_stale),
		cmocka_unit_test(final_answers),
		cmocka_unit_test(answers_that_cannot_be_right_are_tried_again),
		cmocka_unit_test(a_server_without_ranges_is_skipped_through),
		cmocka_unit_test(a_long_object_without_ranges_is_refused),
		cmocka_unit_test(a_range_of_an_unknown_total),
		cmocka_unit_test(a_pause_repeats_what_was_not_taken),
		cmocka_unit_test(a_paused_get_can_be_cancelled),
		cmocka_unit_test(a_waiting_get_can_be_cancelled),
		cmocka_unit_test(a_shut_origin_waits_for_nothing),
		cmocka_unit_test(retry_after_is_honoured),
		cmocka_unit_test(retry_after_beyond_the_budget),
		cmocka_unit_test(the_budget_ends_the_tries),
		cmocka_unit_test(the_budget_ends_a_silent_try),
		cmocka_unit_test(bandwidth_is_kept),
		cmocka_unit_test(many_at_once),
		cmocka_unit_test(a_promoted_get_overtakes),
		cmocka_unit_test(http_stat_and_list),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
