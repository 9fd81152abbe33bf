/* The token of `aws sso login`: when it is renewed, what is written back, and what ends it. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "credentials/json.h"
#include "credentials/provider.h"
#include "credentials/sso_token.h"

#include "script.h"
#include "surroundings.h"

/* By the SHA-1 of "corp". */
#define CACHE    ".aws/sso/cache/ee0bfd2552fbd840c02cc48b6e823320543c450f.json"
#define FAR_AWAY "2099-01-01T00:00:00Z"
#define PAST     "2001-01-01T00:00:00Z"
#define RENEWED(access, refresh)                                                                   \
	"HTTP/1.1 200 OK\r\n\r\n{\"accessToken\":\"" access "\",\"refreshToken\":\"" refresh       \
	"\",\"expiresIn\":28800,\"tokenType\":\"Bearer\"}"

struct fixture {
	struct surroundings surroundings;
	struct script *script;
	struct sso_token token;
	_Atomic bool stop;
	char path[256];
	struct why why;
};

static int setup(void **state)
{
	struct fixture *fixture = calloc(1, sizeof *fixture);

	surroundings_begin(&fixture->surroundings);
	snprintf(fixture->path, sizeof fixture->path, "%s/" CACHE, fixture->surroundings.home);
	*state = fixture;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fixture = *state;

	sso_token_free(&fixture->token);
	if (fixture->script)
		script_stop(fixture->script);
	surroundings_end(&fixture->surroundings);
	free(fixture);
	return 0;
}

static void serve(struct fixture *fixture, const struct script_step *steps, size_t n)
{
	char url[64];

	fixture->script = script_start(steps, n);
	snprintf(url, sizeof url, "http://127.0.0.1:%u", script_port(fixture->script));
	setenv("AWS_ENDPOINT_URL_SSO_OIDC", url, 1);
	assert_int_equal(sso_token_init(&fixture->token, "corp", "eu-west-1", &fixture->why), 0);
}

#define SERVE(fixture, steps) serve(fixture, steps, sizeof(steps) / sizeof((steps)[0]))

static void write_cache(struct fixture *fixture, const char *access, const char *expires,
	const char *refresh, const char *registered_until)
{
	surroundings_write(&fixture->surroundings, CACHE,
		"{\"startUrl\": \"https://x\", \"region\": \"eu-west-1\", \"accessToken\": "
		"\"%s\", \"expiresAt\": \"%s\", \"clientId\": \"ID\", \"clientSecret\": "
		"\"SECRET\", "
		"\"registrationExpiresAt\": \"%s\", \"refreshToken\": \"%s\"}",
		access, expires, registered_until, refresh);
}

static void in_s(int seconds, char date[64])
{
	time_t then = time(NULL) + seconds;
	struct tm tm;

	strftime(date, 64, "%FT%TZ", gmtime_r(&then, &tm));
}

static int get(struct fixture *fixture, bool refused, char **ret)
{
	fixture->why.text[0] = '\0';
	*ret = NULL;
	return sso_token_get(&fixture->token, refused, &fixture->stop, ret, &fixture->why);
}

static void expect(struct fixture *fixture, bool refused, const char *access)
{
	char *found;

	if (get(fixture, refused, &found))
		fail_msg("%s", fixture->why.text);
	assert_string_equal(found, access);
	free_secret(found);
}

static void expect_refused(struct fixture *fixture, bool refused, int error, const char *part)
{
	char *found;

	assert_int_equal(get(fixture, refused, &found), error);
	assert_null(found);
	if (!strstr(fixture->why.text, part))
		fail_msg("\"%s\" lacks \"%s\"", fixture->why.text, part);
}

static void expect_in_file(struct fixture *fixture, const char *name, const char *value)
{
	char *text, *found;

	assert_int_equal(read_secret_file(fixture->path, &text), 0);
	found = json_string_of(text, name);
	assert_non_null(found);
	assert_string_equal(found, value);
	free_secret(found);
	free_secret(text);
}

