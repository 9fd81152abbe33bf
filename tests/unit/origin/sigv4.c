/*
 * Signatures that AWS publishes: its Signature Version 4 test suite (get-vanilla,
 * get-vanilla-query-order-key, get-utf8) and the examples of the S3 API reference.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/percent.h"
#include "s3/sigv4.h"
#include "url.h"

static const struct sigv4_header suite_headers[] = {
	{"host", "example.amazonaws.com"},
	{"x-amz-date", "20150830T123600Z"},
};

static const struct sigv4_scope suite_scope = {
	.key_id = "AKIDEXAMPLE",
	.secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
	.region = "us-east-1",
	.service = "service",
	.time = "20150830T123600Z",
};

static const struct sigv4_scope s3_scope = {
	.key_id = "AKIAIOSFODNN7EXAMPLE",
	.secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
	.region = "us-east-1",
	.service = "s3",
	.time = "20130524T000000Z",
};

static void expect(
	const struct sigv4_request *request, const struct sigv4_scope *scope, const char *signature)
{
	struct buf out;

	buf_init(&out, 4096);
	sigv4_authorization(request, scope, &out);
	assert_int_equal(out.error, 0);
	assert_non_null(strstr(buf_string(&out), "Signature="));
	assert_string_equal(
		strstr(buf_string(&out), "Signature=") + strlen("Signature="), signature);
	buf_free(&out);
}

static void expect_suite(const char *uri, const char *query, const char *signature)
{
	struct sigv4_request request = {"GET", uri, query, suite_headers, 2, SIGV4_EMPTY_HASH};

	expect(&request, &suite_scope, signature);
}

static void suite(void **state)
{
	struct url_parameter parameters[] = {{"Param1", "value2"}, {"Param1", "Value1"}};
	struct buf text;

	(void)state;
	expect_suite("/", "", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
	buf_init(&text, 4096);
	url_query(&text, parameters, 2);
	assert_string_equal(buf_string(&text), "Param1=Value1&Param1=value2");
	expect_suite("/", buf_string(&text),
		"eedbc4e291e521cf13422ffca22be7d2eb8146eecf653089df300a15b2382bd1");
	buf_reset(&text);
	percent_encode(&text, "/\xe1\x88\xb4", 4, true);
	expect_suite(buf_string(&text), "",
		"8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85");
	buf_free(&text);
}

static void s3_get_object(void **state)
{
	static const struct sigv4_header headers[] = {
		{"host", "examplebucket.s3.amazonaws.com"},
		{"range", "bytes=0-9"},
		{"x-amz-content-sha256", SIGV4_EMPTY_HASH},
		{"x-amz-date", "20130524T000000Z"},
	};
	struct sigv4_request request = {"GET", "/test.txt", "", headers, 4, SIGV4_EMPTY_HASH};

	(void)state;
	expect(&request, &s3_scope,
		"f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

static const struct sigv4_header bucket_headers[] = {
	{"host", "examplebucket.s3.amazonaws.com"},
	{"x-amz-content-sha256", SIGV4_EMPTY_HASH},
	{"x-amz-date", "20130524T000000Z"},
};

static void s3_get_bucket_lifecycle(void **state)
{
	struct sigv4_request request = {
		"GET", "/", "lifecycle=", bucket_headers, 3, SIGV4_EMPTY_HASH};

	(void)state;
	expect(&request, &s3_scope,
		"fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
}

static void s3_list_objects(void **state)
{
	struct url_parameter parameters[] = {{"prefix", "J"}, {"max-keys", "2"}};
	struct sigv4_request request = {"GET", "/", NULL, bucket_headers, 3, SIGV4_EMPTY_HASH};
	struct buf query;

	(void)state;
	buf_init(&query, 4096);
	url_query(&query, parameters, 2);
	request.query = buf_string(&query);
	expect(&request, &s3_scope,
		"34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
	buf_free(&query);
}

/* Unlike the suite's normalize-path, S3 signs paths as they are. */
static void paths_are_not_normalised(void **state)
{
	struct sigv4_request request = {
		"GET", "/a/../b//c/./d", "", bucket_headers, 3, SIGV4_EMPTY_HASH};
	struct buf out;

	(void)state;
	buf_init(&out, 4096);
	sigv4_canonical_request(&request, &out);
	assert_memory_equal(buf_string(&out), "GET\n/a/../b//c/./d\n\n", 19);
	buf_free(&out);
}

static void the_string_to_sign(void **state)
{
	struct sigv4_request request = {"GET", "/", "", suite_headers, 2, SIGV4_EMPTY_HASH};
	struct buf out;

	(void)state;
	buf_init(&out, 4096);
	sigv4_string_to_sign(&request, &suite_scope, &out);
	assert_string_equal(buf_string(&out),
		"AWS4-HMAC-SHA256\n20150830T123600Z\n20150830/us-east-1/service/aws4_request\n"
		"bb579772317eb040ac9ed261061d46c1f17a8133879d6129b6e1c25292927e63");
	buf_free(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(suite),
		cmocka_unit_test(s3_get_object),
		cmocka_unit_test(s3_get_bucket_lifecycle),
		cmocka_unit_test(s3_list_objects),
		cmocka_unit_test(paths_are_not_normalised),
		cmocka_unit_test(the_string_to_sign),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
