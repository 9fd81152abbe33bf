/* An s3:// origin against a scripted server: stat, listings, and what an error makes it learn. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "script.h"
#include "wait.h"

#define XML_HEAD       "HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\n\r\n"
#define LIST(body)     XML_HEAD "<ListBucketResult><KeyCount>1</KeyCount>" body "</ListBucketResult>"
#define KEY(key)       "<Contents><Key>" key "</Key><Size>3</Size><ETag>\"e\"</ETag></Contents>"
#define PREFIX(prefix) "<CommonPrefixes><Prefix>" prefix "</Prefix></CommonPrefixes>"
#define MORE(token)                                                                                \
	"<IsTruncated>true</IsTruncated><NextContinuationToken>" token "</NextContinuationToken>"
#define ERROR(status, code, more)                                                                  \
	"HTTP/1.1 " status " X\r\n\r\n<Error><Code>" code "</Code>" more "</Error>"

struct fixture {
	struct origin_engine *engine;
	struct script *script;
	struct origin *origin;
	struct wait_list *list;
	struct origin_attr attr;
};

static void open_script(
	struct fixture *fixture, const char *source, const struct script_step *steps, size_t n)
{
	char endpoint[64];
	struct origin_config config = {.source = source, .endpoint = endpoint, .timeout_ms = 20000};

	setenv("AWS_ACCESS_KEY_ID", "AKID", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "TOPSECRET", 1);
	setenv("AWS_SESSION_TOKEN", "TOKEN", 1);
	unsetenv("AWS_REGION");
	unsetenv("AWS_DEFAULT_REGION");
	unsetenv("AWS_PROFILE");
	setenv("AWS_CONFIG_FILE", "/does/not/exist", 1);
	fixture->script = script_start(steps, n);
	snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%u", script_port(fixture->script));
	assert_int_equal(origin_engine_new(&fixture->engine), 0);
	assert_int_equal(origin_open(fixture->engine, &config, &fixture->origin, NULL), 0);
	fixture->list = calloc(1, sizeof *fixture->list);
}

#define OPEN(fixture, source, steps)                                                               \
	open_script(fixture, source, steps, sizeof(steps) / sizeof((steps)[0]))

static void close_script(struct fixture *fixture)
{
	struct origin_stats stats;

	origin_stats(fixture->origin, &stats);
	assert_null(strstr(stats.last_error, "SECRET"));
	assert_null(strstr(stats.last_error, "TOKEN"));
	origin_unref(fixture->origin);
	origin_engine_free(fixture->engine);
	script_stop(fixture->script);
	free(fixture->list);
}

static int list(struct fixture *fixture, const char *path)
{
	return wait_list(fixture->origin, path, fixture->list);
}

static void pages_and_hidden_keys(void **state)
{
	static const struct script_step steps[] = {
		{"GET /bucket?delimiter=%2F&encoding-type=url&list-type=2&prefix=p%2Fd%2F ",
			LIST(KEY("p/d/") KEY("p/d/a+b%2B") KEY("p/d/..") PREFIX("p/d//") PREFIX(
				"p/d/sub/") "<EncodingType>url</EncodingType>" MORE("t&amp;1"))},
		{"GET /bucket?continuation-token=t%261&delimiter=%2F&encoding-type=url&"
		 "list-type=2&prefix=p%2Fd%2F ",
			LIST(KEY("p/d/z") "<IsTruncated>false</IsTruncated>")},
	};
	struct fixture fixture;
	char name[64], want[64];

	(void)state;
	OPEN(&fixture, "s3://bucket/p/", steps);
	assert_string_equal(origin_source(fixture.origin), "s3://bucket/p");
	assert_string_equal(origin_identity(fixture.origin), "AKID");
	assert_int_equal(list(&fixture, "d"), 0);
	assert_string_equal(fixture.list->names, "a b+\nsub/\nz\n");
	assert_int_equal(fixture.list->hidden, 3);
	assert_int_equal(fixture.list->pages, 2);
	assert_non_null(strstr(script_request(fixture.script, 0), "x-amz-security-token: TOKEN"));
	assert_non_null(strstr(script_request(fixture.script, 0),
		"SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token,"));
	snprintf(want, sizeof want, "s3://127.0.0.1:%u/bucket/p/d/a", script_port(fixture.script));
	assert_int_equal(origin_object_name(fixture.origin, "d/a", name, sizeof name), 0);
	assert_string_equal(name, want);
	assert_int_equal(origin_object_name(fixture.origin, "d/a", name, 8), -ENAMETOOLONG);
	close_script(&fixture);
}

static void listings_that_do_not_advance(void **state)
{
	static const struct script_step no_token[] = {
		{"GET", LIST(KEY("a") "<IsTruncated>true</IsTruncated>"), .again = 1}};
	static const struct script_step same_token[] = {
		{"GET", LIST(KEY("a") MORE("t")), .again = 1}};
	static const struct script_step no_keys[] = {{"GET", LIST(MORE("t")), .again = 1}};
	static const struct script_step circle[] = {
		{"continuation-token=two", LIST(KEY("b") MORE("one")), .again = 1},
		{"GET", LIST(KEY("a") MORE("two")), .again = 1}};
	static const struct {
		const struct script_step *steps;
		size_t n;
	} cases[] = {{no_token, 1}, {same_token, 1}, {no_keys, 1}, {circle, 2}};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct fixture fixture;

		open_script(&fixture, "s3://bucket", cases[i].steps, cases[i].n);
		assert_int_equal(list(&fixture, ""), -EIO);
		assert_in_range(script_requests(fixture.script), 1, 5);
		close_script(&fixture);
	}
}

static void version_1(void **state)
{
	static const struct script_step steps[] = {
		{"list-type=2", ERROR("501", "NotImplemented", "")},
		{"GET /bucket?delimiter=%2F&encoding-type=url&prefix= ",
			XML_HEAD "<ListBucketResult>" KEY("a")
				PREFIX("b/") "<IsTruncated>true</IsTruncated></ListBucketResult>"},
		{"GET /bucket?delimiter=%2F&encoding-type=url&marker=b%2F&prefix= ",
			XML_HEAD "<ListBucketResult>" KEY("c") "</ListBucketResult>"},
	};
	struct fixture fixture;

	(void)state;
	OPEN(&fixture, "s3://bucket", steps);
	assert_int_equal(list(&fixture, ""), 0);
	assert_string_equal(fixture.list->names, "a\nb/\nc\n");
	assert_int_equal(script_requests(fixture.script), 3);
	close_script(&fixture);
}

static void a_server_that_ignores_list_type(void **state)
{
	static const struct script_step steps[] = {
		{"list-type=2",
			XML_HEAD "<ListBucketResult><Marker/>" KEY(
				"a") "<NextMarker>a%2B</NextMarker><EncodingType>url</EncodingType>"
				     "<IsTruncated>true</IsTruncated></ListBucketResult>"},
		{"GET /bucket?delimiter=%2F&encoding-type=url&marker=a%2B&prefix= ",
			XML_HEAD "<ListBucketResult>" KEY("b") "</ListBucketResult>"},
	};
	struct fixture fixture;

	(void)state;
	OPEN(&fixture, "s3://bucket", steps);
	assert_int_equal(list(&fixture, ""), 0);
	assert_string_equal(fixture.list->names, "a\nb\n");
	close_script(&fixture);
}

static void errors_of_listings(void **state)
{
	static const struct {
		const char *path, *answer;
		int error;
	} cases[] = {
		{"", ERROR("404", "NoSuchBucket", ""), -ENXIO},
		{"d", ERROR("404", "NoSuchBucket", ""), -EIO},
		{"d", LIST(""), -ENOENT},
		{"", LIST(""), 0},
		{"d", LIST(KEY("d/")), 0},
		{"", ERROR("403", "AccessDenied", ""), -EACCES},
		{"", XML_HEAD "<Error><Code>AccessDenied</Code></Error>", -EACCES},
		{"", "HTTP/1.1 404 X\r\n\r\nnot here", -EIO},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct script_step step = {"GET", cases[i].answer};
		struct fixture fixture;

		open_script(&fixture, "s3://bucket", &step, 1);
		assert_int_equal(list(&fixture, cases[i].path), cases[i].error);
		assert_string_equal(fixture.list->names, "");
		assert_int_equal(script_requests(fixture.script), 1);
		close_script(&fixture);
	}
}

static void a_page_is_tried_again(void **state)
{
	static const struct script_step steps[] = {
		{"GET", XML_HEAD "<Error><Code>SlowDown</Code></Error>"},
		{"GET", XML_HEAD "<ListBucketResult><Contents><Key>cut"},
		{"GET", LIST(KEY("other/x"))},
		{"GET", LIST(KEY("d/a"))},
	};
	struct fixture fixture;

	(void)state;
	OPEN(&fixture, "s3://bucket", steps);
	assert_int_equal(list(&fixture, "d"), 0);
	assert_string_equal(fixture.list->names, "a\n");
	assert_int_equal(script_requests(fixture.script), 4);
	close_script(&fixture);
}

/* What isn't below the directory, or isn't one name in it, is no answer to the question. */
static void keys_from_elsewhere(void **state)
{
	static const struct script_step steps[] = {
		{"GET", LIST(KEY("other/x"))},
		{"GET", LIST(KEY("d"))},
		{"GET", LIST(KEY("d/x/y"))},
		{"GET", LIST(PREFIX("d/"))},
		{"GET", LIST(PREFIX("d/x"))},
		{"GET", LIST(PREFIX("d/x/y/"))},
		{"GET", LIST(PREFIX(""))},
		{"GET", LIST(KEY("d/a"))},
	};

	(void)state;
	/* One at a time: the gaps between many tries grow long. */
	for (size_t i = 0; i + 1 < sizeof steps / sizeof steps[0]; i++) {
		struct script_step two[] = {steps[i], steps[sizeof steps / sizeof steps[0] - 1]};
		struct fixture fixture;

		OPEN(&fixture, "s3://bucket", two);
		assert_int_equal(list(&fixture, "d"), 0);
		assert_string_equal(fixture.list->names, "a\n");
		assert_int_equal(script_requests(fixture.script), 2);
		close_script(&fixture);
	}
}

