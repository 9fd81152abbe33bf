/* What an origin at a hub reads and remembers. The way it asks is in tests/integration/test_hub.py. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "answer.h"
#include "circle.h"
#include "hf/places.h"
#include "hf/tree_json.h"

#define SHA(c) c c c c c c c c c c
#define OID    SHA("0123")
#define SHA256 SHA("01234a") "5678"

/* --- JSON --- */

struct seen {
	char text[512];
};

static int see(void *arg, const struct hf_entry *entry)
{
	static const char kinds[] = "fdo";
	struct seen *seen = arg;
	size_t n = strlen(seen->text);

	snprintf(seen->text + n, sizeof seen->text - n, "%c %s %llu %.6s|", kinds[entry->kind],
		entry->path, (unsigned long long)entry->size_bytes, entry->oid ? entry->oid : "");
	return strcmp(entry->path, "stop") ? 0 : -ECANCELED;
}

static int parse(const char *text, struct seen *seen)
{
	*seen = (struct seen){""};
	return tree_json_parse(text, strlen(text), see, seen);
}

static void trees(void **state)
{
	struct seen seen;

	(void)state;
	assert_int_equal(parse("[]", &seen), 0);
	assert_int_equal(parse("[{\"type\":\"directory\",\"oid\":\"x\",\"size\":0,\"path\":\"a\"},"
			       "{\"type\":\"file\",\"oid\":\"" OID "\",\"size\":7,\"path\":\"b\","
			       "\"unknown\":[1]},"
			       "{\"type\":\"file\",\"oid\":\"" OID "\",\"size\":9,\"path\":\"c\","
			       "\"lfs\":{\"oid\":\"" SHA256 "\",\"size\":5000000000,"
			       "\"pointerSize\":134}},"
			       "{\"type\":\"commit\",\"path\":\"d\"}]",
				 &seen),
		0);
	assert_string_equal(seen.text, "d a 0 |f b 7 012301|f c 5000000000 01234a|o d 0 |");
	assert_int_equal(parse("[{\"type\":\"directory\",\"path\":\"stop\"},"
			       "{\"type\":\"directory\",\"path\":\"b\"}]",
				 &seen),
		-ECANCELED);
	assert_string_equal(seen.text, "d stop 0 |");
}

static void trees_that_make_no_sense(void **state)
{
	static const char *const texts[] = {
		"",
		"[",
		"{}",
		"<html>",
		"[1]",
		"[{}]",
		"[{\"type\":\"file\"}]",
		"[{\"type\":\"file\",\"path\":\"a\",\"size\":1}]",
		"[{\"type\":\"file\",\"path\":\"a\",\"oid\":\"" OID "\"}]",
		"[{\"type\":\"file\",\"path\":\"a\",\"oid\":\"" OID "\",\"size\":-1}]",
		"[{\"type\":\"file\",\"path\":\"a\",\"oid\":\"" OID "\",\"size\":\"1\"}]",
		"[{\"type\":\"file\",\"path\":\"a\",\"oid\":\"" OID "0\",\"size\":1}]",
		"[{\"type\":\"file\",\"path\":\"a\",\"oid\":\"" SHA("012\\\"") "\",\"size\":1}]",
		"[{\"type\":\"file\",\"path\":\"a\",\"oid\":\"" OID "\",\"size\":1,\"lfs\":{}}]",
		"[{\"type\":\"file\",\"path\":\"a\\u0000b\",\"oid\":\"" OID "\",\"size\":1}]",
		"[{\"type\":7,\"path\":\"a\"}]",
	};
	struct seen seen;

	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		assert_int_equal(parse(texts[i], &seen), -EBADMSG);
}

static void revisions(void **state)
{
	static const char *const bad[] = {"", "[]", "{}", "{\"sha\":7}", "{\"sha\":\"main\"}",
		"{\"sha\":\"" OID "0\"}", "{\"sha\":\"" SHA("012G") "\"}"};
	static const char good[] = "{\"id\":\"org/model\",\"sha\":\"" OID "\"}";
	char commit[COMMIT_SIZE] = "untouched";

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		assert_int_equal(revision_json_parse(bad[i], strlen(bad[i]), commit), -EBADMSG);
	assert_string_equal(commit, "untouched");
	assert_int_equal(revision_json_parse(good, strlen(good), commit), 0);
	assert_string_equal(commit, OID);
}

