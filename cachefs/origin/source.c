#include "source.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/percent.h"

#include "name.h"

static bool starts_with(const char *text, const char *start)
{
	return !strncmp(text, start, strlen(start));
}

static size_t without_slashes(const char *text, size_t n)
{
	while (n && text[n - 1] == '/')
		n--;
	return n;
}

static bool has_control_bytes(const char *text)
{
	for (; *text; text++) {
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			return true;
	}
	return false;
}

static bool valid_bucket(const char *bucket)
{
	size_t n = strlen(bucket);

	if (n < 3 || n > 255 || !isalnum((unsigned char)bucket[0]))
		return false;
	for (size_t i = 0; i < n; i++) {
		if (!isalnum((unsigned char)bucket[i]) && !strchr(".-_", bucket[i]))
			return false;
	}
	return !strstr(bucket, "..");
}

static int parse_s3(const char *text, struct source *ret, struct why *why)
{
	const char *bucket = text + strlen("s3://");
	const char *slash = strchrnul(bucket, '/');
	const char *prefix = *slash ? slash + 1 : slash;
	size_t n = without_slashes(prefix, strlen(prefix));

	ret->kind = SOURCE_S3;
	ret->bucket = strndup(bucket, (size_t)(slash - bucket));
	if (!ret->bucket || asprintf(&ret->path, "%.*s%s", (int)n, prefix, n ? "/" : "") < 0)
		return -ENOMEM;
	/* Not shown: it may be a secret. */
	if (strchr(ret->bucket, '@'))
		return why_set(why, -EINVAL,
			"a SOURCE s3://... holds no credentials: give them by the options "
			"credentials= or "
			"aws_profile=, or in the environment");
	if (!valid_bucket(ret->bucket))
		return why_set(why, -EINVAL,
			"\"%s\" names no bucket: \"%s\" must be 3 or more letters, digits, dots "
			"and "
			"hyphens, as in s3://my-bucket/prefix",
			text, ret->bucket);
	if (strlen(ret->path) > 1024)
		return why_set(why, -EINVAL,
			"the prefix of \"%.64s...\" is longer than 1,024 bytes, which no key can "
			"be",
			text);
	return asprintf(&ret->text, "s3://%s%s%.*s", ret->bucket, n ? "/" : "", (int)n, prefix) < 0
		       ? -ENOMEM
		       : 0;
}

/* 1 to 65535, or 0 when it is no port. */
static unsigned parse_port(const char *text)
{
	size_t n = strspn(text, "0123456789");
	unsigned long port = n >= 1 && n <= 5 && !text[n] ? strtoul(text, NULL, 10) : 0;

	return port <= 65535 ? (unsigned)port : 0;
}

/* Splits "host[:port]" or "[v6][:port]"; what is left of text must be exactly that. */
static bool split_host(char *authority, unsigned *ret_port)
{
	char *rest = authority;

	if (*authority == '[') {
		rest = strchr(authority, ']');
		if (!rest || rest == authority + 1)
			return false;
		if (strspn(authority + 1, "0123456789abcdefABCDEF:.") !=
			(size_t)(rest - authority - 1))
			return false;
		rest++;
	} else {
		for (; *rest && *rest != ':'; rest++) {
			if (!isalnum((unsigned char)*rest) && !strchr(".-_", *rest))
				return false;
		}
		if (rest == authority)
			return false;
	}
	*ret_port = 0;
	if (!*rest)
		return true;
	if (*rest != ':')
		return false;
	*rest = '\0';
	*ret_port = parse_port(rest + 1);
	return *ret_port > 0;
}

