#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "answer.h"
#include "request.h"
#include "verdict.h"

static void answers(void **state)
{
	static const struct {
		long status;
		const char *code;
		int error;
		enum step step;
		enum fix fix;
	} cases[] = {
		{404, "NoSuchKey", -ENOENT, STEP_FAIL, FIX_NONE},
		{404, "NoSuchBucket", -EIO, STEP_FAIL, FIX_NONE},
		{404, "", -ENOENT, STEP_FAIL, FIX_NONE},
		{403, "", -EACCES, STEP_FAIL, FIX_NONE},
		{403, "AccessDenied", -EACCES, STEP_FAIL, FIX_NONE},
		{403, "RequestTimeTooSkewed", -EACCES, STEP_AGAIN, FIX_CLOCK},
		{400, "ExpiredToken", -EACCES, STEP_AGAIN, FIX_CREDENTIALS},
		{400, "InvalidToken", -EACCES, STEP_AGAIN, FIX_CREDENTIALS},
		{400, "TokenRefreshRequired", -EACCES, STEP_AGAIN, FIX_CREDENTIALS},
		{401, NULL, -EACCES, STEP_FAIL, FIX_NONE},
		{412, NULL, -ESTALE, STEP_FAIL, FIX_NONE},
		{416, "InvalidRange", -ESTALE, STEP_FAIL, FIX_NONE},
		{400, "MadeUp", -EIO, STEP_FAIL, FIX_NONE},
		{400, "RequestTimeout", -EIO, STEP_RETRY, FIX_NONE},
		{400, "AuthorizationHeaderMalformed", -EIO, STEP_AGAIN, FIX_REGION},
		{418, NULL, -EIO, STEP_FAIL, FIX_NONE},
		{429, NULL, -EIO, STEP_RETRY, FIX_NONE},
		{500, "InternalError", -EIO, STEP_RETRY, FIX_NONE},
		{502, NULL, -EIO, STEP_RETRY, FIX_NONE},
		{503, "SlowDown", -EIO, STEP_RETRY, FIX_NONE},
		{504, NULL, -EIO, STEP_RETRY, FIX_NONE},
		{599, NULL, -EIO, STEP_RETRY, FIX_NONE},
		{501, "NotImplemented", -EIO, STEP_AGAIN, FIX_LIST_V1},
		{302, NULL, -EIO, STEP_FAIL, FIX_NONE},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct verdict verdict;

		verdict_of_answer(cases[i].status, cases[i].code, &verdict);
		assert_int_equal(verdict.error, cases[i].error);
		assert_int_equal(verdict.step, cases[i].step);
		assert_int_equal(verdict.fix, cases[i].fix);
	}
}

static void transfers(void **state)
{
	static const CURLcode passing[] = {CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_CONNECT,
		CURLE_OPERATION_TIMEDOUT, CURLE_RECV_ERROR, CURLE_PARTIAL_FILE, CURLE_GOT_NOTHING,
		CURLE_SSL_CONNECT_ERROR, CURLE_HTTP2_STREAM};
	static const CURLcode final[] = {
		CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CACERT_BADFILE, CURLE_TOO_MANY_REDIRECTS};
	struct verdict verdict;

	(void)state;
	for (size_t i = 0; i < sizeof passing / sizeof passing[0]; i++) {
		verdict_of_curl(passing[i], "", &verdict);
		assert_int_equal(verdict.step, STEP_RETRY);
		assert_int_equal(verdict.error, -EIO);
		assert_true(*verdict.text);
	}
	for (size_t i = 0; i < sizeof final / sizeof final[0]; i++) {
		verdict_of_curl(final[i], "the certificate is bad", &verdict);
		assert_int_equal(verdict.step, STEP_FAIL);
		assert_string_equal(verdict.text, "the certificate is bad");
	}
}

static void pauses_grow_to_a_limit(void **state)
{
	(void)state;
	for (unsigned tries = 1; tries < 40; tries++) {
		uint64_t most = tries < 7 ? 100u << tries : 10000, span = most - 100 + 1;

		/* Any pause of the span is as likely as any other. */
		assert_int_equal(request_pause_ms(tries, 0, 0), 100);
		assert_int_equal(request_pause_ms(tries, 0, span - 1), most);
		assert_int_equal(request_pause_ms(tries, 0, span), 100);
		assert_int_equal(request_pause_ms(tries, 0, 7 * span + 42), 142);
		/* Those who were told the same time come after it, one by one. */
		assert_int_equal(request_pause_ms(tries, 30, 0), 30100);
		assert_int_equal(request_pause_ms(tries, 30, span - 1), 30000 + most);
	}
}

