/* The life of credentials: at hand, fetched, renewed, refused, replaced. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "script.h"
#include "surroundings.h"
#include "wait.h"

struct fixture {
	struct surroundings surroundings;
	struct origin_engine *engine;
	struct chain *chain;
	struct credentials credentials;
	uint64_t number;
	struct why why;
};

static int setup(void **state)
{
	struct fixture *fixture = calloc(1, sizeof *fixture);

	surroundings_begin(&fixture->surroundings);
	assert_int_equal(origin_engine_new(&fixture->engine), 0);
	*state = fixture;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fixture = *state;

	chain_free(fixture->chain);
	origin_engine_free(fixture->engine);
	surroundings_end(&fixture->surroundings);
	free(fixture);
	return 0;
}

static int get(struct fixture *fixture)
{
	return wait_credentials(fixture->chain, fixture->engine, &fixture->credentials,
		&fixture->number, &fixture->why);
}

static void open_chain(struct fixture *fixture, const struct origin_config *config)
{
	struct why why = {""};

	if (chain_new(config, "us-east-1", &fixture->chain, &why))
		fail_msg("%s", why.text);
}

static void expect_key(struct fixture *fixture, const char *key_id)
{
	if (get(fixture))
		fail_msg("%s", fixture->why.text);
	assert_string_equal(fixture->credentials.key_id, key_id);
}

/* Until the key is this one. */
static void wait_key(struct fixture *fixture, const char *key_id)
{
	for (int i = 0; i < 2000; i++) {
		assert_int_equal(get(fixture), 0);
		if (!strcmp(fixture->credentials.key_id, key_id))
			return;
		usleep(5000);
	}
	fail_msg("the key is still %s", fixture->credentials.key_id);
}

#define FILE_OF(key) "[default]\naws_access_key_id=" key "\naws_secret_access_key=S\n"

static void a_file_is_read_again_when_it_changes(void **state)
{
	struct fixture *fixture = *state;
	char path[128], *identity;
	struct origin_config config = {.credentials = path};

	snprintf(path, sizeof path, "%s/keys", fixture->surroundings.home);
	surroundings_write(&fixture->surroundings, "keys", FILE_OF("A") "aws_session_token=T\n");
	open_chain(fixture, &config);
	identity = chain_identity(fixture->chain);
	assert_non_null(strstr(identity, "/keys:default"));
	free(identity);
	expect_key(fixture, "A");
	assert_string_equal(fixture->credentials.token, "T");
	surroundings_write(&fixture->surroundings, "keys", FILE_OF("B"));
	wait_key(fixture, "B");
	assert_string_equal(fixture->credentials.token, "");
	/* Half written: the old ones go on, also when they are refused. */
	surroundings_write(&fixture->surroundings, "keys", "[default]\naws_access_key_id=C\n");
	assert_true(chain_reject(fixture->chain, fixture->number));
	expect_key(fixture, "B");
	surroundings_write(&fixture->surroundings, "keys", FILE_OF("D"));
	assert_true(chain_reject(fixture->chain, fixture->number));
	expect_key(fixture, "D");
	/* Of older ones than these nothing is to be learned. */
	assert_true(chain_reject(fixture->chain, fixture->number - 1));
	assert_int_equal(chain_get(fixture->chain, fixture->engine, &fixture->credentials,
				 &fixture->number, &fixture->why),
		0);
}

static void keys_of_the_environment_are_the_only_ones(void **state)
{
	struct fixture *fixture = *state;
	struct origin_config config = {0};
	char *identity;

	setenv("AWS_ACCESS_KEY_ID", "AKID", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "S", 1);
	setenv("AWS_PROFILE", "nobody", 1);
	open_chain(fixture, &config);
	identity = chain_identity(fixture->chain);
	assert_string_equal(identity, "AKID");
	free(identity);
	expect_key(fixture, "AKID");
	assert_false(chain_reject(fixture->chain, fixture->number));
	expect_key(fixture, "AKID");
}