/* The authority in lower case, without the scheme's own port. -EINVAL when it is none. */
static int normal_host(const char *authority, size_t n, bool tls, char **ret)
{
	_cleanup_(freep) char *text = strndup(authority, n);
	unsigned port;

	if (!text)
		return -ENOMEM;
	for (char *c = text; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	if (!split_host(text, &port))
		return -EINVAL;
	if (port && port != (tls ? 443 : 80))
		return asprintf(ret, "%s:%u", text, port) < 0 ? -ENOMEM : 0;
	*ret = steal_pointer(&text);
	return 0;
}

/* Where the authority of an http URL begins, NULL for another scheme. */
static const char *after_scheme(const char *text, bool *ret_tls)
{
	*ret_tls = !strncasecmp(text, "https://", 8);
	if (*ret_tls)
		return text + 8;
	return !strncasecmp(text, "http://", 7) ? text + 7 : NULL;
}

static int refuse_host(
	const char *what, const char *text, const char *authority, size_t n, struct why *why)
{
	/* The URL is not repeated: what stands before the @ may be a password. */
	if (memchr(authority, '@', n))
		return why_set(why, -EINVAL,
			"the %s has a user or password in its URL, which is not supported: give "
			"the URL without it",
			what);
	return why_set(why, -EINVAL,
		"\"%s\" has no valid host: give http[s]://host[:port]/ for the %s", text, what);
}

static int parse_http(const char *text, struct source *ret, struct why *why)
{
	const char *authority = after_scheme(text, &ret->tls);
	size_t n = strcspn(authority, "/?#");
	const char *path = authority + n;
	size_t path_size;
	int r;

	ret->kind = SOURCE_HTTP;
	r = normal_host(authority, n, ret->tls, &ret->host);
	if (r == -EINVAL)
		return refuse_host("source", text, authority, n, why);
	if (r)
		return r;
	if (strpbrk(path, "?# \"<>") || has_control_bytes(path))
		return why_set(why, -EINVAL,
			"\"%s\" has a query, a fragment or an unencoded character: give "
			"http[s]://host/path/ and write special characters as %%XX",
			text);
	path_size = without_slashes(path, strlen(path));
	if (asprintf(&ret->path, "%.*s/", (int)path_size, path) < 0)
		return -ENOMEM;
	return asprintf(&ret->text, "http%s://%s%s", ret->tls ? "s" : "", ret->host, ret->path) < 0
		       ? -ENOMEM
		       : 0;
}

/* A name of an organisation or a repository. */
static bool valid_repo_part(const char *name, size_t n)
{
	if (n < 1 || n > 96 ||
		strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
			     "0123456789._-") < n)
		return false;
	return name[0] != '.' && name[0] != '-' && !memmem(name, n, "..", 2);
}

/* A revision with slashes that needs no encoding: refs/pr/N, refs/convert/NAME. */
static size_t special_revision(const char *text)
{
	static const char *const starts[] = {"refs/pr/", "refs/convert/"};

	for (size_t i = 0; i < 2; i++) {
		size_t n = strlen(starts[i]);

		if (starts_with(text, starts[i]) && text[n] && text[n] != '/')
			return n + strcspn(text + n, "/");
	}
	return 0;
}

static int take_revision(const char *text, size_t n, struct source *ret)
{
	struct buf revision;
	int r;

	buf_init(&revision, 1024);
	r = percent_decode(&revision, text, n, false);
	if (!r && (!revision.size || strlen(buf_string(&revision)) != revision.size ||
			  has_control_bytes(buf_string(&revision))))
		r = -EINVAL;
	if (!r && !(ret->revision = buf_steal(&revision)))
		r = -ENOMEM;
	buf_free(&revision);
	return r;
}

/* "" or "a/b/"; -EINVAL for what can't be a path in a repository. */
static int take_repo_path(const char *text, struct source *ret)
{
	size_t n = without_slashes(text, strlen(text));

	for (const char *name = text; name < text + n; name += strcspn(name, "/") + 1) {
		if (!name_valid(name, strcspn(name, "/")))
			return -EINVAL;
	}
	return asprintf(&ret->path, "%.*s%s", (int)n, text, n ? "/" : "") < 0 ? -ENOMEM : 0;
}

/* The normal form says no "models" and no "main". */
static int set_hf_text(struct source *ret, const char *revision, size_t n)
{
	const char *name = starts_with(ret->repo, "models/") ? ret->repo + 7 : ret->repo;
	bool is_main = !strcmp(ret->revision, "main");
	size_t path = strlen(ret->path);

	return asprintf(&ret->text, "hf://%s%s%.*s%s%.*s", name, is_main ? "" : "@",
		       is_main ? 0 : (int)n, revision, path ? "/" : "", path ? (int)path - 1 : 0,
		       ret->path) < 0
		       ? -ENOMEM
		       : 0;
}

/* Steps over "datasets/". */
static const char *take_repo_type(const char **text)
{
	static const char *const types[] = {"models", "datasets", "spaces"};

	for (size_t i = 0; i < 3; i++) {
		size_t n = strlen(types[i]);

		if (starts_with(*text, types[i]) && (*text)[n] == '/') {
			*text += n + 1;
			return types[i];
		}
	}
	return types[0];
}

