/*
 * keys: what is at hand and only copied: an access key or a hub's token of the environment or a file,
 * and the value of a web server's Authorization header in a file.
 */
#include "credentials/provider.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/list.h"

struct keys {
	struct provider base;
	struct credentials credentials;
};

static int fetch(struct provider *provider, const _Atomic bool *stop, struct credentials *ret,
	struct why *why)
{
	(void)stop, (void)why;
	*ret = container_of(provider, struct keys, base)->credentials;
	return 0;
}

static void destroy(struct provider *provider)
{
	struct keys *keys = container_of(provider, struct keys, base);

	credentials_wipe(&keys->credentials);
	free(keys);
}

static const struct provider_ops environment_ops = {"environment", true, true, fetch, destroy};
static const struct provider_ops file_ops = {"file", true, false, fetch, destroy};
static const struct provider_ops header_ops = {"header", true, false, fetch, destroy};

static struct keys *make(const struct provider_ops *ops)
{
	struct keys *keys = calloc(1, sizeof *keys);

	if (keys)
		keys->base.ops = ops;
	return keys;
}

int provider_keys(const char *file, const char *key_id, const char *secret, const char *token,
	struct provider **ret, struct why *why)
{
	struct keys *keys = make(file ? &file_ops : &environment_ops);
	struct why reason;

	if (!keys)
		return -ENOMEM;
	if (credentials_set(&keys->credentials, key_id, secret, token, &reason)) {
		provider_free(&keys->base);
		return why_set(
			why, -EINVAL, "%s: %s", file ? file : "AWS_ACCESS_KEY_ID", reason.text);
	}
	if (!file)
		keys->base.identity = strdup(key_id);
	*ret = &keys->base;
	return 0;
}

/* "Bearer TOKEN" or "Basic BASE64", perhaps with the header's name before it. */
static int take_header(const char *text, struct credentials *ret)
{
	static const char name[] = "Authorization:";
	const char *rest;

	if (!strncasecmp(text, name, strlen(name)))
		text += strlen(name);
	text += strspn(text, " \t");
	rest = strchr(text, ' ');
	if (!rest ||
		(strncasecmp(text, "Bearer ", 7) != 0 && strncasecmp(text, "Basic ", 6) != 0) ||
		!rest[1 + strspn(rest + 1, " ")])
		return -EINVAL;
	return credentials_set(ret, "header", "header", text, NULL) ? -EINVAL : 0;
}

int provider_header(const char *path, struct provider **ret, struct why *why)
{
	struct keys *keys = make(&header_ops);
	char *text = NULL;
	int r;

	if (!keys)
		return -ENOMEM;
	r = read_secret_file(path, &text);
	if (r)
		why_set(why, r, "credentials=%s can't be read: %s", path, strerror(-r));
	else if (take_header(text, &keys->credentials))
		r = why_set(why, -EINVAL,
			"credentials=%s is no credential for a web server: give a file with the "
			"one line \"Bearer TOKEN\" or \"Basic BASE64\"",
			path);
	free_secret(text);
	if (r)
		provider_free(&keys->base);
	else
		*ret = &keys->base;
	return r;
}

/* "TOKEN", or "Bearer TOKEN" as for a web server. */
static int take_token(const char *text, struct credentials *ret)
{
	char header[TOKEN_MAX];
	size_t n;
	int r;

	if (!strncasecmp(text, "Bearer ", 7))
		text += 7;
	text += strspn(text, " \t\r\n");
	n = strcspn(text, " \t\r\n");
	if (!n || text[n + strspn(text + n, " \t\r\n")] ||
		(size_t)snprintf(header, sizeof header, "Bearer %.*s", (int)n, text) >=
			sizeof header)
		return -EINVAL;
	r = credentials_set(ret, "token", "token", header, NULL);
	explicit_bzero(header, sizeof header);
	return r ? -EINVAL : 0;
}

static int token_in_file(const char *path, struct credentials *ret, struct why *why)
{
	char *text = NULL;
	int r = read_secret_file(path, &text);

	if (r)
		why_set(why, r, "the token's file %s can't be read: %s", path, strerror(-r));
	else if (take_token(text, ret))
		r = why_set(why, -EINVAL,
			"%s has no token: give a file with the one line that `hf auth login` "
			"would write",
			path);
	free_secret(text);
	return r;
}

int provider_token(const char *path, struct provider **ret, struct why *why)
{
	struct keys *keys = make(path ? &header_ops : &environment_ops);
	const char *given = token_of_environment();
	int r = 0;

	if (!keys)
		return -ENOMEM;
	if (path)
		r = token_in_file(path, &keys->credentials, why);
	else if (!given || take_token(given, &keys->credentials))
		r = why_set(why, -EINVAL, "HF_TOKEN is no token: it has a blank, or is too long");
	if (r)
		provider_free(&keys->base);
	else
		*ret = &keys->base;
	return r;
}