/* A command that counts its runs: KEY1, KEY2, …, each for some seconds. */
static void write_counter(struct fixture *fixture, int life_s)
{
	const char *home = fixture->surroundings.home;

	surroundings_write(&fixture->surroundings, "counter",
		"#!/bin/sh\necho x >>%s/runs\nn=$(wc -l <%s/runs)\n"
		"echo '{\"Version\":1,\"AccessKeyId\":\"KEY'$n'\",\"SecretAccessKey\":\"S\","
		"\"Expiration\":\"'$(date -u -d '+%d seconds' +%%Y-%%m-%%dT%%H:%%M:%%SZ)'\"}'\n",
		home, home, life_s);
	surroundings_write(&fixture->surroundings, ".aws/config",
		"[default]\ncredential_process = %s/counter\n", home);
}

static void they_are_renewed_before_they_expire(void **state)
{
	struct fixture *fixture = *state;
	struct origin_config config = {0};

	write_counter(fixture, 9);
	open_chain(fixture, &config);
	expect_key(fixture, "KEY1");
	/* Nobody waits for the renewal. */
	for (int i = 0; i < 4000 && strcmp(fixture->credentials.key_id, "KEY2"); i++) {
		assert_int_equal(chain_get(fixture->chain, fixture->engine, &fixture->credentials,
					 &fixture->number, &fixture->why),
			0);
		assert_true(fixture->credentials.expires_s >= time(NULL));
		usleep(5000);
	}
	assert_string_equal(fixture->credentials.key_id, "KEY2");
}

static void refused_ones_are_fetched_anew_and_waited_for(void **state)
{
	struct fixture *fixture = *state;
	struct origin_config config = {0};

	write_counter(fixture, 3600);
	open_chain(fixture, &config);
	expect_key(fixture, "KEY1");
	assert_true(chain_reject(fixture->chain, fixture->number));
	assert_true(chain_reject(fixture->chain, fixture->number));
	assert_int_equal(chain_get(fixture->chain, fixture->engine, &fixture->credentials,
				 &fixture->number, &fixture->why),
		-EAGAIN);
	expect_key(fixture, "KEY2");
}

static void a_failure_is_told_and_tried_again(void **state)
{
	struct fixture *fixture = *state;
	struct origin_config config = {0};

	surroundings_write(&fixture->surroundings, "counter",
		"#!/bin/sh\necho 'no ticket wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY' >&2\nexit 3\n");
	surroundings_write(&fixture->surroundings, ".aws/config",
		"[default]\ncredential_process = %s/counter\n", fixture->surroundings.home);
	open_chain(fixture, &config);
	assert_int_equal(get(fixture), -EACCES);
	assert_non_null(strstr(fixture->why.text, "exit status 3: no ticket ..."));
	write_counter(fixture, 3600);
	for (int i = 0; i < 2000 && get(fixture); i++)
		usleep(5000);
	assert_string_equal(fixture->credentials.key_id, "KEY1");
}

static void the_end_of_a_chain_ends_its_process(void **state)
{
	struct fixture *fixture = *state;
	struct origin_config config = {0};
	time_t begun = time(NULL);

	surroundings_write(&fixture->surroundings, ".aws/config",
		"[default]\ncredential_process = sleep 50\n");
	open_chain(fixture, &config);
	assert_int_equal(chain_get(fixture->chain, fixture->engine, &fixture->credentials,
				 &fixture->number, &fixture->why),
		-EAGAIN);
	usleep(50000);
	chain_free(fixture->chain);
	fixture->chain = NULL;
	origin_engine_free(fixture->engine);
	fixture->engine = NULL;
	assert_true(time(NULL) - begun < 20);
}

