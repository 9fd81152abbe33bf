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
		uint64_t most = tries < 7 ? 100u << tries : 10000, pause;

		pause = request_pause_ms(tries, 0);
		assert_in_range(pause, 100, most);
	}
	assert_true(request_pause_ms(1, 30) >= 30000);
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
	feed(&answer, "Retry-After: 7\r\n");
	assert_int_equal(answer.retry_after_s, 7);
	feed(&answer, "Retry-After: Thu, 01 Jan 1970 00:00:10 GMT\r\n");
	assert_int_equal(answer.retry_after_s, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answers),
		cmocka_unit_test(transfers),
		cmocka_unit_test(pauses_grow_to_a_limit),
		cmocka_unit_test(content_ranges),
		cmocka_unit_test(a_status_line_starts_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
