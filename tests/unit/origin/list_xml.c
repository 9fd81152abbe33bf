#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "s3/list_xml.h"

#define HEAD "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
#define OPEN HEAD "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"

struct seen {
	char text[1024]; /* one line a key */
};

static int each(void *arg, const struct list_key *key)
{
	struct seen *seen = arg;
	size_t used = strlen(seen->text);

	snprintf(seen->text + used, sizeof seen->text - used, "%s%.*s %llu %lld %s\n",
		key->prefix ? "d " : "f ", (int)key->key_size, key->key,
		(unsigned long long)key->size_bytes, (long long)key->modified_s, key->etag);
	return 0;
}

static int parse(
	const char *xml, struct seen *seen, struct list_page *page, struct error_document *error)
{
	*seen = (struct seen){""};
	list_page_init(page);
	return list_xml_parse(xml, strlen(xml), each, seen, page, error);
}

static void version_2(void **state)
{
	struct error_document error;
	struct list_page page;
	struct seen seen;

	(void)state;
	assert_int_equal(parse(OPEN "<Name>b</Name><Prefix>p/</Prefix><KeyCount>2</KeyCount>"
				    "<IsTruncated>true</IsTruncated>"
				    "<NextContinuationToken>a&amp;b==</NextContinuationToken>"
				    "<Contents><Key>p/a+b%2B%25%0A%FF</Key><Size>12</Size>"
				    "<LastModified>1970-01-01T00:00:10.500Z</LastModified>"
				    "<ETag>&quot;e&quot;</ETag><Owner><ID>x</ID></Owner></Contents>"
				    "<CommonPrefixes><Prefix>p/d%2F/</Prefix></CommonPrefixes>"
				    "<EncodingType>url</EncodingType></ListBucketResult>",
				 &seen, &page, &error),
		0);
	assert_string_equal(seen.text, "f p/a b+%\n\xff 12 10 \"e\"\nd p/d// 0 0 \n");
	assert_true(page.truncated && page.has_key_count);
	assert_string_equal(buf_string(&page.next_token), "a&b==");
	assert_string_equal(buf_string(&page.last), "p/d//");
	assert_int_equal(page.n_keys, 2);
	list_page_free(&page);
}

static void version_1_without_encoding(void **state)
{
	struct error_document error;
	struct list_page page;
	struct seen seen;

	(void)state;
	assert_int_equal(parse(OPEN "<Marker/><IsTruncated>false</IsTruncated>"
				    "<Contents><Key>a+b%2B</Key><Size>0</Size>"
				    "<ETag>bare</ETag></Contents></ListBucketResult>",
				 &seen, &page, &error),
		0);
	assert_string_equal(seen.text, "f a+b%2B 0 0 \"bare\"\n");
	assert_false(page.truncated || page.has_key_count);
	list_page_free(&page);
}

static void nonsense_is_refused(void **state)
{
	static const char *const cases[] = {
		"",
		"text",
		HEAD,
		OPEN,
		OPEN "<Contents><Key>a</Key><Size>1</Size></Contents>",
		OPEN "<Contents><Key>a</Key><Size>-1</Size></Contents></ListBucketResult>",
		OPEN "<Contents><Key>a</Key><Size>x</Size></Contents></ListBucketResult>",
		OPEN "<Contents><Size>1</Size></Contents></ListBucketResult>",
		OPEN "<Contents><Key>a%zz</Key></Contents><EncodingType>url</EncodingType>"
		     "</ListBucketResult>",
		OPEN "<Contents><Key>a&x;</Key></Contents></ListBucketResult>",
		OPEN "</ListBucketResult><Other/>",
		HEAD "<html><body>hello</body></html>",
		HEAD "<!DOCTYPE l [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;&a;\">]>"
		     "<ListBucketResult><Contents><Key>&b;</Key></Contents></ListBucketResult>",
		HEAD "<!DOCTYPE l SYSTEM \"file:///etc/passwd\"><ListBucketResult/>",
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct error_document error;
		struct list_page page;
		struct seen seen;

		assert_int_equal(parse(cases[i], &seen, &page, &error), -EBADMSG);
		assert_string_equal(seen.text, "");
		list_page_free(&page);
	}
}

static void every_cut_is_noticed(void **state)
{
	static const char whole[] = OPEN "<IsTruncated>false</IsTruncated><Contents><Key>abc</Key>"
					 "<Size>1</Size></Contents></ListBucketResult>";

	(void)state;
	for (size_t n = 0; n <= sizeof whole - 1; n++) {
		struct error_document error;
		struct list_page page;
		struct seen seen = {""};
		int r;

		list_page_init(&page);
		r = list_xml_parse(whole, n, each, &seen, &page, &error);
		assert_int_equal(r, n == sizeof whole - 1 ? 0 : -EBADMSG);
		list_page_free(&page);
	}
}

static void errors(void **state)
{
	static const char xml[] = HEAD "<Error><Code>PermanentRedirect</Code><Message>m</Message>"
				       "<Region>eu-west-1</Region></Error>";
	struct error_document error;
	struct list_page page;
	struct seen seen;

	(void)state;
	assert_int_equal(parse(xml, &seen, &page, &error), -EREMOTEIO);
	assert_string_equal(error.code, "PermanentRedirect");
	list_page_free(&page);
	error_xml_parse(xml, strlen(xml), &error);
	assert_string_equal(error.region, "eu-west-1");
	error_xml_parse("<html>", 6, &error);
	assert_string_equal(error.code, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(version_2),
		cmocka_unit_test(version_1_without_encoding),
		cmocka_unit_test(nonsense_is_refused),
		cmocka_unit_test(every_cut_is_noticed),
		cmocka_unit_test(errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