static void one_that_lasts_is_taken_as_it_is(void **state)
{
	static const struct script_step steps[] = {{"POST", RENEWED("B", "R2"), .again = 1}};
	struct fixture *fixture = *state;

	SERVE(fixture, steps);
	write_cache(fixture, "A", FAR_AWAY, "R1", FAR_AWAY);
	expect(fixture, false, "A");
	assert_int_equal(script_requests(fixture->script), 0);
}

static void an_expired_one_is_renewed_and_written_back(void **state)
{
	static const struct script_step steps[] = {{"\"refreshToken\":\"R1\"", RENEWED("B", "R2")}};
	struct fixture *fixture = *state;
	struct stat st;

	SERVE(fixture, steps);
	write_cache(fixture, "A", PAST, "R1", FAR_AWAY);
	assert_int_equal(chmod(fixture->path, 0600), 0);
	expect(fixture, false, "B");
	expect_in_file(fixture, "accessToken", "B");
	expect_in_file(fixture, "refreshToken", "R2");
	expect_in_file(fixture, "startUrl", "https://x");
	expect_in_file(fixture, "clientSecret", "SECRET");
	assert_int_equal(stat(fixture->path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_non_null(strstr(script_request(fixture->script, 0), "POST /token HTTP/1.1\r\n"));
	assert_non_null(strstr(script_request(fixture->script, 0),
		"\r\n\r\n{\"clientId\":\"ID\",\"clientSecret\":\"SECRET\",\"grantType\":"
		"\"refresh_token\",\"refreshToken\":\"R1\"}"));
	/* It is good for hours now. */
	expect(fixture, false, "B");
	assert_int_equal(script_requests(fixture->script), 1);
}

static void one_that_is_not_accepted_is_renewed(void **state)
{
	static const struct script_step steps[] = {{"POST", RENEWED("B", "R2")}};
	struct fixture *fixture = *state;

	SERVE(fixture, steps);
	write_cache(fixture, "A", FAR_AWAY, "R1", FAR_AWAY);
	expect(fixture, true, "B");
	expect_in_file(fixture, "accessToken", "B");
}

static void a_renewal_that_fails_leaves_what_still_lives(void **state)
{
	static const struct script_step steps[] = {
		{"POST", "HTTP/1.1 500 X\r\n\r\n"}, {"POST", RENEWED("B", "R2")}};
	struct fixture *fixture = *state;
	char soon[64];

	SERVE(fixture, steps);
	in_s(300, soon);
	write_cache(fixture, "A", soon, "R1", FAR_AWAY);
	expect(fixture, false, "A");
	expect(fixture, false, "B");
	assert_int_equal(script_requests(fixture->script), 2);
}

static void what_can_not_be_renewed(void **state)
{
	static const struct script_step steps[] = {
		{"POST", "HTTP/1.1 400 X\r\n\r\n{\"error\":\"invalid_grant\"}"},
		{"POST", "HTTP/1.1 503 X\r\n\r\n"}, {"POST", "HTTP/1.1 200 OK\r\n\r\n{}"},
		{"POST", "HTTP/1.1 200 OK\r\n\r\n{\"accessToken\":\"B\",\"expiresIn\":0}"}};
	struct fixture *fixture = *state;

	SERVE(fixture, steps);
	expect_refused(fixture, false, -EACCES, "can't be read: run aws sso login");
	write_cache(fixture, "A", PAST, "R1", FAR_AWAY);
	expect_refused(fixture, false, -EACCES, "can't be renewed any more: run aws sso login");
	expect_refused(fixture, false, -EIO, "HTTP 503");
	expect_refused(fixture, false, -EIO, "makes no sense");
	expect_refused(fixture, false, -EIO, "makes no sense");
	/* Without a registration that lasts, or a refresh token, nobody is asked. */
	write_cache(fixture, "A", PAST, "R1", PAST);
	expect_refused(fixture, false, -EACCES, "is expired: run aws sso login");
	write_cache(fixture, "A", PAST, "", FAR_AWAY);
	expect_refused(fixture, false, -EACCES, "is expired: run aws sso login");
	write_cache(fixture, "A", FAR_AWAY, "", FAR_AWAY);
	expect_refused(fixture, true, -EACCES, "is not accepted: run aws sso login");
	assert_int_equal(script_requests(fixture->script), 4);
}

static void nothing_can_be_written(struct rlimit *ret_before)
{
	struct rlimit none;

	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, ret_before), 0);
	none = (struct rlimit){.rlim_max = ret_before->rlim_max};
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
}

