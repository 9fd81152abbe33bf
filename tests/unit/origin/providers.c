/* Each provider against a scripted server: what it asks, what it takes, what it says when refused. */
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

#include "script.h"
#include "surroundings.h"

#define OK       "HTTP/1.1 200 OK\r\n\r\n"
#define FAR_AWAY "2099-01-01T00:00:00Z"
#define STS_OK                                                                                     \
	OK "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">"              \
	   "<AssumeRoleResult><Credentials><AccessKeyId>ASIA</AccessKeyId>"                        \
	   "<SecretAccessKey>TOPSECRET</SecretAccessKey><SessionToken>TOKEN</SessionToken>"        \
	   "<Expiration>" FAR_AWAY "</Expiration></Credentials></AssumeRoleResult>"                \
	   "</AssumeRoleResponse>"
#define JSON_OK                                                                                    \
	OK "{\"Code\":\"Success\",\"AccessKeyId\":\"ASIA\",\"SecretAccessKey\":\"TOPSECRET\","     \
	   "\"Token\":\"TOKEN\",\"Expiration\":\"" FAR_AWAY "\"}"

/* By the SHA-1 of "corp". */
#define SSO_CACHE ".aws/sso/cache/ee0bfd2552fbd840c02cc48b6e823320543c450f.json"

struct fixture {
	struct surroundings surroundings;
	struct origin_engine *engine;
	struct script *script;
	char url[64];
	struct credentials credentials;
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

	origin_engine_free(fixture->engine);
	if (fixture->script)
		script_stop(fixture->script);
	surroundings_end(&fixture->surroundings);
	free(fixture);
	return 0;
}

static void serve(struct fixture *fixture, const struct script_step *steps, size_t n)
{
	if (fixture->script)
		script_stop(fixture->script);
	fixture->script = script_start(steps, n);
	snprintf(fixture->url, sizeof fixture->url, "http://127.0.0.1:%u",
		script_port(fixture->script));
}

#define SERVE(fixture, steps) serve(fixture, steps, sizeof(steps) / sizeof((steps)[0]))

static const char *asked(struct fixture *fixture, size_t i)
{
	return script_request(fixture->script, i);
}

/* The answer of the chain that the surroundings make, with why. */
static int ask_profile(struct fixture *fixture, const char *profile)
{
	struct origin_config config = {.aws_profile = profile};
	struct chain *chain;
	int r;

	fixture->why.text[0] = '\0';
	r = chain_new(&config, "eu-west-1", &chain, &fixture->why);
	if (r)
		return r;
	r = wait_credentials(chain, fixture->engine, &fixture->credentials, NULL, &fixture->why);
	chain_free(chain);
	assert_null(strstr(fixture->why.text, "TOPSECRET"));
	return r;
}

static void expect(struct fixture *fixture, const char *profile, const char *key_id)
{
	if (ask_profile(fixture, profile))
		fail_msg("%s", fixture->why.text);
	assert_string_equal(fixture->credentials.key_id, key_id);
}

static void expect_temporary(struct fixture *fixture, const char *profile)
{
	expect(fixture, profile, "ASIA");
	assert_string_equal(fixture->credentials.secret, "TOPSECRET");
	assert_string_equal(fixture->credentials.token, "TOKEN");
	assert_int_equal(fixture->credentials.expires_s, 4070908800);
}

static void expect_refused(
	struct fixture *fixture, const char *profile, int error, const char *part)
{
	assert_int_equal(ask_profile(fixture, profile), error);
	if (!strstr(fixture->why.text, part))
		fail_msg("\"%s\" lacks \"%s\"", fixture->why.text, part);
}

static void a_role_by_another_profile(void **state)
{
	static const struct script_step steps[] = {{"POST / ", STS_OK}};
	struct fixture *fixture = *state;

	SERVE(fixture, steps);
	setenv("AWS_ENDPOINT_URL_STS", fixture->url, 1);
	surroundings_write(&fixture->surroundings, ".aws/config",
		"[profile job]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = base\n"
		"external_id = e/1\nrole_session_name = me\nduration_seconds = 900\n");
	surroundings_write(&fixture->surroundings, ".aws/credentials",
		"[base]\naws_access_key_id = AKID\naws_secret_access_key = S\n"
		"aws_session_token = BASETOKEN\n");
	expect_temporary(fixture, "job");
	assert_non_null(strstr(asked(fixture, 0),
		"\r\n\r\nAction=AssumeRole&Version=2011-06-15&"
		"RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&RoleSessionName=me&"
		"DurationSeconds=900&ExternalId=e%2F1"));
	assert_non_null(strstr(asked(fixture, 0), "Credential=AKID/"));
	assert_non_null(strstr(asked(fixture, 0), "/eu-west-1/sts/aws4_request"));
	assert_non_null(strstr(asked(fixture, 0),
		"SignedHeaders=content-type;host;x-amz-date;x-amz-security-token,"));
	assert_non_null(strstr(asked(fixture, 0), "x-amz-security-token: BASETOKEN"));
}

