#include "origin/environment.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "base/buf.h"
#include "base/cleanup.h"

#define KEY_SIZE  16
#define HASH_SIZE 32
#define SAID_MAX  4096
#define WORD_MAX  128 /* NAME=hash */

/* What a variable is there for decides what overrides it. */
enum use { ENDPOINT, REGION, PROFILE, KEYS, KEY_FILE, CONFIG_FILE, SURROUNDINGS };

struct variable {
	const char *scheme;
	const char *names[2]; /* the first that is set counts */
	enum use use;
	bool secret; /* its value is shown to nobody */
	const char *remedy;
};

static const struct variable variables[] = {
	{"s3://", {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}, ENDPOINT, false, "endpoint="},
	{"s3://", {"AWS_REGION", "AWS_DEFAULT_REGION"}, REGION, false, "region="},
	{"s3://", {"AWS_PROFILE"}, PROFILE, false, "aws_profile="},
	{"s3://", {"AWS_ACCESS_KEY_ID"}, KEYS, true, "credentials= or aws_profile="},
	{"s3://", {"AWS_SECRET_ACCESS_KEY"}, KEYS, true, "credentials= or aws_profile="},
	{"s3://", {"AWS_SESSION_TOKEN"}, KEYS, true, "credentials= or aws_profile="},
	{"s3://", {"AWS_SHARED_CREDENTIALS_FILE"}, KEY_FILE, false, "credentials="},
	{"s3://", {"AWS_CONFIG_FILE"}, CONFIG_FILE, false, "credentials=, endpoint= and region="},
	{"s3://", {"AWS_ROLE_ARN"}, SURROUNDINGS, false, "credentials= or aws_profile="},
	{"s3://", {"AWS_WEB_IDENTITY_TOKEN_FILE"}, SURROUNDINGS, false,
		"credentials= or aws_profile="},
	{"s3://", {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"},
		SURROUNDINGS, true, "credentials= or aws_profile="},
	{"hf://", {"HF_ENDPOINT"}, ENDPOINT, false, "endpoint="},
	{"hf://", {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}, KEYS, true, "credentials="},
	{"hf://", {"HF_TOKEN_PATH"}, KEY_FILE, false, "credentials="},
};

#define N_VARIABLES (sizeof variables / sizeof variables[0])

/* The value, NULL when unset or empty. */
static const char *look_up(char *const *environment, const char *name)
{
	size_t n = strlen(name);

	for (; *environment; environment++) {
		if (!strncmp(*environment, name, n) && (*environment)[n] == '=')
			return (*environment)[n + 1] ? *environment + n + 1 : NULL;
	}
	return NULL;
}

static const char *first_set(
	const struct variable *variable, char *const *environment, const char **ret_name)
{
	for (size_t i = 0; i < 2 && variable->names[i]; i++) {
		const char *value = look_up(environment, variable->names[i]);

		if (value) {
			*ret_name = variable->names[i];
			return value;
		}
	}
	return NULL;
}

/* The keys of this environment are taken before any file is looked at. */
static bool has_keys(const char *scheme)
{
	if (!strcmp(scheme, "hf://"))
		return look_up(environ, "HF_TOKEN") || look_up(environ, "HUGGING_FACE_HUB_TOKEN");
	return look_up(environ, "AWS_ACCESS_KEY_ID") && look_up(environ, "AWS_SECRET_ACCESS_KEY");
}

static bool counts(const struct variable *variable, const struct origin_config *config)
{
	bool only_options = config->anonymous || config->credentials;
	bool placed = config->endpoint && config->region;

	switch (variable->use) {
	case ENDPOINT:
		return !config->endpoint;
	case REGION:
		return !config->region;
	case PROFILE:
		return !config->aws_profile && !(config->anonymous && placed);
	case KEYS:
		return !only_options && !config->aws_profile;
	case KEY_FILE:
		return !only_options && (config->aws_profile || !has_keys(variable->scheme));
	case CONFIG_FILE:
		return !placed || (!only_options && (config->aws_profile || !has_keys("s3://")));
	case SURROUNDINGS:
		return !only_options && !config->aws_profile && !has_keys("s3://");
	}
	return false;
}

static void add_hex(struct buf *text, const unsigned char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		buf_printf(text, "%02x", bytes[i]);
}

/* "NAME=hash". key: as text, the same on both sides. */
static void add_word(struct buf *text, const char *key, const char *name, const char *value)
{
	unsigned char hash[HASH_SIZE];
	unsigned size = sizeof hash;

	if (!HMAC(EVP_sha256(), key, 2 * KEY_SIZE, (const unsigned char *)value, strlen(value),
		    hash, &size)) {
		text->error = -ENOMEM;
		return;
	}
	buf_printf(text, "%s=", name);
	add_hex(text, hash, sizeof hash);
}

static int add_key(struct buf *text)
{
	unsigned char key[KEY_SIZE];

	if (RAND_bytes(key, sizeof key) != 1)
		return -EIO;
	add_hex(text, key, sizeof key);
	return 0;
}

int origin_environment_say(const struct origin_config *config, char **ret)
{
	_cleanup_(buf_free) struct buf text, key;
	bool any = false;
	int r;

	buf_init(&text, SAID_MAX);
	buf_init(&key, SAID_MAX);
	r = add_key(&key);
	if (r)
		return r;
	buf_add_string(&text, buf_string(&key));
	for (size_t i = 0; i < N_VARIABLES; i++) {
		const struct variable *variable = &variables[i];
		const char *name, *value;

		if (strncmp(config->source, variable->scheme, strlen(variable->scheme)) != 0 ||
			!counts(variable, config))
			continue;
		value = first_set(variable, environ, &name);
		if (!value)
			continue;
		any = true;
		buf_add_string(&text, " ");
		add_word(&text, buf_string(&key), name, value);
	}
	if (text.error || key.error)
		return -ENOMEM;
	*ret = any ? buf_steal(&text) : strdup("");
	return *ret ? 0 : -ENOMEM;
}

/* The variable of "NAME=…", and the name. */
static const struct variable *find(const char *word, size_t n, const char **ret_name)
{
	for (size_t i = 0; i < N_VARIABLES; i++) {
		for (size_t j = 0; j < 2 && variables[i].names[j]; j++) {
			if (strlen(variables[i].names[j]) == n &&
				!memcmp(variables[i].names[j], word, n)) {
				*ret_name = variables[i].names[j];
				return &variables[i];
			}
		}
	}
	return NULL;
}

struct differences {
	struct buf names, remedies;
};

static void add_once(struct buf *list, const char *text)
{
	if (!strstr(buf_string(list), text))
		buf_printf(list, "%s%s", list->size ? ", " : "", text);
}

static void add_difference(struct differences *differences, const struct variable *variable,
	const char *name, const char *theirs)
{
	buf_printf(&differences->names, "%s%s", differences->names.size ? ", " : "", name);
	if (!theirs)
		buf_add_string(&differences->names, " (it has none)");
	else if (!variable->secret)
		buf_printf(&differences->names, " (it has %s)", theirs);
	add_once(&differences->remedies, variable->remedy);
}

static int compare(const char *word, const char *key, char *const *environment,
	struct differences *differences, struct why *why)
{
	const char *name, *own_name, *value;
	const struct variable *variable = find(word, strcspn(word, "="), &name);
	_cleanup_(buf_free) struct buf own;
	bool same = false;

	buf_init(&own, WORD_MAX);
	if (!variable)
		return why_set(why, -EINVAL, "the environment has %.*s, which is not known",
			(int)strcspn(word, "="), word);
	value = first_set(variable, environment, &own_name);
	if (value) {
		add_word(&own, key, name, value);
		if (own.error)
			return why_set(why, -ENOMEM, "out of memory");
		same = own.size == strlen(word) && !CRYPTO_memcmp(buf_string(&own), word, own.size);
	}
	if (!same)
		add_difference(differences, variable, name, value);
	return 0;
}

static int compare_all(
	char *said, char *const *environment, struct differences *differences, struct why *why)
{
	char *rest = NULL, *key = strtok_r(said, " ", &rest), *word;
	int r = 0;

	if (!key)
		return 0;
	if (strlen(key) != 2 * (size_t)KEY_SIZE)
		return why_set(why, -EINVAL, "the environment is said without a key");
	while (!r && (word = strtok_r(NULL, " ", &rest)))
		r = compare(word, key, environment, differences, why);
	return r;
}

int origin_environment_check(const char *said, char *const *environment, struct why *why)
{
	_cleanup_(freep) char *copy = strlen(said) <= SAID_MAX ? strdup(said) : NULL;
	struct differences differences;
	int r;

	if (!copy)
		return why_set(why, -ENOMEM, "out of memory");
	buf_init(&differences.names, sizeof why->text);
	buf_init(&differences.remedies, SAID_MAX);
	r = compare_all(copy, environment, &differences, why);
	if (!r && differences.names.size)
		r = why_set(why, -EINVAL,
			"the running daemon mounts with its own environment, which differs from "
			"this shell's in %s: give %s, or end the daemon (unmount all, or restart "
			"its service with this environment) and mount again, or unset what you "
			"don't mean",
			buf_string(&differences.names), buf_string(&differences.remedies));
	buf_free(&differences.names);
	buf_free(&differences.remedies);
	return r;
}
