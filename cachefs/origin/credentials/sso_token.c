#include "credentials/sso_token.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"

#include "credentials/json.h"
#include "credentials/provider.h"
#include "credentials/sso_kept.h"
#include "credentials/web.h"
#include "source.h"

#define TIMEOUT_MS   10000
#define RENEW_LEFT_S (15 * 60) /* as the AWS CLI does */

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

int sso_token_init(
	struct sso_token *token, const char *session, const char *region, struct why *why)
{
	const char *named = environment("AWS_ENDPOINT_URL_SSO_OIDC");
	int n;

	*token = (struct sso_token){.file = cache_file(session)};
	if (named && !strstr(named, "://"))
		return why_set(why, -EINVAL, "AWS_ENDPOINT_URL_SSO_OIDC is no URL");
	n = named ? asprintf(&token->url, "%s/token", named)
		  : asprintf(&token->url, "https://oidc.%s.amazonaws.com/token", region);
	if (n < 0)
		token->url = NULL;
	return token->file && token->url ? 0 : -ENOMEM;
}

void sso_token_free(struct sso_token *token)
{
	free(token->file);
	free(token->url);
}

int sso_token_useless(const struct sso_token *token, const char *what, struct why *why)
{
	return why_set(
		why, -EACCES, "the SSO token in %s %s: run aws sso login", token->file, what);
}

static int64_t now_s(void)
{
	return clock_wall_ns() / (int64_t)NS_PER_SEC;
}

/* How long what the document calls NAME lasts; negative when it is past or not there. */
static int64_t left_s(const char *text, const char *name)
{
	_cleanup_(freep) char *date = json_string_of(text, name);
	int64_t end = date ? parse_expiry(date) : 0;

	return end ? end - now_s() : -1;
}

/* --- renewal --- */

static bool can_be_renewed(const char *text)
{
	static const char *const names[] = {"clientId", "clientSecret", "refreshToken"};
	bool all = left_s(text, "registrationExpiresAt") > 0;

	for (size_t i = 0; all && i < sizeof names / sizeof names[0]; i++) {
		char *value = json_string_of(text, names[i]);

		all = value && *value;
		free_secret(value);
	}
	return all;
}

/* The document with what the service answered. */
static char *document_with(const char *text, const char *answer)
{
	char *access = json_string_of(answer, "accessToken");
	char *refresh = json_string_of(answer, "refreshToken");
	time_t end = (time_t)(now_s() + json_integer_of(answer, "expiresIn"));
	struct json_field fields[3] = {{"accessToken", access}, {"expiresAt", NULL}};
	char date[sizeof "2013-05-24T00:00:00Z"], *document = NULL;
	size_t n = 2;
	struct tm tm;

	if (access && *access && json_integer_of(answer, "expiresIn") > 0 && gmtime_r(&end, &tm) &&
		strftime(date, sizeof date, "%FT%TZ", &tm)) {
		fields[1].value = date;
		if (refresh && *refresh)
			fields[n++] = (struct json_field){"refreshToken", refresh};
		document = json_with(text, fields, n);
	}
	free_secret(access);
	free_secret(refresh);
	return document;
}

static char *request_body(const char *text)
{
	char *id = json_string_of(text, "clientId");
	char *secret = json_string_of(text, "clientSecret");
	char *refresh = json_string_of(text, "refreshToken");
	struct json_field fields[] = {{"clientId", id}, {"clientSecret", secret},
		{"grantType", "refresh_token"}, {"refreshToken", refresh}};
	char *body = id && secret && refresh ? json_with("{}", fields, 4) : NULL;

	free_secret(id);
	free_secret(secret);
	free_secret(refresh);
	return body;
}

/* *ret: the renewed document. */
static int ask_for_new(const struct sso_token *token, const char *text, const _Atomic bool *stop,
	char **ret, struct why *why)
{
	char *body = request_body(text);
	struct web_call call = {.method = "POST",
		.url = token->url,
		.body = body,
		.timeout_ms = TIMEOUT_MS,
		.local = host_is_loopback(strstr(token->url, "://") + 3)};
	struct web_answer answer;
	int r = body ? web_header(&call.headers, "Content-Type", "application/json") : -ENOMEM;

	web_answer_init(&answer);
	if (!r)
		r = web_call(&call, stop, &answer, why);
	if (!r && answer.status == 400)
		r = sso_token_useless(token, "can't be renewed any more", why);
	else if (!r && answer.status != 200)
		r = web_refused(
			"the SSO token service", answer.status, buf_string(&answer.body), why);
	if (!r && !(*ret = document_with(text, buf_string(&answer.body))))
		r = why_set(why, -EIO, "the SSO token service's answer makes no sense");
	free_secret(body);
	curl_slist_free_all(call.headers);
	web_answer_free(&answer);
	return r;
}