static void roles_by_way_of_each_other(void **state)
{
	static const struct script_step steps[] = {
		{"Credential=AKID/", STS_OK}, {"Credential=ASIA/", STS_OK}};
	struct fixture *fixture = *state;

	SERVE(fixture, steps);
	setenv("AWS_ENDPOINT_URL", fixture->url, 1);
	surroundings_write(&fixture->surroundings, ".aws/config",
		"[profile a]\nrole_arn = arn:a\nsource_profile = b\n"
		"[profile b]\nrole_arn = arn:b\nsource_profile = b\n"
		"aws_access_key_id = AKID\naws_secret_access_key = S\n");
	expect_temporary(fixture, "a");
	assert_int_equal(script_requests(fixture->script), 2);
}

static void a_role_by_the_environment(void **state)
{
	static const struct script_step steps[] = {{"Credential=AKID/", STS_OK}};
	struct fixture *fixture = *state;

	SERVE(fixture, steps);
	setenv("AWS_ENDPOINT_URL_STS", fixture->url, 1);
	setenv("AWS_ACCESS_KEY_ID", "AKID", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "S", 1);
	surroundings_write(&fixture->surroundings, ".aws/config",
		"[profile a]\nrole_arn = arn:a\ncredential_source = Environment\n");
	expect_temporary(fixture, "a");
	expect(fixture, NULL, "AKID");
}

static void what_the_token_service_refuses(void **state)
{
	static const struct script_step steps[] = {{"POST",
		"HTTP/1.1 403 X\r\n\r\n<ErrorResponse><Error><Code>AccessDenied</Code><Message>not "
		"you</Message></Error></ErrorResponse>"}};
	static const struct script_step nonsense[] = {
		{"POST", OK "<a><AccessKeyId>A</AccessKeyId>", .again = 1}};
	struct origin_config config = {0};
	struct fixture *fixture = *state;
	struct chain *chain;
	uint64_t number;

	SERVE(fixture, steps);
	surroundings_write(&fixture->surroundings, "token", "JWT\n");
	setenv("AWS_ENDPOINT_URL_STS", fixture->url, 1);
	setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/no/such/token", 1);
	expect_refused(fixture, NULL, -EINVAL, "AWS_ROLE_ARN");
	setenv("AWS_ROLE_ARN", "arn:a", 1);
	expect_refused(fixture, NULL, -EACCES, "/no/such/token can't be read");
	surroundings_write(&fixture->surroundings, ".aws/config",
		"[default]\nrole_arn = arn:a\nweb_identity_token_file = %s/token\n",
		fixture->surroundings.home);
	expect_refused(fixture, NULL, -EACCES, "answers HTTP 403 AccessDenied: not you");
	/* What makes no sense, or comes from a server in trouble, may be right next time: one waits. */
	SERVE(fixture, nonsense);
	setenv("AWS_ENDPOINT_URL_STS", fixture->url, 1);
	assert_int_equal(chain_new(&config, "us-east-1", &chain, NULL), 0);
	for (int i = 0; i < 2000 && !script_requests(fixture->script); i++) {
		assert_int_equal(chain_get(chain, fixture->engine, &fixture->credentials, &number,
					 &fixture->why),
			-EAGAIN);
		usleep(5000);
	}
	assert_int_not_equal(script_requests(fixture->script), 0);
	chain_free(chain);
}

static void web_identity(void **state)
{
	static const struct script_step steps[] = {
		{"WebIdentityToken=first", STS_OK}, {"WebIdentityToken=second", STS_OK}};
	struct fixture *fixture = *state;
	char path[128];

	SERVE(fixture, steps);
	snprintf(path, sizeof path, "%s/token", fixture->surroundings.home);
	surroundings_write(&fixture->surroundings, "token", "first\n");
	setenv("AWS_ENDPOINT_URL_STS", fixture->url, 1);
	setenv("AWS_WEB_IDENTITY_TOKEN_FILE", path, 1);
	setenv("AWS_ROLE_ARN", "arn:a", 1);
	setenv("AWS_ROLE_SESSION_NAME", "pod", 1);
	expect_temporary(fixture, NULL);
	assert_non_null(strstr(asked(fixture, 0),
		"\r\n\r\nAction=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Aa&"
		"RoleSessionName=pod&WebIdentityToken=first"));
	assert_null(strcasestr(asked(fixture, 0), "authorization"));
	surroundings_write(&fixture->surroundings, "token", "second\n");
	expect_temporary(fixture, NULL);
}

