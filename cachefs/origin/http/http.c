/*
 * http: an origin that is a web server: HEAD for what a path is, ranges for its bytes, an index
 * document for a directory.
 */
#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/percent.h"
#include "credentials/credentials.h"
#include "get.h"
#include "http/index.h"
#include "impl.h"
#include "later.h"

#define URL_MAX (24u << 10)

struct http {
	struct origin base;
	char *url;           /* "http://host" */
	char *path;          /* encoded, "/" at both ends */
	struct chain *chain; /* the Authorization header; NULL: none */
};

struct http_stat {
	struct request base;
	struct origin_stat *stat;
};

struct http_list {
	struct request base;
	struct origin_list *list;
};

static struct http *http_of(const struct origin *origin)
{
	return container_of(origin, struct http, base);
}

static struct http_stat *stat_of(const struct request *request)
{
	return container_of(request, struct http_stat, base);
}

static struct http_list *list_of(const struct request *request)
{
	return container_of(request, struct http_list, base);
}

/* Appends the URL of path, without host when `whole` is false. */
static void add_url(
	const struct http *http, const char *path, bool directory, bool whole, struct buf *out)
{
	if (whole)
		buf_add_string(out, http->url);
	buf_add_string(out, http->path);
	percent_encode(out, path, strlen(path), true);
	if (directory && *path)
		buf_add_string(out, "/");
}

/* curl gives a header of this name to no other host, scheme or port that a redirect leads to. */
static int authorize(struct request *request, struct call *call)
{
	struct http *http = http_of(request->origin);
	struct credentials credentials;
	int r;

	if (!http->chain)
		return 0;
	r = chain_get(http->chain, request->origin->engine, &credentials, &request->credentials,
		&call->why);
	if (!r)
		call_header(call, "Authorization", credentials.token);
	credentials_wipe(&credentials);
	return r;
}

static int prepare(struct request *request, struct call *call)
{
	struct http *http = http_of(request->origin);
	char range[64];

	call->redirects = true;
	switch (request->kind) {
	case REQUEST_GET:
		add_url(http, get_request_of(request)->get->path, false, true, &call->url);
		get_range(request, range, sizeof range);
		call_header(call, "Range", range);
		if (get_request_of(request)->get->version.strong)
			call_header(call, "If-Match", get_request_of(request)->get->version.text);
		break;
	case REQUEST_HEAD:
		add_url(http, stat_of(request)->stat->path, false, true, &call->url);
		break;
	case REQUEST_LIST:
		add_url(http, list_of(request)->list->path, true, true, &call->url);
		break;
	}
	return authorize(request, call);
}

/* Was the request sent on to its own URL with a slash at the end, as servers do for directories? */
static bool became_directory(const struct request *request)
{
	struct http *http = http_of(request->origin);
	const char *effective = NULL;
	struct buf path;
	bool same = false;

	curl_easy_getinfo(request->easy, CURLINFO_EFFECTIVE_URL, &effective);
	effective = effective ? strstr(effective, "://") : NULL;
	effective = effective ? strchr(effective + 3, '/') : NULL;
	buf_init(&path, URL_MAX);
	add_url(http, stat_of(request)->stat->path, true, false, &path);
	if (effective && !path.error) {
		struct buf got, own;

		/* Servers encode differently. */
		buf_init(&got, URL_MAX);
		buf_init(&own, URL_MAX);
		same = !percent_decode(&got, effective, strlen(effective), false) &&
		       !percent_decode(&own, buf_string(&path), path.size, false) &&
		       got.size == own.size &&
		       !memcmp(buf_string(&got), buf_string(&own), own.size);
		buf_free(&got);
		buf_free(&own);
	}
	buf_free(&path);
	return same;
}

static void accept_head(struct request *request, struct verdict *verdict)
{
	struct origin_attr *attr = &stat_of(request)->stat->attr;
	const struct answer *answer = &request->answer;

	if (became_directory(request)) {
		*attr = (struct origin_attr){.kind = ORIGIN_DIR};
		verdict_done(verdict);
		return;
	}
	*attr = (struct origin_attr){
		.kind = ORIGIN_FILE,
		.size_bytes = answer->length,
		.mtime_ns = answer->modified_s * 1000000000ll,
	};
	if (!answer->has_length)
		verdict_fail(verdict, -EIO, ORIGIN_SERVER_ERROR,
			"the server does not tell the object's size");
	else if (answer_version(answer, answer->length, &attr->version))
		verdict_fail(verdict, -EIO, ORIGIN_SERVER_ERROR,
			"the server gives neither ETag nor Last-Modified");
	else
		verdict_done(verdict);
}

/* A token that was replaced in its file is tried once. */
static bool other_token(struct request *request)
{
	struct http *http = http_of(request->origin);

	if (request->answer.status != 401 || !http->chain ||
		request->fixes_done & 1u << FIX_CREDENTIALS)
		return false;
	request->fixes_done |= 1u << FIX_CREDENTIALS;
	return chain_reject(http->chain, request->credentials);
}

/* A server that won't show names answers 403 (nginx, Apache) or 404. With an Authorization header the
 * former rather speaks of that. */
static void judge_list(struct request *request, struct verdict *verdict)
{
	struct origin_list *list = list_of(request)->list;

	if (verdict->error == -EACCES)
		list->unlisted = request->answer.status == 403 && !http_of(request->origin)->chain;
	/* Without a document for the root only known paths can be read. */
	if (verdict->error == -ENOENT && !*list->path) {
		list->unlisted = true;
		verdict_done(verdict);
	}
}

