/*
 * container: what ECS and EKS Pod Identity give a container: an address in the environment, and a
 * token that proves who asks.
 */
#include "credentials/provider.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"

#include "credentials/json.h"
#include "credentials/web.h"
#include "source.h"

#define TIMEOUT_MS  5000
#define HOST_OF_ECS "http://169.254.170.2"
#define WHO         "the container's credentials endpoint"

/* Without TLS a token goes to this machine and to the two services only
 * (https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html). */
static bool may_ask(const char *url)
{
	static const char *const hosts[] = {"169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"};
	const char *host;
	size_t n;

	if (!strncasecmp(url, "https://", 8))
		return true;
	if (strncasecmp(url, "http://", 7) != 0)
		return false;
	host = url + 7;
	n = strcspn(host, "/?#");
	if (memchr(host, '@', n))
		return false;
	for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
		size_t m = strlen(hosts[i]);

		if (n >= m && !strncasecmp(host, hosts[i], m) && (n == m || host[m] == ':'))
			return true;
	}
	return host_is_loopback(host);
}

static int make_url(char **ret, struct why *why)
{
	const char *relative = environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
	const char *full = environment("AWS_CONTAINER_CREDENTIALS_FULL_URI");

	if (relative && *relative != '/')
		return why_set(why, -EACCES,
			"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI does not begin with a slash");
	if (relative)
		return asprintf(ret, HOST_OF_ECS "%s", relative) < 0 ? -ENOMEM : 0;
	if (!full || !may_ask(full))
		return why_set(why, -EACCES,
			"AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https:// nor of a host that "
			"may be asked without TLS (loopback, ECS, EKS)");
	return (*ret = strdup(full)) ? 0 : -ENOMEM;
}

/* The token's file is read anew each time: it is rotated. */
static int add_token(struct curl_slist **headers, struct why *why)
{
	const char *file = environment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
	const char *given = environment("AWS_CONTAINER_AUTHORIZATION_TOKEN");
	char *token = NULL;
	int r = 0;

	if (file)
		r = read_secret_file(file, &token);
	if (r)
		return why_set(why, -EACCES,
			"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=%s can't be read: %s", file,
			strerror(-r));
	if (token || given)
		r = web_header(headers, "Authorization", token ? token : given);
	free_secret(token);
	return r == -EINVAL ? why_set(why, -EACCES, "the container's token has a line break") : r;
}

static int fetch(struct provider *provider, const _Atomic bool *stop, struct credentials *ret,
	struct why *why)
{
	_cleanup_(freep) char *url = NULL;
	struct web_call call = {.method = "GET", .timeout_ms = TIMEOUT_MS, .local = true};
	struct web_answer answer;
	int r = make_url(&url, why);

	(void)provider;
	web_answer_init(&answer);
	if (!r)
		r = add_token(&call.headers, why);
	if (!r) {
		call.url = url;
		call.local = strncasecmp(url, "https://", 8) != 0;
		r = web_call(&call, stop, &answer, why);
	}
	if (!r && answer.status != 200)
		r = web_refused(WHO, answer.status, buf_string(&answer.body), why);
	else if (!r)
		r = json_credentials(buf_string(&answer.body), &json_names_of_endpoint, ret, why);
	curl_slist_free_all(call.headers);
	web_answer_free(&answer);
	return r;
}

static void destroy(struct provider *provider)
{
	free(provider);
}

static const struct provider_ops ops = {"container", false, false, fetch, destroy};

int provider_container(struct provider **ret, struct why *why)
{
	struct provider *provider = calloc(1, sizeof *provider);

	(void)why;
	if (!provider)
		return -ENOMEM;
	provider->ops = &ops;
	provider->identity = strdup("container");
	*ret = provider;
	return 0;
}