static void container(void **state)
{
	static const struct script_step steps[] = {{"Authorization: given\r\n", JSON_OK},
		{"Authorization: of the file\r\n", JSON_OK},
		{"GET /creds", "HTTP/1.1 403 X\r\n\r\n{\"code\":\"AccessDenied\"}"}};
	struct fixture *fixture = *state;
	char url[128], path[128];

	SERVE(fixture, steps);
	snprintf(url, sizeof url, "%s/creds?a=b", fixture->url);
	snprintf(path, sizeof path, "%s/token", fixture->surroundings.home);
	setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
	setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "given", 1);
	expect_temporary(fixture, NULL);
	assert_non_null(strstr(asked(fixture, 0), "GET /creds?a=b HTTP"));
	setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", path, 1);
	surroundings_write(&fixture->surroundings, "token", "of the file\n");
	expect_temporary(fixture, NULL);
	unsetenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
	unsetenv("AWS_CONTAINER_AUTHORIZATION_TOKEN");
	expect_refused(fixture, NULL, -EACCES, "HTTP 403");
	setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "two\r\nlines", 1);
	expect_refused(fixture, NULL, -EACCES, "line break");
}

static void hosts_that_a_container_does_not_ask(void **state)
{
	static const char *const urls[] = {"http://example.com/", "http://127.0.0.1@example.com/",
		"http://169.254.170.2.example.com/", "http://169.254.170.20/", "ftp://127.0.0.1/",
		"http://localhost.example.com/", "http://127.example.com/"};
	struct fixture *fixture = *state;

	for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
		setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", urls[i], 1);
		expect_refused(fixture, NULL, -EACCES, "may be asked without TLS");
	}
	setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "@example.com/", 1);
	expect_refused(fixture, NULL, -EACCES, "does not begin with a slash");
}

static void instance(void **state)
{
	static const struct script_step steps[] = {{"PUT /latest/api/token ", OK "IMDSTOKEN"},
		{"GET /latest/meta-data/iam/security-credentials/ ", OK "role-1\n"},
		{"GET /latest/meta-data/iam/security-credentials/role-1 ", JSON_OK}};
	static const struct script_step none[] = {
		{"PUT /latest/api/token ", OK "IMDSTOKEN"}, {"GET ", "HTTP/1.1 404 X\r\n\r\n"}};
	static const struct script_step version_1[] = {{"PUT", "HTTP/1.1 405 X\r\n\r\n"}};
	struct fixture *fixture = *state;

	unsetenv("AWS_EC2_METADATA_DISABLED");
	SERVE(fixture, steps);
	setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", fixture->url, 1);
	expect_temporary(fixture, NULL);
	assert_non_null(strstr(asked(fixture, 0), "X-aws-ec2-metadata-token-ttl-seconds: "));
	assert_non_null(strstr(asked(fixture, 1), "X-aws-ec2-metadata-token: IMDSTOKEN\r\n"));
	assert_non_null(strstr(asked(fixture, 2), "X-aws-ec2-metadata-token: IMDSTOKEN\r\n"));
	SERVE(fixture, none);
	setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", fixture->url, 1);
	expect_refused(fixture, NULL, -EACCES, "has no role");
	SERVE(fixture, version_1);
	setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", fixture->url, 1);
	expect_refused(fixture, NULL, -EACCES, "HTTP 405");
	setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1", 1);
	expect_refused(fixture, NULL, -EACCES, "no credentials found");
	setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
	expect_refused(fixture, NULL, -ENOENT, "no credentials found");
}

