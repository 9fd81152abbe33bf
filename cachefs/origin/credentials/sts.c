#include "credentials/sts.h"

#include <errno.h>
#include <libxml/parser.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "base/percent.h"

#include "credentials/json.h"
#include "credentials/web.h"
#include "s3/sigv4.h"
#include "source.h"

#define TIMEOUT_MS 10000
#define FORM_MAX   (64u << 10)
#define FORM_TYPE  "application/x-www-form-urlencoded; charset=utf-8"
#define DEPTH_MAX  16

/* --- where it is --- */

static int use_named(struct sts *sts, const char *url, const struct setup *setup, struct why *why)
{
	struct endpoint endpoint;
	int r = endpoint_parse("AWS_ENDPOINT_URL_STS", url, &endpoint, why);

	if (r)
		return r;
	sts->host = endpoint.host;
	sts->region = strdup(setup->region);
	if (setup->ca)
		sts->ca = strdup(setup->ca);
	if (asprintf(&sts->url, "http%s://%s/", endpoint.tls ? "s" : "", sts->host) < 0)
		sts->url = NULL;
	return 0;
}

/* The one service for all regions is asked only where that is wanted. */
static void use_own(struct sts *sts, const struct setup *setup)
{
	const char *which = environment("AWS_STS_REGIONAL_ENDPOINTS");
	bool global = which && !strcasecmp(which, "legacy");
	bool china = !strncmp(setup->region, "cn-", 3);

	if (global && !china) {
		sts->host = strdup("sts.amazonaws.com");
		sts->region = strdup("us-east-1");
	} else {
		if (asprintf(&sts->host, "sts.%s.amazonaws.com%s", setup->region,
			    china ? ".cn" : "") < 0)
			sts->host = NULL;
		sts->region = strdup(setup->region);
	}
	if (asprintf(&sts->url, "https://%s/", sts->host ? sts->host : "") < 0)
		sts->url = NULL;
}

int sts_init(struct sts *sts, const struct setup *setup, struct why *why)
{
	const char *url = environment("AWS_ENDPOINT_URL_STS");
	int r = 0;

	*sts = (struct sts){NULL};
	if (!url)
		url = environment("AWS_ENDPOINT_URL");
	if (url)
		r = use_named(sts, url, setup, why);
	else
		use_own(sts, setup);
	if (!r && (!sts->url || !sts->host || !sts->region || (url && setup->ca && !sts->ca)))
		r = -ENOMEM;
	if (r)
		sts_free(sts);
	return r;
}

void sts_free(struct sts *sts)
{
	free(sts->url);
	free(sts->host);
	free(sts->region);
	free(sts->ca);
	*sts = (struct sts){NULL};
}

/* --- the form --- */

void sts_form_add(struct buf *form, const char *name, const char *value)
{
	if (!value)
		return;
	if (form->size)
		buf_add_string(form, "&");
	buf_printf(form, "%s=", name);
	percent_encode(form, value, strlen(value), false);
}

void sts_form(struct buf *form, const char *action, const struct role *role)
{
	buf_init(form, FORM_MAX);
	sts_form_add(form, "Action", action);
	sts_form_add(form, "Version", "2011-06-15");
	sts_form_add(form, "RoleArn", role->arn);
	sts_form_add(form, "RoleSessionName", role->session_name ? role->session_name : "cachefs");
	sts_form_add(form, "DurationSeconds", role->duration_seconds);
}

/* --- the signature --- */

static void hash_of(const struct buf *form, char hex[2 * SHA256_DIGEST_LENGTH + 1])
{
	unsigned char hash[SHA256_DIGEST_LENGTH];

	SHA256((const unsigned char *)buf_string(form), form->size, hash);
	for (size_t i = 0; i < sizeof hash; i++)
		snprintf(hex + 2 * i, 3, "%02x", hash[i]);
}

static int sign(const struct sts *sts, const struct buf *form, const struct credentials *signer,
	struct curl_slist **headers)
{
	char hash[2 * SHA256_DIGEST_LENGTH + 1];
	struct sigv4_scope scope = {.key_id = signer->key_id,
		.secret = signer->secret,
		.region = sts->region,
		.service = "sts"};
	struct sigv4_header fields[] = {{"content-type", FORM_TYPE}, {"host", sts->host},
		{"x-amz-date", scope.time}, {"x-amz-security-token", signer->token}};
	struct sigv4_request request = {.method = "POST",
		.uri = "/",
		.query = "",
		.headers = fields,
		.n_headers = *signer->token ? 4 : 3,
		.payload_hash = hash};
	time_t now = (time_t)(clock_wall_ns() / (int64_t)NS_PER_SEC);
	struct buf authorization;
	struct tm tm;
	int r;

