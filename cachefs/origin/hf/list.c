/*
 * Names: a page of a directory, and what one path is. Both first learn the commit, if it isn't known
 * or not lately:
 *
 *     GET /api/REPO/revision/REVISION            the commit
 *     GET /api/REPO/tree/COMMIT/DIRECTORY        a page
 *     POST /api/REPO/paths-info/COMMIT           a path
 *
 * The token that the caller keeps between pages is "COMMIT steps power hash ?QUERY", where QUERY is
 * that of the link to the next page. Only the query is taken from it: host and path stay ours, so
 * that the token of a mirror's user goes nowhere else, and nobody leads us to another directory.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/percent.h"

#include "circle.h"
#include "hf/hf.h"
#include "hf/tree_json.h"
#include "later.h"
#include "name.h"

enum hf_step { ASK_COMMIT, ASK_PAGE, ASK_PATH };

struct hf_ask {
	struct request base;
	struct origin_list *list; /* one of these two */
	struct origin_stat *stat;
	char *path; /* from the repository's root: "a/b/" of a list, "a/b" of a stat */
	/* The loop thread's. */
	enum hf_step step; /* of the try */
	char commit[COMMIT_SIZE];
	uint64_t asked_ns; /* when the last try for the commit began; 0: there was none */
	char *query;       /* of the page; "" for the first */
	struct circle circle;
	bool found; /* stat */
};

static struct hf_ask *ask_of(const struct request *request)
{
	return container_of(request, struct hf_ask, base);
}

/* --- a try --- */

/* The commit that is shown now, unless it may be an old one and nobody looks after that yet. */
static void take_commit(struct hf *hf, char ret[COMMIT_SIZE])
{
	uint64_t now = clock_now_ns();

	lock_take(&hf->lock);
	if (hf->commits.n && (hf->pinned || now - hf->refreshed_ns < HF_REFRESH_NS))
		memcpy(ret, hf->commits.sha[0], COMMIT_SIZE);
	else
		hf->refreshed_ns = now;
	lock_drop(&hf->lock);
}

static void add_page_query(const struct hf_ask *ask, struct buf *url)
{
	if (*ask->query) {
		buf_printf(url, "?%s", ask->query);
		return;
	}
	buf_add_string(url, "?recursive=false&expand=false");
	if (ask->list->limit)
		buf_printf(url, "&limit=%u", ask->list->limit);
}

static void add_api_url(
	const struct hf *hf, const char *what, const char *revision, struct buf *url)
{
	buf_printf(url, "%s/api/%s/%s/", hf->url, hf->repo, what);
	percent_encode(url, revision, strlen(revision), false);
}

void hf_ask_prepare(struct request *request, struct call *call)
{
	struct hf *hf = hf_of(request->origin);
	struct hf_ask *ask = ask_of(request);
	size_t n = strlen(ask->path);

	/* Who asks for the commit goes on asking: no old one is shown because the hub doesn't answer. */
	if (!*ask->commit && !ask->asked_ns)
		take_commit(hf, ask->commit);
	ask->step = !*ask->commit ? ASK_COMMIT : ask->list ? ASK_PAGE : ASK_PATH;
	switch (ask->step) {
	case ASK_COMMIT:
		ask->asked_ns = clock_now_ns();
		add_api_url(hf, "revision", hf->revision, &call->url);
		/* Without this the answer names every file. */
		buf_add_string(&call->url, "?expand=sha");
		break;
	case ASK_PAGE:
		add_api_url(hf, "tree", ask->commit, &call->url);
		if (n) {
			buf_add_string(&call->url, "/");
			percent_encode(&call->url, ask->path, n - 1, false);
		}
		add_page_query(ask, &call->url);
		break;
	case ASK_PATH:
		add_api_url(hf, "paths-info", ask->commit, &call->url);
		buf_add_string(&call->form, "expand=false&paths=");
		percent_encode(&call->form, ask->path, n, false);
		break;
	}
}

static void accept_commit(struct request *request, struct verdict *verdict)
{
	struct hf *hf = hf_of(request->origin);
	struct hf_ask *ask = ask_of(request);

	if (revision_json_parse(buf_string(&request->body), request->body.size, ask->commit)) {
		verdict_bad_answer(verdict, "the hub's answer about the revision names no commit");
		return;
	}
	lock_take(&hf->lock);
	commits_learn(&hf->commits, ask->commit, ask->asked_ns);
	lock_drop(&hf->lock);
	verdict_on(verdict);
}

/* --- entries --- */

static void take_attr(const struct hf_entry *entry, struct origin_attr *ret)
{
	*ret = (struct origin_attr){.kind = entry->kind == HF_FILE ? ORIGIN_FILE : ORIGIN_DIR};
	if (entry->kind != HF_FILE)
		return;
	ret->size_bytes = entry->size_bytes;
	ret->version.strong = true;
	snprintf(ret->version.text, sizeof ret->version.text, "\"%s\"", entry->oid);
}

static int take_name(void *arg, const struct hf_entry *from)
{
	struct hf_ask *ask = arg;
	size_t skip = strlen(ask->path);
	struct origin_entry entry = {.attr_known = true};

	if (strncmp(from->path, ask->path, skip) != 0)
		return -EBADMSG;
	entry.name = from->path + skip;
	entry.name_size = strlen(entry.name);
	if (memchr(entry.name, '/', entry.name_size))
		return -EBADMSG;
	if (from->kind == HF_OTHER || !name_valid(entry.name, entry.name_size)) {
		ask->list->hidden_keys++;
		return 0;
	}
	take_attr(from, &entry.attr);
	ask->list->entry(ask->list, &entry);
	return 0;
}