/* Several volumes whose helpers hang: another's is run all the same. */
static void those_that_hang_hold_up_nobody(void **state)
{
	enum { HANGING = 5 };
	struct fixture *fixture = *state;
	struct origin_config config = {.aws_profile = "hangs"}, good = {.aws_profile = "good"};
	struct chain *hanging[HANGING];

	write_counter(fixture, 3600);
	surroundings_write(&fixture->surroundings, ".aws/config",
		"[profile hangs]\ncredential_process = sleep 50\n"
		"[profile good]\ncredential_process = %s/counter\n",
		fixture->surroundings.home);
	for (int i = 0; i < HANGING; i++) {
		assert_int_equal(chain_new(&config, "us-east-1", &hanging[i], NULL), 0);
		assert_int_equal(chain_get(hanging[i], fixture->engine, &fixture->credentials,
					 &fixture->number, &fixture->why),
			-EAGAIN);
	}
	open_chain(fixture, &good);
	expect_key(fixture, "KEY1");
	for (int i = 0; i < HANGING; i++)
		chain_free(hanging[i]);
}

static void requests_wait_for_them(void **state)
{
	static const struct script_step steps[] = {
		{"Credential=KEY1/",
			"HTTP/1.1 403 X\r\n\r\n<Error><Code>ExpiredToken</Code></Error>"},
		{"Credential=KEY2/",
			"HTTP/1.1 200 OK\r\n\r\n<ListBucketResult><KeyCount>0</KeyCount>"
			"</ListBucketResult>"}};
	struct fixture *fixture = *state;
	struct script *script = script_start(steps, 2);
	struct wait_list *list = calloc(1, sizeof *list);
	char endpoint[64];
	struct origin_config config = {.source = "s3://bucket", .endpoint = endpoint};
	struct origin *origin;

	snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%u", script_port(script));
	write_counter(fixture, 3600);
	assert_int_equal(origin_open(fixture->engine, &config, &origin, NULL), 0);
	assert_int_equal(wait_list(origin, "", list), 0);
	assert_int_equal(script_requests(script), 2);
	origin_unref(origin);
	script_stop(script);
	free(list);
}

static void a_head_learns_by_the_probe_beside_it(void **state)
{
	static const struct script_step steps[] = {{"HEAD", "HTTP/1.1 403 X\r\n\r\n"},
		{"Credential=KEY1/",
			"HTTP/1.1 403 X\r\n\r\n<Error><Code>ExpiredToken</Code></Error>"},
		{"HEAD", "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 3\r\n\r\n"},
		{"GET",
			"HTTP/1.1 200 OK\r\n\r\n<ListBucketResult><KeyCount>0</KeyCount>"
			"</ListBucketResult>",
			.again = 1}};
	struct fixture *fixture = *state;
	struct script *script = script_start(steps, 4);
	char endpoint[64];
	struct origin_config config = {.source = "s3://bucket", .endpoint = endpoint};
	struct origin_attr attr;
	struct origin *origin;

	snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%u", script_port(script));
	write_counter(fixture, 3600);
	assert_int_equal(origin_open(fixture->engine, &config, &origin, NULL), 0);
	assert_int_equal(wait_stat(origin, "f", &attr), 0);
	assert_int_equal(attr.kind, ORIGIN_FILE);
	assert_int_equal(script_requests(script), 5);
	origin_unref(origin);
	script_stop(script);
}

static void requests_are_told_why_not(void **state)
{
	struct fixture *fixture = *state;
	struct wait_list *list = calloc(1, sizeof *list);
	struct origin_config config = {.source = "s3://bucket", .endpoint = "http://127.0.0.1:1"};
	struct origin_stats stats;
	struct origin *origin;

	surroundings_write(&fixture->surroundings, ".aws/config",
		"[default]\ncredential_process = /no/such/helper\n");
	assert_int_equal(origin_open(fixture->engine, &config, &origin, NULL), 0);
	assert_int_equal(wait_list(origin, "", list), -EACCES);
	origin_stats(origin, &stats);
	assert_non_null(strstr(stats.last_error, "/no/such/helper can't be run"));
	origin_unref(origin);
	free(list);
}