static void content_ranges(void **state)
{
	static const struct {
		const char *text;
		int good;
	} cases[] = {
		{"bytes 0-9/10", 1},
		{"bytes 5-5/6", 1},
		{"bytes 0-9/*", 1},
		{"bytes 0-9/9", 0},
		{"bytes 9-0/10", 0},
		{"bytes */10", 0},
		{"bytes 0-9", 0},
		{"bytes 0-9/10x", 0},
		{"items 0-9/10", 0},
		{"bytes -1-9/10", 0},
		{"bytes 0-99999999999999999999999/10", 0},
		{"", 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct answer answer = {0};

		assert_int_equal(answer_parse_range(&answer, cases[i].text), cases[i].good);
	}
}

static void feed(struct answer *answer, const char *line)
{
	answer_line(answer, line, strlen(line));
}

static void a_status_line_starts_anew(void **state)
{
	struct answer answer = {0};
	struct origin_version version;

	(void)state;
	feed(&answer, "HTTP/1.1 302 Found\r\n");
	feed(&answer, "ETag: \"old\"\r\n");
	feed(&answer, "HTTP/2 200\r\n");
	assert_int_equal(answer.status, 200);
	assert_int_equal(answer_version(&answer, 1, &version), -EIO);
	feed(&answer, "last-modified: Thu, 01 Jan 1970 00:00:10 GMT\r\n");
	assert_int_equal(answer_version(&answer, 7, &version), 0);
	assert_string_equal(version.text, "modified-10-7");
	assert_false(version.strong);
	feed(&answer, "etag:W/\"weak\"\r\n");
	assert_int_equal(answer_version(&answer, 7, &version), 0);
	assert_string_equal(version.text, "W/\"weak\"");
	assert_false(version.strong);
	feed(&answer, "ETag:   \"strong\"  \r\n");
	assert_int_equal(answer_version(&answer, 7, &version), 0);
	assert_string_equal(version.text, "\"strong\"");
	assert_true(version.strong);
	feed(&answer, "Content-Length: 12x\r\n");
	assert_false(answer.has_length);
	assert_false(answer.coded);
	feed(&answer, "Content-Encoding: identity\r\n");
	assert_false(answer.coded);
	feed(&answer, "content-encoding: gzip\r\n");
	assert_true(answer.coded);
}

static void when_to_come_again(void **state)
{
	static const struct {
		const char *retry_after, *date;
		uint64_t seconds; /* seen by a client whose clock is at 100 */
	} cases[] = {
		{"Retry-After: 7\r\n", NULL, 7},
		{"Retry-After: 7\r\n", "Date: Thu, 01 Jan 1970 00:00:10 GMT\r\n", 7},
		{"Retry-After: Thu, 01 Jan 1970 00:01:50 GMT\r\n", NULL, 10},
		{"Retry-After: Thu, 01 Jan 1970 00:00:10 GMT\r\n", NULL, 0},
		/* What counts is the server's clock, be it ahead or behind. */
		{"Retry-After: Thu, 01 Jan 1970 01:00:12 GMT\r\n",
			"Date: Thu, 01 Jan 1970 01:00:10 GMT\r\n", 2},
		{"Retry-After: Thu, 01 Jan 1970 00:00:12 GMT\r\n",
			"Date: Thu, 01 Jan 1970 00:00:10 GMT\r\n", 2},
		{"Retry-After: Thu, 01 Jan 1970 00:00:12 GMT\r\n",
			"Date: Thu, 01 Jan 1970 00:00:20 GMT\r\n", 0},
		{"Retry-After: 99999999\r\n", NULL, 3600},
		{"Retry-After: soon\r\n", NULL, 0},
		{"Retry-After: 7 minutes\r\n", NULL, 0},
		{"Retry-After: -7\r\n", NULL, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct answer answer = {0};

		feed(&answer, cases[i].retry_after);
		if (cases[i].date)
			feed(&answer, cases[i].date);
		assert_int_equal(answer_pause_s(&answer, 100), cases[i].seconds);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answers),
		cmocka_unit_test(transfers),
		cmocka_unit_test(pauses_grow_to_a_limit),
		cmocka_unit_test(content_ranges),
		cmocka_unit_test(a_status_line_starts_anew),
		cmocka_unit_test(when_to_come_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
