#include "s3/s3.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#include "get.h"

#define REGION_DEFAULT "us-east-1"

char *s3_key(const struct s3 *s3, const char *path, bool directory)
{
	char *key;

	return asprintf(&key, "%s%s%s", s3->prefix, path, directory && *path ? "/" : "") < 0 ? NULL
											     : key;
}

void s3_request_free(struct s3_request *request)
{
	free(request->key);
	free(request->token);
}

static void get_signal(struct origin_get *get, unsigned signal)
{
	engine_signal(get->private.state, signal);
}

static int object_name(const struct origin *origin, const char *path, char *name, size_t size)
{
	const struct s3 *s3 = s3_of(origin);
	int n = snprintf(name, size, "s3://%s/%s/%s%s",
		s3->endpoint ? s3->endpoint : "amazonaws.com", s3->bucket, s3->prefix, path);

	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

static void destroy(struct origin *origin)
{
	struct s3 *s3 = s3_of(origin);

	chain_free(s3->chain);
	free(s3->bucket);
	free(s3->prefix);
	free(s3->endpoint);
	lock_destroy(&s3->lock);
	free(s3);
}

static const struct origin_ops s3_ops = {
	.get = get_start,
	.get_signal = get_signal,
	.stat = s3_stat,
	.list = s3_list,
	.object_name = object_name,
	.destroy = destroy,
	.prepare = s3_prepare,
	.judge = s3_judge,
	.lists_in_order = true,
};

static const char *first_set(const char *given, const char *const *variables)
{
	for (; !given && *variables; variables++) {
		given = getenv(*variables);
		if (given && !*given)
			given = NULL;
	}
	return given;
}

/* What was given, else the environment's, else the profile's. *ret_own owns the last. */
static const char *find_setting(const struct origin_config *config, const char *given,
	const char *const *variables, const char *name, char **ret_own)
{
	const char *value = first_set(given, variables);

	if (value)
		return value;
	return *ret_own = profile_setting(config, name);
}

static int set_region(struct s3 *s3, const struct origin_config *config, struct why *why)
{
	static const char *const variables[] = {"AWS_REGION", "AWS_DEFAULT_REGION", NULL};
	_cleanup_(freep) char *own = NULL;
	const char *region = find_setting(config, config->region, variables, "region", &own);

	if (!region)
		region = REGION_DEFAULT;
	if (!*region || strlen(region) >= sizeof s3->region ||
		strspn(region,
			"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") !=
			strlen(region))
		return why_set(why, -EINVAL,
			"region=%s is no region: give letters, digits and hyphens, as in us-east-1",
			region);
	strcpy(s3->region, region);
	return 0;
}

static int set_endpoint(struct s3 *s3, const struct origin_config *config, struct why *why)
{
	static const char *const variables[] = {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", NULL};
	_cleanup_(freep) char *own = NULL;
	const char *url = find_setting(config, config->endpoint, variables, "endpoint_url", &own);
	struct endpoint endpoint;
	int r;

	s3->tls = true;
	if (!url)
		return 0;
	r = endpoint_parse("endpoint", url, &endpoint, why);
	if (r)
		return r;
	s3->tls = endpoint.tls;
	s3->endpoint = endpoint.host;
	s3->base.loopback = host_is_loopback(endpoint.host);
	return 0;
}

/* Can the bucket's name be part of a host name? With TLS not with dots, which no wildcard
 * certificate covers. */
static bool host_name_works(const struct s3 *s3)
{
	if (strlen(s3->bucket) > 63 || (s3->tls && strchr(s3->bucket, '.')))
		return false;
	return strspn(s3->bucket, "abcdefghijklmnopqrstuvwxyz0123456789-.") == strlen(s3->bucket);
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n >= m && !strcmp(text + n - m, end);
}

static int set_addressing(struct s3 *s3, const char *addressing, struct why *why)
{
	if (!addressing || !*addressing || !strcmp(addressing, "auto"))
		s3->virtual_host = host_name_works(s3) &&
				   (!s3->endpoint || ends_with(s3->endpoint, ".amazonaws.com"));
	else if (!strcmp(addressing, "virtual"))
		s3->virtual_host = true;
	else if (strcmp(addressing, "path") != 0)
		return why_set(why, -EINVAL,
			"addressing=%s is not known: give auto, path or virtual", addressing);
	return 0;
}

static int set_credentials(struct s3 *s3, const struct origin_config *config, struct why *why)
{
	int r = 0;

	if (config->anonymous)
		s3->base.identity = strdup("anonymous");
	else
		r = chain_new(config, s3->region, &s3->chain, why);
	if (!r && s3->chain)
		s3->base.identity = chain_identity(s3->chain);
	return r ? r : s3->base.identity ? 0 : -ENOMEM;
}

int s3_open(const struct source *source, const struct origin_config *config, struct origin **ret,
	struct why *why)
{
	struct s3 *s3 = calloc(1, sizeof *s3);
	int r;

	if (!s3)
		return -ENOMEM;
	origin_setup(&s3->base, &s3_ops);
	lock_init(&s3->lock);
	s3->bucket = strdup(source->bucket);
	s3->prefix = strdup(source->path);
	r = s3->bucket && s3->prefix ? 0 : -ENOMEM;
	if (!r)
		r = set_region(s3, config, why);
	if (!r)
		r = set_endpoint(s3, config, why);
	if (!r)
		r = set_addressing(s3, config->addressing, why);
	if (!r)
		r = set_credentials(s3, config, why);
	if (r) {
		origin_unref(&s3->base);
		return r;
	}
	*ret = &s3->base;
	return 0;
}
