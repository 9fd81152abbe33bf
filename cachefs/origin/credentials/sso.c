/*
 * sso: a role of IAM Identity Center, by the token that `aws sso login` left in ~/.aws/sso/cache. The
 * token is not renewed here: who logs in again is noticed at the next fetch.
 */
#include "credentials/provider.h"

#include <errno.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/list.h"

#include "credentials/json.h"
#include "credentials/web.h"
#include "source.h"
#include "url.h"

#define TIMEOUT_MS 10000
#define URL_MAX    4096

struct sso {
	struct provider base;
	char *cache_file, *url;
};

/* The cache's file is named by the SHA-1 of the session's name, or of the start URL. */
static char *cache_file(const char *session)
{
	char name[sizeof "sso/cache/.json" + 2 * SHA_DIGEST_LENGTH];
	unsigned char hash[SHA_DIGEST_LENGTH];
	size_t n;

	SHA1((const unsigned char *)session, strlen(session), hash);
	n = (size_t)snprintf(name, sizeof name, "sso/cache/");
	for (size_t i = 0; i < sizeof hash; i++)
		n += (size_t)snprintf(name + n, sizeof name - n, "%02x", hash[i]);
	snprintf(name + n, sizeof name - n, ".json");
	return home_aws_file(name);
}

static char *make_url(const char *region, const char *account, const char *role)
{
	struct url_parameter parameters[] = {{"role_name", role}, {"account_id", account}};
	const char *named = environment("AWS_ENDPOINT_URL_SSO");
	struct buf url;
	char *text;

	buf_init(&url, URL_MAX);
	if (named)
		buf_add_string(&url, named);
	else
		buf_printf(&url, "https://portal.sso.%s.amazonaws.com", region);
	buf_add_string(&url, "/federation/credentials?");
	url_query(&url, parameters, 2);
	text = buf_steal(&url);
	buf_free(&url);
	return text;
}

static int login_again(const struct sso *sso, const char *what, struct why *why)
{
	return why_set(
		why, -EACCES, "the SSO token in %s %s: run aws sso login", sso->cache_file, what);
}

static int read_token(const struct sso *sso, char **ret, struct why *why)
{
	_cleanup_(freep) char *expires = NULL;
	char *text = NULL, *token;
	int r = read_secret_file(sso->cache_file, &text);

	if (r)
		return login_again(sso, "can't be read", why);
	token = json_string_of(text, "accessToken");
	expires = json_string_of(text, "expiresAt");
	free_secret(text);
	if (token && expires && parse_expiry(expires) > clock_wall_ns() / (int64_t)NS_PER_SEC) {
		*ret = token;
		return 0;
	}
	r = login_again(sso, token && expires ? "is expired" : "makes no sense", why);
	free_secret(token);
	return r;
}

static int call_portal(const struct sso *sso, const char *token, const _Atomic bool *stop,
	struct credentials *ret, struct why *why)
{
	const char *host = strstr(sso->url, "://") + 3;
	struct web_call call = {.method = "GET",
		.url = sso->url,
		.timeout_ms = TIMEOUT_MS,
		.local = host_is_loopback(host)};
	struct web_answer answer;
	int r = web_header(&call.headers, "x-amz-sso_bearer_token", token);

	web_answer_init(&answer);
	if (!r)
		r = web_call(&call, stop, &answer, why);
	if (!r && answer.status == 401)
		r = login_again(sso, "is not accepted", why);
	else if (!r && answer.status != 200)
		r = web_refused("the SSO portal", answer.status, buf_string(&answer.body), why);
	else if (!r)
		r = json_credentials(buf_string(&answer.body), &json_names_of_sso, ret, why);
	curl_slist_free_all(call.headers);
	web_answer_free(&answer);
	return r;
}

static int fetch(struct provider *provider, const _Atomic bool *stop, struct credentials *ret,
	struct why *why)
{
	struct sso *sso = container_of(provider, struct sso, base);
	char *token = NULL;
	int r = read_token(sso, &token, why);

	if (!r)
		r = call_portal(sso, token, stop, ret, why);
	free_secret(token);
	return r;
}

static void destroy(struct provider *provider)
{
	struct sso *sso = container_of(provider, struct sso, base);

	free(sso->cache_file);
	free(sso->url);
	free(sso);
}

static const struct provider_ops ops = {"sso", false, false, fetch, destroy};

int provider_sso(const char *session, const char *region, const char *account, const char *role,
	struct provider **ret, struct why *why)
{
	struct sso *sso = calloc(1, sizeof *sso);

	if (!sso)
		return -ENOMEM;
	sso->base.ops = &ops;
	sso->cache_file = cache_file(session);
	sso->url = make_url(region, account, role);
	if (!sso->cache_file || !sso->url) {
		provider_free(&sso->base);
		return -ENOMEM;
	}
	if (!strstr(sso->url, "://")) {
		provider_free(&sso->base);
		return why_set(why, -EINVAL, "AWS_ENDPOINT_URL_SSO is no URL");
	}
	*ret = &sso->base;
	return 0;
}