static void judge(struct request *request, struct verdict *verdict)
{
	if (other_token(request)) {
		verdict->step = STEP_AGAIN;
		return;
	}
	/* A directory that may not be listed is one all the same. */
	if (request->kind == REQUEST_HEAD && verdict->step == STEP_FAIL &&
		became_directory(request))
		accept_head(request, verdict);
	else if (request->kind == REQUEST_LIST)
		judge_list(request, verdict);
}

static void give_link(void *arg, const struct index_link *link)
{
	struct origin_list *list = arg;
	struct origin_entry entry = {
		.name = link->name,
		.name_size = link->name_size,
		.attr = {.kind = link->directory ? ORIGIN_DIR : ORIGIN_FILE},
		.attr_known = link->directory,
	};

	list->entry(list, &entry);
}

static void accept_list(struct request *request, struct verdict *verdict)
{
	struct http *http = http_of(request->origin);
	struct origin_list *list = list_of(request)->list;
	struct buf path;
	int r;

	/* Read as it is it would be a directory without names. */
	if (request->answer.coded) {
		verdict_bad_answer(
			verdict, "the index document is packed though that was not asked for");
		return;
	}
	verdict_done(verdict);
	list->unlisted = !request->answer.html;
	if (list->unlisted)
		return;
	buf_init(&path, URL_MAX);
	add_url(http, list->path, true, false, &path);
	r = path.error ? path.error
		       : index_parse(buf_string(&request->body), request->body.size, http->url,
				 buf_string(&path), give_link, list, &list->hidden_keys);
	if (r)
		verdict_fail(verdict, r, ORIGIN_SERVER_ERROR, "%s", strerror(-r));
	buf_free(&path);
}

static void finish_stat(struct request *request, int error)
{
	stat_of(request)->stat->done(stat_of(request)->stat, error);
}

static void release_stat(struct request *request)
{
	free(stat_of(request));
}

static void finish_list(struct request *request, int error)
{
	list_of(request)->list->done(list_of(request)->list, error);
}

static void release_list(struct request *request)
{
	free(list_of(request));
}

static void http_stat(struct origin_stat *stat)
{
	struct http_stat *own = *stat->path ? calloc(1, sizeof *own) : NULL;

	if (!own) {
		stat->attr = (struct origin_attr){.kind = ORIGIN_DIR};
		later_stat(stat, *stat->path ? -ENOMEM : 0);
		return;
	}
	request_init(&own->base, REQUEST_HEAD, stat->origin, ORIGIN_DEMAND);
	own->base.accept = accept_head;
	own->base.finish = finish_stat;
	own->base.release = release_stat;
	own->stat = stat;
	engine_submit(&own->base);
}

static void http_list(struct origin_list *list)
{
	struct http_list *own = calloc(1, sizeof *own);

	if (!own) {
		later_list(list, -ENOMEM);
		return;
	}
	request_init(&own->base, REQUEST_LIST, list->origin, list->priority);
	own->base.accept = accept_list;
	own->base.finish = finish_list;
	own->base.release = release_list;
	own->list = list;
	list->private.state = &own->base;
	engine_submit(&own->base);
}

static void get_signal(struct origin_get *get, unsigned signal)
{
	engine_signal(get->private.state, signal);
}

static int object_name(const struct origin *origin, const char *path, char *name, size_t size)
{
	struct buf url;
	int r;

	buf_init(&url, URL_MAX);
	add_url(http_of(origin), path, false, true, &url);
	r = url.error || url.size >= size ? -ENAMETOOLONG : 0;
	if (!r)
		memcpy(name, buf_string(&url), url.size + 1);
	buf_free(&url);
	return r;
}

static void destroy(struct origin *origin)
{
	struct http *http = http_of(origin);

	chain_free(http->chain);
	free(http->url);
	free(http->path);
	free(http);
}

static const struct origin_ops http_ops = {
	.get = get_start,
	.get_signal = get_signal,
	.stat = http_stat,
	.list = http_list,
	.object_name = object_name,
	.destroy = destroy,
	.prepare = prepare,
	.judge = judge,
	.ranges_optional = true,
	.lists_some = true,
};

static int set_credentials(struct http *http, const struct origin_config *config, struct why *why)
{
	int r;

	if (!config->credentials)
		return 0;
	r = chain_new_header(config->credentials, &http->chain, why);
	if (r)
		return r;
	http->base.identity = chain_identity(http->chain);
	return http->base.identity ? 0 : -ENOMEM;
}

int http_open(const struct source *source, const struct origin_config *config, struct origin **ret,
	struct why *why)
{
	struct http *http = calloc(1, sizeof *http);
	int r;

	if (!http)
		return -ENOMEM;
	origin_setup(&http->base, &http_ops);
	http->base.loopback = host_is_loopback(source->host);
	http->path = strdup(source->path);
	if (asprintf(&http->url, "http%s://%s", source->tls ? "s" : "", source->host) < 0)
		http->url = NULL;
	r = http->path && http->url ? set_credentials(http, config, why) : -ENOMEM;
	if (r) {
		origin_unref(&http->base);
		return r;
	}
	*ret = &http->base;
	return 0;
}