/* A file that can't be written: the renewed token lives in memory, until somebody logs in. */
static void one_that_can_not_be_saved(void **state)
{
	static const struct script_step steps[] = {{"\"refreshToken\":\"R1\"", RENEWED("B", "R2")},
		{"\"refreshToken\":\"R2\"", RENEWED("C", "R3")}};
	struct rlimit before;
	struct fixture *fixture = *state;

	SERVE(fixture, steps);
	write_cache(fixture, "A", PAST, "R1", FAR_AWAY);
	nothing_can_be_written(&before);
	expect(fixture, false, "B");
	expect(fixture, false, "B");
	expect(fixture, true, "C");
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	expect_in_file(fixture, "accessToken", "A");
	expect(fixture, false, "C");
	assert_int_equal(script_requests(fixture->script), 2);
	write_cache(fixture, "D", FAR_AWAY, "R9", FAR_AWAY);
	expect(fixture, false, "D");
	/* Who logs out means it. */
	assert_int_equal(remove(fixture->path), 0);
	expect_refused(fixture, false, -EACCES, "can't be read");
}

/* The refresh token in the file is used up by the first volume's renewal. */
static void one_that_can_not_be_saved_is_every_volumes(void **state)
{
	static const struct script_step steps[] = {{"\"refreshToken\":\"R1\"", RENEWED("B", "R2")},
		{"\"refreshToken\":\"R2\"", RENEWED("C", "R3")}};
	struct fixture *fixture = *state;
	struct sso_token first;
	struct rlimit before;

	SERVE(fixture, steps);
	write_cache(fixture, "A", PAST, "R1", FAR_AWAY);
	nothing_can_be_written(&before);
	expect(fixture, false, "B");
	first = fixture->token;
	assert_int_equal(sso_token_init(&fixture->token, "corp", "eu-west-1", &fixture->why), 0);
	expect(fixture, false, "B");
	expect(fixture, true, "C");
	/* Also when the first volume has ended. */
	sso_token_free(&first);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	expect(fixture, false, "C");
	assert_int_equal(script_requests(fixture->script), 2);
	expect_in_file(fixture, "refreshToken", "R1");
}

/* Who keeps the file elsewhere goes on with a link to it. */
static void a_link_stays_a_link(void **state)
{
	static const struct script_step steps[] = {{"POST", RENEWED("B", "R2")}};
	struct fixture *fixture = *state;
	char elsewhere[300];
	struct stat st;

	SERVE(fixture, steps);
	write_cache(fixture, "A", PAST, "R1", FAR_AWAY);
	snprintf(elsewhere, sizeof elsewhere, "%s.elsewhere", fixture->path);
	assert_int_equal(rename(fixture->path, elsewhere), 0);
	assert_int_equal(symlink(elsewhere, fixture->path), 0);
	expect(fixture, false, "B");
	assert_int_equal(lstat(fixture->path, &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	expect_in_file(fixture, "refreshToken", "R2");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(one_that_lasts_is_taken_as_it_is, setup, teardown),
		cmocka_unit_test_setup_teardown(
			an_expired_one_is_renewed_and_written_back, setup, teardown),
		cmocka_unit_test_setup_teardown(
			one_that_is_not_accepted_is_renewed, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_renewal_that_fails_leaves_what_still_lives, setup, teardown),
		cmocka_unit_test_setup_teardown(what_can_not_be_renewed, setup, teardown),
		cmocka_unit_test_setup_teardown(one_that_can_not_be_saved, setup, teardown),
		cmocka_unit_test_setup_teardown(
			one_that_can_not_be_saved_is_every_volumes, setup, teardown),
		cmocka_unit_test_setup_teardown(a_link_stays_a_link, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