static void sso(void **state)
{
	static const struct script_step steps[] = {
		{"GET /federation/credentials?account_id=123&role_name=reader ",
			OK "{\"roleCredentials\":{\"accessKeyId\":\"ASIA\",\"secretAccessKey\":"
			   "\"TOPSECRET\",\"sessionToken\":\"TOKEN\",\"expiration\":4070908800000}"
			   "}"},
		{"GET", "HTTP/1.1 401 X\r\n\r\n{}"}};
	struct fixture *fixture = *state;

	SERVE(fixture, steps);
	setenv("AWS_ENDPOINT_URL_SSO", fixture->url, 1);
	surroundings_write(&fixture->surroundings, ".aws/config",
		"[profile s]\nsso_session = corp\nsso_account_id = 123\nsso_role_name = reader\n"
		"[sso-session corp]\nsso_region = eu-west-1\nsso_start_url = https://x\n");
	expect_refused(fixture, "s", -EACCES, "aws sso login");
	surroundings_write(&fixture->surroundings, SSO_CACHE,
		"{\"accessToken\":\"SSOTOKEN\",\"expiresAt\":\"2001-01-01T00:00:00Z\"}");
	expect_refused(fixture, "s", -EACCES, "is expired: run aws sso login");
	surroundings_write(&fixture->surroundings, SSO_CACHE,
		"{\"accessToken\":\"SSOTOKEN\",\"expiresAt\":\"2099-01-01T00:00:00UTC\"}");
	expect_temporary(fixture, "s");
	assert_non_null(strstr(asked(fixture, 0), "x-amz-sso_bearer_token: SSOTOKEN\r\n"));
	expect_refused(fixture, "s", -EACCES, "is not accepted: run aws sso login");
}

/* The portal says that a token which should last does not: one renewal, and the call again. */
static void an_sso_token_that_is_renewed(void **state)
{
	static const struct script_step steps[] = {
		{"x-amz-sso_bearer_token: OLD\r\n", "HTTP/1.1 401 X\r\n\r\n{}"},
		{"POST /token ", OK "{\"accessToken\":\"NEW\",\"expiresIn\":3600}"},
		{"x-amz-sso_bearer_token: NEW\r\n",
			OK "{\"roleCredentials\":{\"accessKeyId\":\"ASIA\",\"secretAccessKey\":"
			   "\"TOPSECRET\",\"sessionToken\":\"TOKEN\",\"expiration\":4070908800000}"
			   "}"},
		{"x-amz-sso_bearer_token: NEW\r\n", "HTTP/1.1 401 X\r\n\r\n{}", .again = 1},
		{"POST /token ", OK "{\"accessToken\":\"NEW\",\"expiresIn\":3600}", .again = 1}};
	struct fixture *fixture = *state;

	SERVE(fixture, steps);
	setenv("AWS_ENDPOINT_URL_SSO", fixture->url, 1);
	setenv("AWS_ENDPOINT_URL_SSO_OIDC", fixture->url, 1);
	surroundings_write(&fixture->surroundings, ".aws/config",
		"[profile s]\nsso_session = corp\nsso_account_id = 123\nsso_role_name = reader\n"
		"[sso-session corp]\nsso_region = eu-west-1\nsso_start_url = https://x\n");
	surroundings_write(&fixture->surroundings, SSO_CACHE,
		"{\"accessToken\":\"OLD\",\"expiresAt\":\"" FAR_AWAY "\",\"clientId\":\"ID\","
		"\"clientSecret\":\"TOPSECRET\",\"registrationExpiresAt\":\"" FAR_AWAY
		"\",\"refreshToken\":\"R\"}");
	expect_temporary(fixture, "s");
	assert_int_equal(script_requests(fixture->script), 3);
	/* No second renewal for one call. */
	expect_refused(fixture, "s", -EACCES, "is not accepted: run aws sso login");
	assert_int_equal(script_requests(fixture->script), 6);
}

static void answers_of_a_process(void **state)
{
	static const struct {
		const char *output, *part;
	} cases[] = {
		{"", "Version"},
		{"{\"Version\":2,\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"S\"}", "Version"},
		{"{\"Version\":1,\"AccessKeyId\":\"A\"}", "is missing"},
		{"{\"Version\":1,\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"TOPSECRET\","
		 "\"Expiration\":\"soon\"}",
			"Expiration is no date"},
		{"{\"Version\":1,\"AccessKeyId\":\"A\\n\",\"SecretAccessKey\":\"TOPSECRET\"}",
			"line break"},
	};
	struct fixture *fixture = *state;

	surroundings_write(&fixture->surroundings, ".aws/config",
		"[default]\ncredential_process = cat \"%s/the output\"\n",
		fixture->surroundings.home);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		surroundings_write(&fixture->surroundings, "the output", "%s", cases[i].output);
		expect_refused(fixture, NULL, -EACCES, cases[i].part);
	}
	surroundings_write(&fixture->surroundings, "the output",
		"{\"Version\":1,\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"S\"}");
	expect(fixture, NULL, "A");
	assert_int_equal(fixture->credentials.expires_s, 0);
	surroundings_write(&fixture->surroundings, ".aws/config",
		"[default]\ncredential_process = head -c 100000 /dev/zero\n");
	expect_refused(fixture, NULL, -EACCES, "prints more than");
	surroundings_write(&fixture->surroundings, ".aws/config",
		"[default]\ncredential_process = sh -c 'kill -9 $$'\n");
	expect_refused(fixture, NULL, -EACCES, "signal 9");
}

