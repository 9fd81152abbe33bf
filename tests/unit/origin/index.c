#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "http/index.h"

struct seen {
	char text[1024];
};

static void each(void *arg, const struct index_link *link)
{
	struct seen *seen = arg;
	size_t used = strlen(seen->text);

	snprintf(seen->text + used, sizeof seen->text - used, "%.*s%s\n", (int)link->name_size,
		link->name, link->directory ? "/" : "");
}

static void expect(const char *html, const char *names, uint64_t hidden)
{
	struct seen seen = {""};
	uint64_t found = 0;

	assert_int_equal(
		index_parse(html, strlen(html), "http://host:81", "/d%20x/e/", each, &seen, &found),
		0);
	assert_string_equal(seen.text, names);
	assert_int_equal(found, hidden);
}

static void servers(void **state)
{
	(void)state;
	/* Apache */
	expect("<!DOCTYPE HTML PUBLIC \"-//W3C//DTD HTML 3.2 Final//EN\"><html><body><table>"
	       "<tr><th><a href=\"?C=N;O=D\">Name</a></th></tr>"
	       "<tr><td><a href=\"/d%20x/\">Parent Directory</a></td></tr>"
	       "<tr><td><a href=\"a%2bb&amp;c.bin\">a+b</a></td></tr>"
	       "<tr><td><a href=\"sub/\">sub/</a></td></tr></table></body></html>",
		"a+b&c.bin\nsub/\n", 0);
	/* nginx */
	expect("<html><head><title>Index of /</title></head><body><h1>Index of /</h1><hr><pre>"
	       "<a href=\"../\">../</a>\n<a href=\"x%20y\">x y</a>   1 \n"
	       "<a href=\"./odd%3A\">odd:</a></pre></body></html>",
		"x y\nodd:\n", 0);
	/* Python's http.server */
	expect("<!DOCTYPE HTML><html><head><meta charset=\"utf-8\"></head><body><ul>\n"
	       "<li><a href=\"%FF\">?</a></li>\n<li><a href=\"d/\">d/</a></li>\n</ul>",
		"\xff\nd/\n", 0);
}

static void links_that_lead_elsewhere(void **state)
{
	(void)state;
	expect("<a href=\"http://other/d%20x/e/a\">", "", 0);
	expect("<a href=\"http://host:81/d%20x/e/a\"><a href=\"/d x/e/b/\">", "a\nb/\n", 0);
	expect("<a href=\"//host:81/d%20x/e/a\"><a href=\"mailto:x\"><a href=\"a/b\">", "", 0);
	expect("<a href=\"#top\"><a href=\"a?b\"><a href=\"/\"><a href=\"\"><a name=\"x\">", "", 0);
	expect("<a href=\"/d%20x/e/\"><a href=\"./\"><a href=\"..\"><a href=\"../x\">", "", 0);
}

static void names_that_cannot_be_shown(void **state)
{
	(void)state;
	expect("<a href=\"a%2Fb\"><a href=\"a%00b\"><a href=\"%2e\"><a href=\"%zz\">ok", "", 4);
	expect("plain text", "", 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(servers),
		cmocka_unit_test(links_that_lead_elsewhere),
		cmocka_unit_test(names_that_cannot_be_shown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