#define HEAD_OK   "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 3\r\n\r\n"
#define HEAD_NONE "HTTP/1.1 404 X\r\n\r\n"
#define HEAD_NO   "HTTP/1.1 403 X\r\n\r\n"

static void what_a_path_is(void **state)
{
	static const struct {
		const char *head, *list;
		int error;
		enum origin_kind kind;
	} cases[] = {
		{HEAD_OK, LIST(""), 0, ORIGIN_FILE},
		{HEAD_OK, LIST(KEY("f/x")), 0, ORIGIN_DIR},
		{HEAD_NONE, LIST(KEY("f/x")), 0, ORIGIN_DIR},
		{HEAD_NONE, LIST(""), -ENOENT, 0},
		{HEAD_NO, LIST(""), -EACCES, 0},
		{HEAD_OK, ERROR("403", "AccessDenied", ""), 0, ORIGIN_FILE},
		{HEAD_NONE, ERROR("403", "AccessDenied", ""), -EACCES, 0},
		{HEAD_OK, ERROR("400", "Strange", ""), -EIO, 0},
		{HEAD_NONE, ERROR("404", "NoSuchBucket", ""), -EIO, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct script_step steps[] = {{"HEAD /bucket/f ", cases[i].head},
			{"GET /bucket?encoding-type=url&list-type=2&max-keys=1&prefix=f%2F ",
				cases[i].list}};
		struct fixture fixture;

		OPEN(&fixture, "s3://bucket", steps);
		assert_int_equal(wait_stat(fixture.origin, "f", &fixture.attr), cases[i].error);
		if (!cases[i].error)
			assert_int_equal(fixture.attr.kind, cases[i].kind);
		assert_int_equal(script_requests(fixture.script), 2);
		close_script(&fixture);
	}
}

/* A server that doesn't know `prefix` makes no directory of a file. */
static void a_probe_that_finds_something_else(void **state)
{
	static const struct script_step steps[] = {
		{"HEAD /bucket/f ", HEAD_OK},
		{"prefix=f%2F ", LIST(KEY("a"))},
		{"prefix=f%2F ", LIST("")},
	};
	struct fixture fixture;

	(void)state;
	OPEN(&fixture, "s3://bucket", steps);
	assert_int_equal(wait_stat(fixture.origin, "f", &fixture.attr), 0);
	assert_int_equal(fixture.attr.kind, ORIGIN_FILE);
	assert_int_equal(script_requests(fixture.script), 3);
	close_script(&fixture);
}

static void the_region_is_learned(void **state)
{
	static const struct script_step steps[] = {
		{"/us-east-1/s3",
			ERROR("400", "AuthorizationHeaderMalformed", "<Region>eu-west-1</Region>")},
		{"/eu-west-1/s3", LIST(KEY("a"))},
		{"/eu-west-1/s3", LIST(KEY("a"))},
	};
	struct fixture fixture;

	(void)state;
	OPEN(&fixture, "s3://bucket", steps);
	assert_int_equal(list(&fixture, ""), 0);
	assert_int_equal(list(&fixture, ""), 0);
	assert_int_equal(script_requests(fixture.script), 3);
	close_script(&fixture);
}

static void a_head_learns_the_region_by_its_header(void **state)
{
	static const struct script_step steps[] = {
		{"HEAD", "HTTP/1.1 301 X\r\nx-amz-bucket-region: eu-west-1\r\n\r\n"},
		{"GET", "HTTP/1.1 301 X\r\nx-amz-bucket-region: eu-west-1\r\n\r\n"},
		{"HEAD", HEAD_OK},
		{"GET", LIST("")},
	};
	struct fixture fixture;

	(void)state;
	OPEN(&fixture, "s3://bucket", steps);
	assert_int_equal(wait_stat(fixture.origin, "f", &fixture.attr), 0);
	assert_int_equal(script_requests(fixture.script), 4);
	close_script(&fixture);
}

static void the_clock_is_corrected_once(void **state)
{
	static const struct script_step steps[] = {
		{"GET", "HTTP/1.1 403 X\r\nDate: Fri, 24 May 2013 00:00:00 GMT\r\n\r\n"
			"<Error><Code>RequestTimeTooSkewed</Code></Error>"},
		{"x-amz-date: 20130524T0000", LIST(KEY("a"))},
	};
	static const struct script_step for_ever[] = {
		{"GET",
			"HTTP/1.1 403 X\r\nDate: Fri, 24 May 2013 00:00:00 GMT\r\n\r\n"
			"<Error><Code>RequestTimeTooSkewed</Code></Error>",
			.again = 1},
	};
	struct fixture fixture;

	(void)state;
	OPEN(&fixture, "s3://bucket", steps);
	assert_int_equal(list(&fixture, ""), 0);
	close_script(&fixture);
	OPEN(&fixture, "s3://bucket", for_ever);
	assert_int_equal(list(&fixture, ""), -EACCES);
	assert_int_equal(script_requests(fixture.script), 2);
	close_script(&fixture);
}

static void a_range_must_be_a_range(void **state)
{
	static const struct script_step steps[] = {
		{"GET /bucket/a//b%20%2B ",
			"HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 9\r\n"
			"\r\nxxxxxxxxx"},
		{"GET /bucket/a//b%20%2B ",
			"HTTP/1.1 206 P\r\nETag: \"e\"\r\nContent-Length: 3\r\n"
			"Content-Encoding: gzip\r\nContent-Range: bytes 2-4/9\r\n\r\nabc"},
		{"GET /bucket/whole ",
			"HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 3\r\n\r\nabc"},
		{"GET /bucket/gone ", ERROR("404", "NoSuchKey", "")},
	};
	struct fixture fixture;
	struct wait_get *wait = calloc(1, sizeof *wait);

	(void)state;
	OPEN(&fixture, "s3://bucket", steps);
	wait->get = (struct origin_get){.origin = fixture.origin,
		.path = "a//b +",
		.offset = 2,
		.length = 3,
		.version = {.text = "\"e\"", .strong = true},
		.size_bytes = 9};
	assert_int_equal(wait_get(wait), 0);
	assert_memory_equal(wait->bytes, "abc", 3);
	assert_non_null(strstr(script_request(fixture.script, 0), "SignedHeaders=host;range;"));
	wait->get.path = "whole";
	wait->get.offset = 0;
	wait->get.size_bytes = 3;
	assert_int_equal(wait_get(wait), 0);
	wait->get.path = "gone";
	assert_int_equal(wait_get(wait), -ENOENT);
	close_script(&fixture);
	free(wait);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pages_and_hidden_keys),
		cmocka_unit_test(listings_that_do_not_advance),
		cmocka_unit_test(version_1),
		cmocka_unit_test(a_server_that_ignores_list_type),
		cmocka_unit_test(errors_of_listings),
		cmocka_unit_test(keys_from_elsewhere),
		cmocka_unit_test(a_probe_that_finds_something_else),
		cmocka_unit_test(a_page_is_tried_again),
		cmocka_unit_test(what_a_path_is),
		cmocka_unit_test(the_region_is_learned),
		cmocka_unit_test(a_head_learns_the_region_by_its_header),
		cmocka_unit_test(the_clock_is_corrected_once),
		cmocka_unit_test(a_range_must_be_a_range),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