#define KEYS(key) "aws_access_key_id=" key "\naws_secret_access_key=S\n"

static void the_order(void **state)
{
	struct fixture *fixture = *state;

	surroundings_write(&fixture->surroundings, ".aws/config",
		"[default]\n" KEYS("CONFIG") "[profile p]\n" KEYS("P"));
	expect(fixture, NULL, "CONFIG");
	surroundings_write(&fixture->surroundings, "out",
		"{\"Version\":1,\"AccessKeyId\":\"PROCESS\",\"SecretAccessKey\":\"S\"}");
	surroundings_write(&fixture->surroundings, ".aws/config",
		"[default]\ncredential_process = cat %s/out\n" KEYS("CONFIG") "[profile p]\n" KEYS(
			"P"),
		fixture->surroundings.home);
	expect(fixture, NULL, "PROCESS");
	surroundings_write(&fixture->surroundings, ".aws/credentials", "[default]\n" KEYS("FILE"));
	expect(fixture, NULL, "FILE");
	setenv("AWS_PROFILE", "p", 1);
	expect(fixture, NULL, "P");
	setenv("AWS_ACCESS_KEY_ID", "ENVIRONMENT", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "S", 1);
	expect(fixture, NULL, "ENVIRONMENT");
	expect(fixture, "p", "P");
}

static void refusals(void **state)
{
	struct fixture *fixture = *state;
	struct origin_config config = {.credentials = "/does/not/exist"};
	struct chain *chain;

	expect_refused(fixture, NULL, -ENOENT, "AWS_ACCESS_KEY_ID");
	expect_refused(fixture, "ml", -ENOENT, "\"ml\" does not exist");
	setenv("AWS_PROFILE", "ml", 1);
	expect_refused(fixture, NULL, -ENOENT, "\"ml\" does not exist");
	surroundings_write(&fixture->surroundings, ".aws/credentials",
		"[ml]\naws_secret_access_key=TOPSECRET\n");
	expect_refused(fixture, "ml", -EINVAL, "only one of");
	surroundings_write(&fixture->surroundings, ".aws/credentials", "[ml]\nTOPSECRET\n");
	expect_refused(fixture, "ml", -EINVAL, "line 2");
	assert_int_equal(chain_new(&config, "x", &chain, &fixture->why), -ENOENT);
	assert_non_null(strstr(fixture->why.text, "/does/not/exist"));
	setenv("AWS_ACCESS_KEY_ID", "A", 1);
	expect_refused(fixture, NULL, -EINVAL, "AWS_SECRET_ACCESS_KEY");
	unsetenv("AWS_ACCESS_KEY_ID");
	surroundings_write(&fixture->surroundings, ".aws/credentials",
		"[a]\nrole_arn=r\n[b]\nrole_arn=r\nsource_profile=c\n[c]\nrole_arn=r\n"
		"source_profile=b\n[d]\nrole_arn=r\nsource_profile=nobody\n[e]\nrole_arn=r\n"
		"credential_source=Moon\n[f]\nrole_arn=r\nsource_profile=f\n[g]\nrole_arn=r\n"
		"credential_source=Environment\n[h]\nrole_arn=r\nsource_profile=a\nmfa_serial=m\n"
		"[i]\ncredential_process='\n[j]\nsso_session=s\n");
	expect_refused(fixture, "a", -EINVAL, "source_profile or credential_source");
	expect_refused(fixture, "b", -EINVAL, "circle");
	expect_refused(fixture, "d", -EINVAL, "\"nobody\" does not exist");
	expect_refused(fixture, "e", -EINVAL, "Moon");
	expect_refused(fixture, "f", -EINVAL, "has no credentials");
	expect_refused(fixture, "g", -EINVAL, "AWS_ACCESS_KEY_ID is not set");
	expect_refused(fixture, "h", -EINVAL, "mfa_serial");
	expect_refused(fixture, "i", -EINVAL, "no command");
	expect_refused(fixture, "j", -EINVAL, "sso_account_id");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_role_by_another_profile),
		TEST(roles_by_way_of_each_other),
		TEST(a_role_by_the_environment),
		TEST(what_the_token_service_refuses),
		TEST(web_identity),
		TEST(container),
		TEST(hosts_that_a_container_does_not_ask),
		TEST(instance),
		TEST(sso),
		TEST(an_sso_token_that_is_renewed),
		TEST(answers_of_a_process),
		TEST(the_order),
		TEST(refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
