#include "hf/hf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "get.h"

#define HUB "https://huggingface.co"

static void get_signal(struct origin_get *get, unsigned signal)
{
	engine_signal(get->private.state, signal);
}

/* Without the revision: commits share what they have in common. */
static int object_name(const struct origin *origin, const char *path, char *name, size_t size)
{
	const struct hf *hf = hf_of(origin);
	int n = snprintf(name, size, "hf+%s/%s/%s%s", hf->url, hf->repo, hf->subdir, path);

	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

static void destroy(struct origin *origin)
{
	struct hf *hf = hf_of(origin);

	chain_free(hf->chain);
	places_free(&hf->places);
	free(hf->url);
	free(hf->repo);
	free(hf->revision);
	free(hf->subdir);
	lock_destroy(&hf->lock);
	free(hf);
}

static const struct origin_ops hf_ops = {
	.get = get_start,
	.get_signal = get_signal,
	.stat = hf_stat,
	.list = hf_list,
	.object_name = object_name,
	.destroy = destroy,
	.prepare = hf_prepare,
	.judge = hf_judge,
	.check_version = hf_check_version,
	.ranges_optional = true,
	.says_why = true,
};

static int set_endpoint(struct hf *hf, const struct origin_config *config, struct why *why)
{
	const char *variable = getenv("HF_ENDPOINT");
	const char *what = config->endpoint ? "endpoint" : "HF_ENDPOINT";
	const char *url = config->endpoint ? config->endpoint : variable;
	struct endpoint endpoint;
	int r;

	r = endpoint_parse(what, url && *url ? url : HUB, &endpoint, why);
	if (r)
		return r;
	hf->base.loopback = host_is_loopback(endpoint.host);
	if (asprintf(&hf->url, "http%s://%s", endpoint.tls ? "s" : "", endpoint.host) < 0) {
		hf->url = NULL;
		r = -ENOMEM;
	}
	endpoint_free(&endpoint);
	return r;
}

static int set_credentials(struct hf *hf, const struct origin_config *config, struct why *why)
{
	int r = chain_new_token(config, &hf->chain, why);

	if (r || !hf->chain)
		return r;
	hf->base.identity = chain_identity(hf->chain);
	return hf->base.identity ? 0 : -ENOMEM;
}

int hf_open(const struct source *source, const struct origin_config *config, struct origin **ret,
	struct why *why)
{
	struct hf *hf = calloc(1, sizeof *hf);
	int r;

	if (!hf)
		return -ENOMEM;
	origin_setup(&hf->base, &hf_ops);
	lock_init(&hf->lock);
	hf->repo = strdup(source->repo);
	hf->revision = strdup(source->revision);
	hf->subdir = strdup(source->path);
	r = hf->repo && hf->revision && hf->subdir ? 0 : -ENOMEM;
	if (!r && commit_valid(hf->revision)) {
		hf->pinned = true;
		commits_learn(&hf->commits, hf->revision, 0);
	}
	if (!r)
		r = set_endpoint(hf, config, why);
	if (!r)
		r = set_credentials(hf, config, why);
	if (r) {
		origin_unref(&hf->base);
		return r;
	}
	*ret = &hf->base;
	return 0;
}
