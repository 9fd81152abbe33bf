/* sso: a role of IAM Identity Center, by the token of `aws sso login` (sso_token.h). */
#include "credentials/provider.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/list.h"

#include "credentials/json.h"
#include "credentials/sso_token.h"
#include "credentials/web.h"
#include "source.h"
#include "url.h"

#define TIMEOUT_MS 10000
#define URL_MAX    4096

struct sso {
	struct provider base;
	struct sso_token token;
	char *url; /* of the portal */
};

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

/* *ret_refused: the portal does not accept the token. */
static int call_portal(const struct sso *sso, const char *token, const _Atomic bool *stop,
	struct credentials *ret, bool *ret_refused, struct why *why)
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
	*ret_refused = !r && answer.status == 401;
	if (*ret_refused)
		r = sso_token_useless(&sso->token, "is not accepted", why);
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
	bool refused = false, again;
	int r;

	do {
		char *token = NULL;

		again = refused;
		r = sso_token_get(&sso->token, again, stop, &token, why);
		if (r)
			break;
		r = call_portal(sso, token, stop, ret, &refused, why);
		free_secret(token);
	} while (refused && !again);
	return r;
}

static void destroy(struct provider *provider)
{
	struct sso *sso = container_of(provider, struct sso, base);

	sso_token_free(&sso->token);
	free(sso->url);
	free(sso);
}

static const struct provider_ops ops = {"sso", false, false, fetch, destroy};

int provider_sso(const char *session, const char *region, const char *account, const char *role,
	struct provider **ret, struct why *why)
{
	struct sso *sso = calloc(1, sizeof *sso);
	int r;

	if (!sso)
		return -ENOMEM;
	sso->base.ops = &ops;
	r = sso_token_init(&sso->token, session, region, why);
	if (!r && !(sso->url = make_url(region, account, role)))
		r = -ENOMEM;
	if (!r && !strstr(sso->url, "://"))
		r = why_set(why, -EINVAL, "AWS_ENDPOINT_URL_SSO is no URL");
	if (r)
		provider_free(&sso->base);
	else
		*ret = &sso->base;
	return r;
}
