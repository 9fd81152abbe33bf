#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/percent.h"
#include "source.h"

static void good_sources(void **state)
{
	static const struct {
		const char *text, *normal, *path;
	} cases[] = {
		{"s3://bucket", "s3://bucket", ""},
		{"s3://bucket/", "s3://bucket", ""},
		{"s3://bucket/a/b/", "s3://bucket/a/b", "a/b/"},
		{"s3://bucket/a//b", "s3://bucket/a//b", "a//b/"},
		{"s3://bucket/a b?c#d%", "s3://bucket/a b?c#d%", "a b?c#d%/"},
		{"hf://org/model", "hf://org/model", ""},
		{"hf://org/model@main/", "hf://org/model", ""},
		{"hf://models/org/model@v1.0/a/b/", "hf://org/model@v1.0/a/b", "a/b/"},
		{"hf://datasets/org/data/a@b.txt", "hf://datasets/org/data/a@b.txt", "a@b.txt/"},
		{"hf://org/m@feature%2Fx/a", "hf://org/m@feature%2Fx/a", "a/"},
		{"hf://spaces/org/m@refs/pr/7/a", "hf://spaces/org/m@refs/pr/7/a", "a/"},
		{"http://Host.Example:80/x", "http://host.example/x/", "/x/"},
		{"https://host:443", "https://host/", "/"},
		{"https://host:8443/a%20b/", "https://host:8443/a%20b/", "/a%20b/"},
		{"HTTP://[::1]:8080/", "http://[::1]:8080/", "/"},
		{"file:///", "file:///", ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct source source;
		struct why why = {""};

		assert_int_equal(source_parse(cases[i].text, &source, &why), 0);
		assert_string_equal(source.text, cases[i].normal);
		assert_string_equal(source.path, cases[i].path);
		assert_string_equal(why.text, "");
		source_free(&source);
	}
}

static void what_a_hub_source_names(void **state)
{
	static const struct {
		const char *text, *repo, *revision;
	} cases[] = {
		{"hf://org/model/a", "models/org/model", "main"},
		{"hf://datasets/org/data@feature%2Fx", "datasets/org/data", "feature/x"},
		{"hf://org/model@refs/convert/parquet/a", "models/org/model",
			"refs/convert/parquet"},
		{"hf://org/model@refs/heads", "models/org/model", "refs"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct source source;
		struct why why = {""};

		assert_int_equal(source_parse(cases[i].text, &source, &why), 0);
		assert_int_equal(source.kind, SOURCE_HF);
		assert_string_equal(source.repo, cases[i].repo);
		assert_string_equal(source.revision, cases[i].revision);
		source_free(&source);
	}
}

static void bad_sources_name_value_and_remedy(void **state)
{
	static const struct {
		const char *text, *value, *remedy;
		int error;
	} cases[] = {
		{"ftp://x/", "ftp://x/", "give s3://", -EINVAL},
		{"bucket", "bucket", "give s3://", -EINVAL},
		{"s3://", "s3://", "as in s3://", -EINVAL},
		{"s3://ab/x", "\"ab\"", "3 or more", -EINVAL},
		{"s3://a..b/x", "a..b", "3 or more", -EINVAL},
		{"s3://user@bucket/x", "credentials", "in the environment", -EINVAL},
		{"hf://model", "hf://model", "give hf://org/name", -EINVAL},
		{"hf://datasets/data", "hf://datasets/data", "hf://datasets/org/name", -EINVAL},
		{"hf://or g/model", "hf://or g/model", "give hf://org/name", -EINVAL},
		{"hf://org/model@", "\"\"", "is no revision", -EINVAL},
		{"hf://org/model@a%zz", "\"a%zz\"", "is no revision", -EINVAL},
		{"hf://org/model@a%00b", "\"a%00b\"", "is no revision", -EINVAL},
		{"hf://org/model/a//b", "/a//b", "is no path", -EINVAL},
		{"hf://org/model/a/../b", "/a/../b", "is no path", -EINVAL},
		{"http:///x", "http:///x", "give http[s]://", -EINVAL},
		{"http://h:0/", "http://h:0/", "give http[s]://", -EINVAL},
		{"http://h:99999/", "http://h:99999/", "give http[s]://", -EINVAL},
		{"http://h/a?b", "http://h/a?b", "%XX", -EINVAL},
		{"http://h/a b", "http://h/a b", "%XX", -EINVAL},
		{"http://user:secret@h/", "user or password", "without it", -EINVAL},
		{"file://relative", "file://relative", "three slashes", -EINVAL},
		{"file:///does/not/exist", "/does/not/exist", "", -ENOENT},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct source source;
		struct why why = {""};

		assert_int_equal(source_parse(cases[i].text, &source, &why), cases[i].error);
		assert_non_null(strstr(why.text, cases[i].value));
		assert_non_null(strstr(why.text, cases[i].remedy));
		assert_null(strstr(why.text, "secret"));
	}
}

static void endpoints(void **state)
{
	struct endpoint endpoint;
	struct why why = {""};

	(void)state;
	assert_int_equal(endpoint_parse("endpoint", "http://S3.Local:9000/", &endpoint, &why), 0);
	assert_string_equal(endpoint.host, "s3.local:9000");
	assert_false(endpoint.tls);
	endpoint_free(&endpoint);
	assert_int_equal(endpoint_parse("endpoint", "s3.local", &endpoint, &why), -EINVAL);
	assert_non_null(strstr(why.text, "endpoint=s3.local"));
	assert_int_equal(endpoint_parse("endpoint", "http://h/path", &endpoint, &why), -EINVAL);
	assert_true(host_is_loopback("localhost:9000"));
	assert_true(host_is_loopback("127.1.2.3"));
	assert_true(host_is_loopback("[::1]:80"));
	assert_false(host_is_loopback("localhost.example"));
	assert_false(host_is_loopback("127.example"));
}

static void encoding(void **state)
{
	static const struct {
		const char *bytes, *encoded;
	} cases[] = {
		{"a/b//c", "a/b//c"},
		{"a/../b", "a/../b"},
		{" +%?#&=", "%20%2B%25%3F%23%26%3D"},
		{"-._~", "-._~"},
		{"\n\xff\xe1\x88\xb4", "%0A%FF%E1%88%B4"},
	};
	struct buf out;

	(void)state;
	buf_init(&out, 4096);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		buf_reset(&out);
		percent_encode(&out, cases[i].bytes, strlen(cases[i].bytes), true);
		assert_string_equal(buf_string(&out), cases[i].encoded);
		buf_reset(&out);
		assert_int_equal(
			percent_decode(&out, cases[i].encoded, strlen(cases[i].encoded), true), 0);
		assert_string_equal(buf_string(&out), cases[i].bytes);
	}
	buf_reset(&out);
	assert_int_equal(percent_decode(&out, "a+b%", 4, true), -EINVAL);
	assert_int_equal(percent_decode(&out, "%1", 2, true), -EINVAL);
	assert_int_equal(percent_decode(&out, "%zz", 3, true), -EINVAL);
	buf_reset(&out);
	assert_int_equal(percent_decode(&out, "a+b", 3, true), 0);
	assert_string_equal(buf_string(&out), "a b");
	buf_free(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_sources),
		cmocka_unit_test(what_a_hub_source_names),
		cmocka_unit_test(bad_sources_name_value_and_remedy),
		cmocka_unit_test(endpoints),
		cmocka_unit_test(encoding),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