/* --- headers --- */

static struct answer answer_of(const char *line)
{
	struct answer answer = {0};

	answer_line(&answer, "HTTP/1.1 200 OK\r\n", 17);
	answer_line(&answer, line, strlen(line));
	return answer;
}

static void links_to_the_next_page(void **state)
{
	static const struct {
		const char *line, *next;
		bool bad;
	} cases[] = {
		{"Link: <https://hub/api?a=1&cursor=x%3D>; rel=\"next\"\r\n", "a=1&cursor=x%3D",
			false},
		{"link: <https://h/?p=1>; rel=\"prev\", <https://h/?p=3>; rel=\"next\"\r\n", "p=3",
			false},
		{"Link: </x?a=1,2>; title=\"t\"; rel=\"next\"\r\n", "a=1,2", false},
		{"Link: <https://h/?p=1>; rel=\"prev\"\r\n", "", false},
		{"Link: <https://h/?p=1\r\n", "", false},
		{"Link: \r\n", "", false},
		{"Link: <https://h/>; rel=\"next\"\r\n", "", true},
		/* As others may write it. */
		{"Link: <https://h/?p=2>; rel=next\r\n", "p=2", false},
		{"Link: <https://h/?p=2>;rel=NEXT;title=x\r\n", "p=2", false},
		{"Link: <https://h/?p=2> ; REL = \"next\"\r\n", "p=2", false},
		{"Link: <https://h/?p=2>; rel=\"last next\"\r\n", "p=2", false},
		{"Link: <https://h/?p=1>; rel=prev, , <https://h/?p=2>; rel=next\r\n", "p=2",
			false},
		{"Link: <https://h/?p=2>; title=\"a, <b>; \\\" c\"; rel=\"next\"\r\n", "p=2",
			false},
		{"Link: <https://h/?p=1>; rel=\"nexts prev-next\"\r\n", "", false},
		{"Link: <https://h/?rel=next>; title=\"rel=next\"; rel=prev\r\n", "", false},
		{"Link: <https://h/?p=1>; relnext; next\r\n", "", false},
		/* Not understood, it must not be taken for the last page. */
		{"Link: https://h/?p=2; rel=\"next\"\r\n", "", true},
		{"Link: <https://h/?p=2; rel=\"next\"\r\n", "", true},
		{"Link: <https://h/?p=2>; title=\"; rel=next\r\n", "", true},
		{"Link: <https://h/?p=2> rel=next\r\n", "", true},
	};
	char line[ANSWER_NEXT_MAX + 100], long_line[5000];

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct answer answer = answer_of(cases[i].line);

		assert_string_equal(answer.next, cases[i].next);
		assert_int_equal(answer.next_bad, cases[i].bad);
	}
	snprintf(line, sizeof line, "Link: <?%0*d>; rel=\"next\"\r\n", ANSWER_NEXT_MAX - 1, 7);
	assert_int_equal(strlen(answer_of(line).next), ANSWER_NEXT_MAX - 1);
	snprintf(line, sizeof line, "Link: <?%0*d>; rel=\"next\"\r\n", ANSWER_NEXT_MAX, 7);
	assert_true(answer_of(line).next_bad);
	for (int i = 4000; i < 4200; i++) {
		snprintf(long_line, sizeof long_line, "lInk: <?%0*d>; rel=\"next\"\r\n", i, 7);
		assert_true(answer_of(long_line).next_bad);
	}
	snprintf(long_line, sizeof long_line, "x-other: %04500d\r\n", 7);
	assert_false(answer_of(long_line).next_bad);
}

/* What names a version is not taken for absent either. */
static void a_long_etag(void **state)
{
	char line[5000];
	struct answer answer;
	struct origin_version version;

	(void)state;
	snprintf(line, sizeof line, "ETag: \"%04500d\"\r\n", 7);
	answer = answer_of(line);
	answer_line(&answer, "Last-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n", 46);
	assert_int_equal(answer_version(&answer, 10, &version), -EIO);
}

