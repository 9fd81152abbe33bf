#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "origin/environment.h"

#define SOURCE "s3://bucket/prefix"

static int set_up(void **state)
{
	(void)state;
	clearenv();
	return setenv("PATH", "/bin", 1);
}

static char *say(const struct origin_config *config)
{
	char *said;

	assert_int_equal(origin_environment_say(config, &said), 0);
	return said;
}

/* What the daemon with this environment says of what this process has. */
static int check(
	const struct origin_config *config, const char *const *environment, struct why *why)
{
	char *said = say(config);
	int r = origin_environment_check(said, (char *const *)environment, why);

	free(said);
	return r;
}

static void refused(const struct origin_config *config, const char *const *environment,
	const char *const *words, const char *no_word)
{
	struct why why = {""};

	assert_int_equal(check(config, environment, &why), -EINVAL);
	for (; *words; words++)
		assert_non_null(strstr(why.text, *words));
	assert_null(strstr(why.text, no_word));
}

static void nothing_is_said_of_what_does_not_count(void **state)
{
	static const struct origin_config nothing[] = {
		{.source = "file:///tmp"},
		{.source = "https://host/"},
		{.source = "hf://org/name"},
		{.source = SOURCE,
			.endpoint = "http://a",
			.region = "b",
			.credentials = "c",
			.aws_profile = "d"},
		{.source = SOURCE, .endpoint = "http://a", .region = "b", .anonymous = true},
	};

	(void)state;
	setenv("AWS_ENDPOINT_URL", "http://a", 1);
	setenv("AWS_REGION", "r", 1);
	setenv("AWS_PROFILE", "p", 1);
	setenv("AWS_ACCESS_KEY_ID", "k", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "s", 1);
	setenv("AWS_SESSION_TOKEN", "t", 1);
	setenv("AWS_CONFIG_FILE", "f", 1);
	setenv("AWS_ROLE_ARN", "f", 1);
	for (size_t i = 0; i < sizeof nothing / sizeof nothing[0]; i++) {
		char *said = say(&nothing[i]);

		assert_string_equal(said, "");
		free(said);
	}
}

static void no_value_is_said(void **state)
{
	const struct origin_config config = {.source = SOURCE};
	char *said, *again;

	(void)state;
	setenv("AWS_ACCESS_KEY_ID", "AKIAHIDDEN", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "wJalrHIDDEN", 1);
	said = say(&config);
	again = say(&config);
	assert_non_null(strstr(said, "AWS_SECRET_ACCESS_KEY="));
	assert_null(strstr(said, "HIDDEN"));
	/* The key is another each time. */
	assert_string_not_equal(said, again);
	assert_int_equal(strlen(said), strlen(again));
	free(said);
	free(again);
}

static void the_same_is_the_same(void **state)
{
	const struct origin_config config = {.source = SOURCE};
	const char *more[] = {"AWS_REGION=r", "AWS_SESSION_TOKEN=only here",
		"AWS_ENDPOINT_URL=http://a", "AWS_ACCESS_KEY_ID=k", "AWS_SECRET_ACCESS_KEY=s",
		NULL};
	struct why why;

	(void)state;
	assert_int_equal(check(&config, more, &why), 0);
	setenv("AWS_ENDPOINT_URL", "http://a", 1);
	setenv("AWS_ACCESS_KEY_ID", "k", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "s", 1);
	setenv("AWS_PROFILE", "", 1); /* as unset */
	assert_int_equal(check(&config, (const char *const *)environ, &why), 0);
	assert_int_equal(check(&config, more, &why), 0);
	/* The value counts, and not by which of two names. */
	unsetenv("AWS_ENDPOINT_URL");
	setenv("AWS_ENDPOINT_URL_S3", "http://a", 1);
	setenv("AWS_DEFAULT_REGION", "r", 1);
	assert_int_equal(check(&config, more, &why), 0);
}

static void another_is_refused(void **state)
{
	const struct origin_config config = {.source = SOURCE};
	const struct origin_config elsewhere = {.source = SOURCE, .endpoint = "http://c"};
	const char *none[] = {"HOME=/", NULL};
	const char *others[] = {"AWS_ENDPOINT_URL_S3=http://b", "AWS_ENDPOINT_URL=http://a",
		"AWS_SECRET_ACCESS_KEY=theirs", NULL};

	(void)state;
	setenv("AWS_ENDPOINT_URL", "http://a", 1);
	refused(&config, none,
		(const char *[]){"AWS_ENDPOINT_URL (it has none)", "endpoint=", NULL},
		"credentials=");
	refused(&config, others,
		(const char *[]){"AWS_ENDPOINT_URL (it has http://b)", "endpoint=", NULL},
		"credentials=");
	setenv("AWS_ACCESS_KEY_ID", "mine", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "mine", 1);
	refused(&elsewhere, others,
		(const char *[]){
			"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "credentials=", NULL},
		"theirs");
}

static void a_hub_has_its_own(void **state)
{
	const struct origin_config config = {.source = "hf://org/name"};
	const struct origin_config anonymous = {.source = "hf://org/name", .credentials = "file"};
	const char *theirs[] = {"HF_TOKEN=hf_theirs", "HF_ENDPOINT=http://hub", NULL};
	struct why why;

	(void)state;
	setenv("AWS_PROFILE", "p", 1);
	setenv("HUGGING_FACE_HUB_TOKEN", "hf_theirs", 1);
	setenv("HF_TOKEN_PATH", "does not count beside a token", 1);
	assert_int_equal(check(&config, theirs, &why), 0);
	setenv("HF_TOKEN", "hf_mine", 1);
	refused(&config, theirs, (const char *[]){"HF_TOKEN", "credentials=", NULL}, "hf_theirs");
	assert_int_equal(check(&anonymous, theirs, &why), 0);
	setenv("HF_ENDPOINT", "http://other", 1);
	refused(&anonymous, theirs,
		(const char *[]){"HF_ENDPOINT (it has http://hub)", "endpoint=", NULL}, "HF_TOKEN");
}

static void nonsense_is_refused(void **state)
{
	static const char key[] = "00112233445566778899aabbccddeeff";
	char text[128];
	char *none[] = {NULL};
	struct why why;

	(void)state;
	assert_int_equal(origin_environment_check("short AWS_PROFILE=1", none, &why), -EINVAL);
	snprintf(text, sizeof text, "%s LD_PRELOAD=1", key);
	assert_int_equal(origin_environment_check(text, none, &why), -EINVAL);
	snprintf(text, sizeof text, "%s AWS_PROFILE", key);
	assert_int_equal(origin_environment_check(text, none, &why), -EINVAL);
	assert_int_equal(origin_environment_check(" ", none, &why), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(nothing_is_said_of_what_does_not_count, set_up),
		cmocka_unit_test_setup(no_value_is_said, set_up),
		cmocka_unit_test_setup(the_same_is_the_same, set_up),
		cmocka_unit_test_setup(another_is_refused, set_up),
		cmocka_unit_test_setup(a_hub_has_its_own, set_up),
		cmocka_unit_test_setup(nonsense_is_refused, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