static int take_path(void *arg, const struct hf_entry *entry)
{
	struct hf_ask *ask = arg;

	if (strcmp(entry->path, ask->path) != 0)
		return -EBADMSG;
	if (entry->kind == HF_OTHER)
		return 0;
	ask->found = true;
	take_attr(entry, &ask->stat->attr);
	return 0;
}

/* --- answers --- */

static int make_token(struct hf_ask *ask, const char *query)
{
	struct circle circle = ask->circle;
	char *token;

	if (circle_closed(&circle, hash64(query, strlen(query))))
		return -ELOOP;
	if (asprintf(&token, "%s %" PRIx64 " %" PRIx64 " %" PRIx64 " ?%s", ask->commit,
		    circle.steps, circle.power, circle.hash, query) < 0)
		return -ENOMEM;
	free(ask->list->next_token);
	ask->list->next_token = token;
	return 0;
}

static void accept_page(struct request *request, struct verdict *verdict)
{
	struct hf_ask *ask = ask_of(request);
	const struct answer *answer = &request->answer;
	int r;

	ask->list->hidden_keys = 0;
	if (tree_json_parse(buf_string(&request->body), request->body.size, take_name, ask)) {
		verdict_bad_answer(verdict, "the listing is cut or makes no sense");
		return;
	}
	r = answer->next_bad ? -EBADMSG : *answer->next ? make_token(ask, answer->next) : 0;
	if (!r)
		verdict_done(verdict);
	else if (r == -ENOMEM)
		verdict_fail(verdict, r, ORIGIN_SERVER_ERROR, "out of memory");
	else
		verdict_fail(verdict, -EIO, ORIGIN_SERVER_ERROR,
			"the listing's pages repeat, or it goes on but doesn't say where");
}

static void accept_path(struct request *request, struct verdict *verdict)
{
	struct hf_ask *ask = ask_of(request);

	ask->found = false;
	if (tree_json_parse(buf_string(&request->body), request->body.size, take_path, ask))
		verdict_bad_answer(verdict, "the answer about a path is cut or makes no sense");
	else if (!ask->found)
		verdict_fail(verdict, -ENOENT, ORIGIN_NOT_FOUND, "no such path");
	else
		verdict_done(verdict);
}

static void accept_answer(struct request *request, struct verdict *verdict)
{
	switch (ask_of(request)->step) {
	case ASK_COMMIT:
		accept_commit(request, verdict);
		break;
	case ASK_PAGE:
		accept_page(request, verdict);
		break;
	case ASK_PATH:
		accept_path(request, verdict);
		break;
	}
}

/* --- beginning and end --- */

static bool is_missing(const struct answer *answer)
{
	return answer->status == 404 && (!strcmp(answer->error_code, "RepoNotFound") ||
						!strcmp(answer->error_code, "RevisionNotFound"));
}

static void finish(struct request *request, int error)
{
	const struct hf_ask *ask = ask_of(request);
	struct origin_list *list = ask->list;

	if (!list) {
		ask->stat->done(ask->stat, error);
		return;
	}
	if (error == -EIO && !*list->path && is_missing(&request->answer))
		error = -ENXIO;
	if (error) {
		free(list->next_token);
		list->next_token = NULL;
	}
	list->done(list, error);
}

static void ask_free(struct hf_ask *ask)
{
	free(ask->path);
	free(ask->query);
	free(ask);
}

static void release(struct request *request)
{
	ask_free(ask_of(request));
}

static int parse_token(const char *text, struct hf_ask *ask)
{
	uint64_t *fields[] = {&ask->circle.steps, &ask->circle.power, &ask->circle.hash};
	char *rest;

	if (!text)
		return (ask->query = strdup("")) ? 0 : -ENOMEM;
	if (strlen(text) < COMMIT_SIZE)
		return -EINVAL;
	memcpy(ask->commit, text, COMMIT_SIZE - 1);
	rest = (char *)text + COMMIT_SIZE - 1;
	for (size_t i = 0; i < 3; i++)
		*fields[i] = strtoull(rest, &rest, 16);
	if (strncmp(rest, " ?", 2) != 0)
		return -EINVAL;
	return (ask->query = strdup(rest + 2)) ? 0 : -ENOMEM;
}

/* NULL: no memory, or a token that is none. */
static struct hf_ask *make(struct origin *origin, const char *path, bool directory,
	const char *token, enum origin_priority priority)
{
	struct hf_ask *ask = calloc(1, sizeof *ask);

	if (!ask)
		return NULL;
	if (asprintf(&ask->path, "%s%s%s", hf_of(origin)->subdir, path,
		    directory && *path ? "/" : "") < 0)
		ask->path = NULL;
	if (!ask->path || parse_token(token, ask)) {
		ask_free(ask);
		return NULL;
	}
	request_init(&ask->base, REQUEST_LIST, origin, priority);
	ask->base.accept = accept_answer;
	ask->base.finish = finish;
	ask->base.release = release;
	return ask;
}

void hf_list(struct origin_list *list)
{
	struct hf_ask *ask = make(list->origin, list->path, true, list->token, list->priority);

	if (!ask) {
		later_list(list, -ENOMEM);
		return;
	}
	ask->list = list;
	list->private.state = &ask->base;
	engine_submit(&ask->base);
}

void hf_stat(struct origin_stat *stat)
{
	struct hf_ask *ask =
		*stat->path ? make(stat->origin, stat->path, false, NULL, ORIGIN_DEMAND) : NULL;

	if (!ask) {
		stat->attr = (struct origin_attr){.kind = ORIGIN_DIR};
		later_stat(stat, *stat->path ? -ENOMEM : 0);
		return;
	}
	ask->stat = stat;
	engine_submit(&ask->base);
}
