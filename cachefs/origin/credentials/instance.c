/*
 * instance: the role of an EC2 instance, from its metadata service, version 2: a token by PUT, then
 * the role's name, then its credentials. The last of the chain, so its silence means that there are
 * no credentials at all.
 */
#include "credentials/provider.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/list.h"

#include "credentials/json.h"
#include "credentials/web.h"

#define TIMEOUT_MS 1000
#define ROLES      "/latest/meta-data/iam/security-credentials/"
#define WHO        "the instance metadata service"

struct instance {
	struct provider base;
	char *credentials_file; /* what the last word names */
	bool answered;          /* this is an instance: silence will pass */
};

static int ask(const char *method, const char *path, struct curl_slist *headers,
	const _Atomic bool *stop, struct web_answer *ret, struct why *why)
{
	const char *endpoint = environment("AWS_EC2_METADATA_SERVICE_ENDPOINT");
	const char *mode = environment("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
	_cleanup_(freep) char *url = NULL;
	struct web_call call = {
		.method = method, .headers = headers, .timeout_ms = TIMEOUT_MS, .local = true};
	size_t n;

	if (!endpoint)
		endpoint = mode && !strcasecmp(mode, "ipv6") ? "http://[fd00:ec2::254]"
							     : "http://169.254.169.254";
	n = strlen(endpoint);
	while (n && endpoint[n - 1] == '/')
		n--;
	if (asprintf(&url, "%.*s%s", (int)n, endpoint, path) < 0)
		return -ENOMEM;
	call.url = url;
	return web_call(&call, stop, ret, why);
}

/* Gets path into *ret, with the token. */
static int get(const char *path, struct curl_slist *token, const _Atomic bool *stop,
	struct web_answer *ret, struct why *why)
{
	int r = ask("GET", path, token, stop, ret, why);

	if (!r && ret->status == 404)
		return why_set(why, -EACCES, WHO " says that the instance has no role");
	if (!r && ret->status != 200)
		return web_refused(WHO, ret->status, "", why);
	return r;
}

static int add_token(const _Atomic bool *stop, struct curl_slist **token, struct why *why)
{
	struct web_answer answer;
	struct curl_slist *headers = NULL;
	int r = web_header(&headers, "X-aws-ec2-metadata-token-ttl-seconds", "300");

	web_answer_init(&answer);
	if (!r)
		r = ask("PUT", "/latest/api/token", headers, stop, &answer, why);
	curl_slist_free_all(headers);
	if (!r && answer.status != 200)
		r = web_refused(WHO, answer.status, "", why);
	if (!r && web_header(token, "X-aws-ec2-metadata-token", buf_string(&answer.body)))
		r = why_set(why, -EIO, WHO " gives a token that makes no sense");
	web_answer_free(&answer);
	return r;
}

static int role_path(
	struct curl_slist *token, const _Atomic bool *stop, char **ret, struct why *why)
{
	struct web_answer answer;
	const char *name;
	size_t n;
	int r;

	web_answer_init(&answer);
	r = get(ROLES, token, stop, &answer, why);
	name = buf_string(&answer.body);
	n = strcspn(name, "\r\n");
	if (!r && (!n || n > 128 || strcspn(name, "/?# ") < n))
		r = why_set(why, -EACCES, WHO " names no role");
	if (!r && asprintf(ret, ROLES "%.*s", (int)n, name) < 0) {
		*ret = NULL;
		r = -ENOMEM;
	}
	web_answer_free(&answer);
	return r;
}

static int fetch_role(struct curl_slist *token, const _Atomic bool *stop, struct credentials *ret,
	struct why *why)
{
	_cleanup_(freep) char *path = NULL;
	struct web_answer answer;
	int r = role_path(token, stop, &path, why);

	web_answer_init(&answer);
	if (!r)
		r = get(path, token, stop, &answer, why);
	if (!r)
		r = json_credentials(buf_string(&answer.body), &json_names_of_endpoint, ret, why);
	web_answer_free(&answer);
	return r;
}

static int nothing_found(const struct instance *instance, const struct why *said, struct why *why)
{
	return why_set(why, -EACCES,
		"no credentials found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY before the "
		"daemon starts (one that runs sees no other environment), write %s, give "
		"credentials=FILE, or mount with the option anonymous (the last asked was " WHO
		": %s)",
		instance->credentials_file, said->text);
}

static int fetch(struct provider *provider, const _Atomic bool *stop, struct credentials *ret,
	struct why *why)
{
	struct instance *instance = container_of(provider, struct instance, base);
	struct curl_slist *token = NULL;
	struct why said = {""};
	int r = add_token(stop, &token, &said);

	/* Nobody is there: this is no instance. */
	if (r == -EIO && !instance->answered)
		return nothing_found(instance, &said, why);
	instance->answered |= r == 0;
	if (!r)
		r = fetch_role(token, stop, ret, &said);
	curl_slist_free_all(token);
	return r ? why_set(why, r, "%s", *said.text ? said.text : strerror(-r)) : 0;
}

static void destroy(struct provider *provider)
{
	struct instance *instance = container_of(provider, struct instance, base);

	free(instance->credentials_file);
	free(instance);
}

static const struct provider_ops ops = {"instance", false, false, fetch, destroy};

int provider_instance(const struct setup *setup, struct provider **ret, struct why *why)
{
	struct instance *instance = calloc(1, sizeof *instance);

	(void)why;
	if (!instance)
		return -ENOMEM;
	instance->base.ops = &ops;
	instance->base.identity = strdup("instance");
	instance->credentials_file = strdup(setup->files[0]);
	if (!instance->credentials_file) {
		provider_free(&instance->base);
		return -ENOMEM;
	}
	*ret = &instance->base;
	return 0;
}