/* --- the file --- */

static int write_all(int fd, const char *text)
{
	for (size_t left = strlen(text); left;) {
		ssize_t n = write(fd, text, left);

		if (n < 0 && errno != EINTR)
			return -errno;
		text += n > 0 ? n : 0;
		left -= n > 0 ? (size_t)n : 0;
	}
	return fsync(fd) < 0 ? -errno : 0;
}

/* Replaces the file, or what a link in its place leads to, by one of the same owner and mode. */
static int save(const char *name, const char *text)
{
	_cleanup_(freep) char *file = realpath(name, NULL);
	_cleanup_(freep) char *path = NULL;
	_cleanup_(closep) int fd = -1;
	struct stat st;
	int r = 0;

	if (!file || stat(file, &st) < 0)
		return -errno;
	if (asprintf(&path, "%s.XXXXXX", file) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fchown(fd, st.st_uid, st.st_gid) < 0 || fchmod(fd, st.st_mode & 0777) < 0)
		r = -errno;
	if (!r)
		r = write_all(fd, text);
	if (!r && rename(path, file) < 0)
		r = -errno;
	if (r)
		unlink(path);
	return r;
}

/* Takes the document over. */
static void keep(const struct sso_token *token, char *document, const char *original)
{
	int r = save(token->file, document);

	if (!r) {
		sso_kept_forget(token->file);
		free_secret(document);
		return;
	}
	log_warn("sso_token_not_saved", "file=%s error=%s", token->file, strerror(-r));
	sso_kept_put(token->file, original, document);
}

/* The document that counts, and the file's text. */
static int read_document(
	const struct sso_token *token, char **ret, char **ret_original, struct why *why)
{
	char *original = NULL, *text;
	int r = read_secret_file(token->file, &original);

	if (r)
		return sso_token_useless(token, "can't be read", why);
	text = sso_kept_get(token->file, original) ?: strdup(original);
	if (!text) {
		free_secret(original);
		return -ENOMEM;
	}
	*ret = text;
	*ret_original = original;
	return 0;
}

/* Who logs in, another volume, or another program of the user that renews the token may be first. */
static bool is_replaced(const struct sso_token *token, const char *before, char **ret)
{
	char *text = NULL, *original = NULL;
	struct why why;
	bool replaced = !read_document(token, &text, &original, &why) &&
			strcmp(text, before) != 0 && left_s(text, "expiresAt") > 0;

	if (replaced)
		*ret = json_string_of(text, "accessToken");
	free_secret(text);
	free_secret(original);
	return replaced && *ret;
}

static int renew(const struct sso_token *token, const char *text, const char *original,
	const _Atomic bool *stop, char **ret, struct why *why)
{
	char *document = NULL;
	int r = ask_for_new(token, text, stop, &document, why);

	if (r == -EACCES && is_replaced(token, text, ret))
		return 0;
	if (r)
		return r;
	*ret = json_string_of(document, "accessToken");
	keep(token, document, original);
	return *ret ? 0 : -ENOMEM;
}

static int get(const struct sso_token *token, const char *text, const char *original, bool refused,
	const _Atomic bool *stop, char **ret, struct why *why)
{
	char *access = json_string_of(text, "accessToken");
	int64_t left = left_s(text, "expiresAt");
	bool good = access && left > 0 && !refused;
	int r = 0;

	if (good && left > RENEW_LEFT_S) {
		*ret = access;
		return 0;
	}
	if (can_be_renewed(text))
		r = renew(token, text, original, stop, ret, why);
	else if (!good)
		r = sso_token_useless(token,
			refused               ? "is not accepted"
			: access && left <= 0 ? "is expired"
					      : "makes no sense",
			why);
	/* It lives on for a while. */
	if (good && (r || !*ret)) {
		free_secret(*ret);
		*ret = access;
		return 0;
	}
	free_secret(access);
	return r;
}

int sso_token_get(const struct sso_token *token, bool refused, const _Atomic bool *stop, char **ret,
	struct why *why)
{
	char *text = NULL, *original = NULL, *access = NULL;
	int r = read_document(token, &text, &original, why);

	if (!r)
		r = get(token, text, original, refused, stop, &access, why);
	if (!r)
		*ret = access;
	free_secret(text);
	free_secret(original);
	return r;
}