static void a_web_servers_token(void **state)
{
	static const struct script_step steps[] = {
		{"Authorization: Bearer first", "HTTP/1.1 401 X\r\n\r\n"},
		{"Authorization: Bearer second\r\n",
			"HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 3\r\n\r\n"}};
	struct fixture *fixture = *state;
	struct script *script = script_start(steps, 2), *other;
	char source[64], path[128], moved[128];
	struct script_step there = {"HEAD /there", "HTTP/1.1 200 OK\r\nETag: \"e\"\r\n"
						   "Content-Length: 3\r\n\r\n"};
	struct script_step to_there = {"Authorization: Bearer second\r\n", moved};
	struct origin_config config = {.source = source, .credentials = path};
	struct origin_attr attr;
	struct origin *origin;

	snprintf(source, sizeof source, "http://127.0.0.1:%u/", script_port(script));
	snprintf(path, sizeof path, "%s/token", fixture->surroundings.home);
	surroundings_write(&fixture->surroundings, "token", "Bearer first\n");
	assert_int_equal(origin_open(fixture->engine, &config, &origin, NULL), 0);
	surroundings_write(&fixture->surroundings, "token", "Authorization: Bearer second\n");
	assert_int_equal(wait_stat(origin, "a", &attr), 0);
	assert_int_equal(script_requests(script), 2);
	origin_unref(origin);
	script_stop(script);

	/* It is for the one server: a redirect leads to another port here. */
	other = script_start(&there, 1);
	snprintf(moved, sizeof moved,
		"HTTP/1.1 302 X\r\nLocation: http://127.0.0.1:%u/there\r\n\r\n",
		script_port(other));
	script = script_start(&to_there, 1);
	snprintf(source, sizeof source, "http://127.0.0.1:%u/", script_port(script));
	assert_int_equal(origin_open(fixture->engine, &config, &origin, NULL), 0);
	assert_int_equal(wait_stat(origin, "a", &attr), 0);
	assert_int_equal(script_requests(other), 1);
	assert_null(strcasestr(script_request(other, 0), "authorization"));
	origin_unref(origin);
	script_stop(script);
	script_stop(other);
}

static void files_of_a_web_servers_token_that_are_none(void **state)
{
	static const char *const texts[] = {"", "TOPSECRET", "Bearer ", "Digest TOPSECRET",
		"Bearer TOPSECRET\nHost: evil", "Bearer\n"};
	struct fixture *fixture = *state;
	char path[128];
	struct why why;

	snprintf(path, sizeof path, "%s/token", fixture->surroundings.home);
	assert_int_equal(chain_new_header(path, &fixture->chain, &why), -ENOENT);
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		surroundings_write(&fixture->surroundings, "token", "%s", texts[i]);
		assert_int_equal(chain_new_header(path, &fixture->chain, &why), -EINVAL);
		assert_null(strstr(why.text, "TOPSECRET"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			a_file_is_read_again_when_it_changes, setup, teardown),
		cmocka_unit_test_setup_teardown(
			keys_of_the_environment_are_the_only_ones, setup, teardown),
		cmocka_unit_test_setup_teardown(
			they_are_renewed_before_they_expire, setup, teardown),
		cmocka_unit_test_setup_teardown(
			refused_ones_are_fetched_anew_and_waited_for, setup, teardown),
		cmocka_unit_test_setup_teardown(a_failure_is_told_and_tried_again, setup, teardown),
		cmocka_unit_test_setup_teardown(
			the_end_of_a_chain_ends_its_process, setup, teardown),
		cmocka_unit_test_setup_teardown(those_that_hang_hold_up_nobody, setup, teardown),
		cmocka_unit_test_setup_teardown(requests_wait_for_them, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_head_learns_by_the_probe_beside_it, setup, teardown),
		cmocka_unit_test_setup_teardown(requests_are_told_why_not, setup, teardown),
		cmocka_unit_test_setup_teardown(a_web_servers_token, setup, teardown),
		cmocka_unit_test_setup_teardown(
			files_of_a_web_servers_token_that_are_none, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