static void rate_limits(void **state)
{
	static const struct {
		const char *line;
		uint64_t seconds;
	} cases[] = {
		{"RateLimit: \"api\";r=0;t=55\r\n", 56},
		{"ratelimit: \"resolvers\";r=2999;t=55\r\n", 0},
		{"RateLimit: \"api\";r=0;t=99999\r\n", 3600},
		{"RateLimit: \"api\";r=0\r\n", 0},
		{"RateLimit: limit=5, remaining=0, reset=9\r\n", 0},
		{"RateLimit-Policy: \"fixed window\";\"api\";q=500;w=300\r\n", 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		assert_int_equal(answer_of(cases[i].line).retry_after_s, cases[i].seconds);
}

/* --- what is remembered --- */

static void commit_name(char sha[COMMIT_SIZE], unsigned number)
{
	snprintf(sha, COMMIT_SIZE, "%040x", number);
}

static void learn(struct commits *commits, unsigned number, uint64_t asked_ns)
{
	char sha[COMMIT_SIZE];

	commit_name(sha, number);
	commits_learn(commits, sha, asked_ns);
}

static unsigned at(const struct commits *commits, unsigned i)
{
	return (unsigned)strtoul(commits->sha[i], NULL, 16);
}

static void commits_newest_first(void **state)
{
	struct commits commits = {.n = 0};

	(void)state;
	learn(&commits, 1, 10);
	learn(&commits, 1, 20);
	assert_int_equal(commits.n, 1);
	assert_int_equal(commits.asked_ns, 20);
	learn(&commits, 2, 30);
	learn(&commits, 3, 25); /* asked before 2 was, answered after */
	assert_int_equal(commits.n, 2);
	assert_int_equal(at(&commits, 0), 2);
	learn(&commits, 1, 40); /* back again */
	assert_int_equal(commits.n, 2);
	assert_int_equal(at(&commits, 0), 1);
	assert_int_equal(at(&commits, 1), 2);
	for (unsigned i = 0; i < 2 * COMMITS_MAX; i++)
		learn(&commits, 100 + i, 50 + i);
	assert_int_equal(commits.n, COMMITS_MAX);
	for (unsigned i = 0; i < COMMITS_MAX; i++)
		assert_int_equal(at(&commits, i), 100 + 2 * COMMITS_MAX - 1 - i);
}

static void places_have_a_ceiling(void **state)
{
	struct places *places = calloc(1, sizeof *places);
	char path[32];

	(void)state;
	assert_non_null(places);
	for (int i = 0; i < PLACES_MAX; i++) {
		snprintf(path, sizeof path, "%d", i);
		assert_non_null(places_put(places, path, "\"v\"", "https://cdn/x"));
	}
	assert_non_null(places_find(places, "0", "\"v\""));
	assert_null(places_find(places, "0", "\"w\""));
	assert_non_null(places_put(places, "one more", "\"v\"", "https://cdn/y"));
	assert_non_null(places_find(places, "0", "\"v\""));
	assert_null(places_find(places, "1", "\"v\""));
	places_free(places);
	free(places);
}

static void place_that_was_replaced_stays(void **state)
{
	struct places *places = calloc(1, sizeof *places);
	struct place *place;
	uint64_t old;

	(void)state;
	assert_non_null(places);
	old = places_put(places, "a", "\"v\"", "https://cdn/old")->number;
	place = places_put(places, "a", "\"v\"", "https://cdn/new");
	assert_true(old && place->number != old);
	places_drop(places, "a", "\"v\"", old);
	assert_string_equal(places_find(places, "a", "\"v\"")->url, "https://cdn/new");
	places_drop(places, "a", "\"v\"", place->number);
	assert_null(places_find(places, "a", "\"v\""));
	places_free(places);
	free(places);
}

static void circles_are_found(void **state)
{
	(void)state;
	for (uint64_t length = 1; length < 20; length++) {
		struct circle circle = {0};
		uint64_t steps = 0;

		/* 7 pages that come once, then a circle. */
		while (!circle_closed(&circle, steps < 7 ? steps : 7 + (steps - 7) % length))
			steps++;
		assert_true(steps >= length && steps < 7 + 4 * (length + 7));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(trees),
		cmocka_unit_test(trees_that_make_no_sense),
		cmocka_unit_test(revisions),
		cmocka_unit_test(links_to_the_next_page),
		cmocka_unit_test(a_long_etag),
		cmocka_unit_test(rate_limits),
		cmocka_unit_test(commits_newest_first),
		cmocka_unit_test(places_have_a_ceiling),
		cmocka_unit_test(place_that_was_replaced_stays),
		cmocka_unit_test(circles_are_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