	gmtime_r(&now, &tm);
	strftime(scope.time, sizeof scope.time, "%Y%m%dT%H%M%SZ", &tm);
	hash_of(form, hash);
	buf_init(&authorization, 4096);
	sigv4_authorization(&request, &scope, &authorization);
	r = authorization.error;
	for (size_t i = 2; !r && i < request.n_headers; i++)
		r = web_header(headers, fields[i].name, fields[i].value);
	if (!r)
		r = web_header(headers, "Authorization", buf_string(&authorization));
	buf_free(&authorization);
	return r;
}

/* --- the answer --- */

/* Copies the text of the first element of that name, malloc'ed; NULL when there is none. */
static char *find_text(xmlNode *node, const char *name, unsigned depth)
{
	for (; node && depth < DEPTH_MAX; node = node->next) {
		char *found;

		if (node->type != XML_ELEMENT_NODE)
			continue;
		if (!strcmp((const char *)node->name, name)) {
			xmlChar *text = xmlNodeGetContent(node);

			found = text ? strdup((const char *)text) : NULL;
			xmlFree(text);
			return found;
		}
		found = find_text(node->children, name, depth + 1);
		if (found)
			return found;
	}
	return NULL;
}

static int take_answer(xmlNode *root, struct credentials *ret, struct why *why)
{
	char *key_id = find_text(root, "AccessKeyId", 0);
	char *secret = find_text(root, "SecretAccessKey", 0);
	char *token = find_text(root, "SessionToken", 0);
	char *expires = find_text(root, "Expiration", 0);
	struct why reason;
	int r = credentials_set(ret, key_id, secret, token, &reason);

	if (r)
		why_set(why, r, "the token service's answer makes no sense: %s", reason.text);
	else
		ret->expires_s = expires ? parse_expiry(expires) : 0;
	free(key_id);
	free_secret(secret);
	free_secret(token);
	free(expires);
	return r;
}

/* Throttling comes with status 400. */
static int refused(const struct sts *sts, xmlNode *root, long status, struct why *why)
{
	char *code = find_text(root, "Code", 0), *message = find_text(root, "Message", 0);
	char text[256], who[300];

	if (code && (strstr(code, "Throttl") || strstr(code, "IDPCommunicationError")))
		status = 503;
	snprintf(text, sizeof text, "%s%s%s", code ? code : "", message ? ": " : "",
		message ? message : "");
	snprintf(who, sizeof who, "the token service %s", sts->host);
	free(code);
	free(message);
	return web_refused(who, status, text, why);
}

static int judge(const struct sts *sts, const struct web_answer *answer, struct credentials *ret,
	struct why *why)
{
	xmlDoc *document = xmlReadMemory(buf_string(&answer->body), (int)answer->body.size, NULL,
		NULL, XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING);
	xmlNode *root = document ? xmlDocGetRootElement(document) : NULL;
	int r = answer->status == 200 ? take_answer(root, ret, why)
				      : refused(sts, root, answer->status, why);

	xmlFreeDoc(document);
	return r;
}

int sts_call(const struct sts *sts, const struct buf *form, const struct credentials *signer,
	const _Atomic bool *stop, struct credentials *ret, struct why *why)
{
	struct web_call call = {.method = "POST",
		.url = sts->url,
		.body = buf_string(form),
		.ca = sts->ca,
		.timeout_ms = TIMEOUT_MS,
		.local = host_is_loopback(sts->host)};
	struct web_answer answer;
	int r = form->error;

	web_answer_init(&answer);
	if (!r)
		r = web_header(&call.headers, "Content-Type", FORM_TYPE);
	if (!r && signer)
		r = sign(sts, form, signer, &call.headers);
	if (!r)
		r = web_call(&call, stop, &answer, why);
	if (!r)
		r = judge(sts, &answer, ret, why);
	curl_slist_free_all(call.headers);
	web_answer_free(&answer);
	return r;
}

/* --- roles --- */

static bool copy(const char *text, const char **ret)
{
	*ret = text ? strdup(text) : NULL;
	return !text || *ret;
}

int role_copy(const struct role *role, struct role *ret)
{
	bool all = copy(role->arn, &ret->arn);

	all &= copy(role->session_name, &ret->session_name);
	all &= copy(role->external_id, &ret->external_id);
	all &= copy(role->duration_seconds, &ret->duration_seconds);
	return all ? 0 : -ENOMEM;
}

void role_free(struct role *role)
{
	free((char *)role->arn);
	free((char *)role->session_name);
	free((char *)role->external_id);
	free((char *)role->duration_seconds);
}