/* hf://[TYPE/]ORG/NAME[@REVISION][/PATH], as huggingface_hub's parse_hf_uri has it. */
static int parse_hf(const char *text, struct source *ret, struct why *why)
{
	const char *org = text + strlen("hf://"), *type = take_repo_type(&org);
	size_t org_size = strcspn(org, "/@"), n = 4;
	const char *name = org + org_size + (org[org_size] == '/'), *revision = "main";
	const char *rest = name + strcspn(name, "/@");
	int r;

	ret->kind = SOURCE_HF;
	if (!valid_repo_part(org, org_size) || !valid_repo_part(name, (size_t)(rest - name)))
		return why_set(why, -EINVAL,
			"\"%s\" names no repository: give hf://org/name[@revision][/path], or "
			"hf://datasets/org/name for a dataset",
			text);
	if (asprintf(&ret->repo, "%s/%.*s", type, (int)(rest - org), org) < 0)
		return -ENOMEM;
	if (*rest == '@') {
		revision = rest + 1;
		n = special_revision(revision);
		n = n ? n : strcspn(revision, "/");
		rest = revision + n;
	}
	r = take_revision(revision, n, ret);
	if (r == -EINVAL)
		return why_set(why, r,
			"\"%s\": \"%.*s\" is no revision: give a branch, a tag or a commit, with "
			"a slash in it written as %%2F",
			text, (int)n, revision);
	if (!r)
		r = take_repo_path(rest + strspn(rest, "/"), ret);
	if (r == -EINVAL)
		return why_set(why, r, "\"%s\": \"%s\" is no path in a repository", text, rest);
	return r ? r : set_hf_text(ret, revision, n);
}

static int parse_dir(const char *text, struct source *ret, struct why *why)
{
	const char *path = text + strlen("file://");
	_cleanup_(freep) char *real = NULL;

	ret->kind = SOURCE_DIR;
	if (*path != '/')
		return why_set(why, -EINVAL,
			"\"%s\" is no absolute path: give file:///dir with three slashes", text);
	real = realpath(path, NULL);
	if (!real) {
		int r = -errno;

		return why_set(why, r, "the directory \"%s\" of the source can't be opened: %s",
			path, strerror(-r));
	}
	ret->path = strdup(strcmp(real, "/") ? real : "");
	if (!ret->path)
		return -ENOMEM;
	return asprintf(&ret->text, "file://%s", real) < 0 ? -ENOMEM : 0;
}

int source_parse(const char *text, struct source *ret, struct why *why)
{
	struct source source = {0};
	bool tls;
	int r;

	if (starts_with(text, "s3://"))
		r = parse_s3(text, &source, why);
	else if (starts_with(text, "hf://"))
		r = parse_hf(text, &source, why);
	else if (after_scheme(text, &tls))
		r = parse_http(text, &source, why);
	else if (starts_with(text, "file://"))
		r = parse_dir(text, &source, why);
	else
		r = why_set(why, -EINVAL,
			"\"%s\" is no source: give s3://bucket[/prefix], "
			"hf://org/repo[@revision], http(s)://host/path/ or file:///dir",
			text);
	if (r) {
		source_free(&source);
		return r;
	}
	*ret = source;
	return 0;
}

void source_free(struct source *source)
{
	free(source->text);
	free(source->host);
	free(source->bucket);
	free(source->repo);
	free(source->revision);
	free(source->path);
	*source = (struct source){0};
}

int endpoint_parse(const char *what, const char *text, struct endpoint *ret, struct why *why)
{
	struct endpoint endpoint = {0};
	const char *authority = after_scheme(text, &endpoint.tls);
	size_t n = authority ? strcspn(authority, "/?#") : 0;
	int r;

	if (!authority)
		return why_set(why, -EINVAL,
			"%s=%s is no URL: give https://host or http://host:port", what, text);
	if (authority[n] && strcmp(authority + n, "/") != 0)
		return why_set(why, -EINVAL,
			"%s=%s has a path: give http[s]://host[:port] only, and bucket and prefix "
			"in the source",
			what, text);
	r = normal_host(authority, n, endpoint.tls, &endpoint.host);
	if (r == -EINVAL)
		return refuse_host(what, text, authority, n, why);
	if (r)
		return r;
	*ret = endpoint;
	return 0;
}

void endpoint_free(struct endpoint *endpoint)
{
	free(endpoint->host);
	*endpoint = (struct endpoint){0};
}

bool host_is_loopback(const char *host)
{
	size_t n = strcspn(host, ":");

	if (starts_with(host, "[::1]") || (n == 9 && starts_with(host, "localhost")))
		return true;
	return starts_with(host, "127.") && strspn(host, "0123456789.") == n;
}
