/* One try to a hub: where a GET goes, where its answer sends it, and what a refusal means. */
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/percent.h"

#include "get.h"
#include "hf/hf.h"

#define HOPS_MAX 5

/* --- URL and headers --- */

/* "/org/name/resolve/REVISION/PATH"; models have no type in it. */
static void add_resolve_url(
	const struct hf *hf, const char *revision, const char *path, struct buf *url)
{
	const char *repo = strncmp(hf->repo, "models/", 7) ? hf->repo : hf->repo + 7;

	buf_printf(url, "%s/%s/resolve/", hf->url, repo);
	percent_encode(url, revision, strlen(revision), false);
	buf_add_string(url, "/");
	percent_encode(url, hf->subdir, strlen(hf->subdir), true);
	percent_encode(url, path, strlen(path), true);
}

static bool is_hub(const struct hf *hf, const char *url)
{
	size_t n = strlen(hf->url);

	return !strncmp(url, hf->url, n) && url[n] == '/';
}

static int authorize(struct request *request, struct call *call)
{
	struct hf *hf = hf_of(request->origin);
	struct credentials credentials;
	int r;

	if (!hf->chain || !is_hub(hf, buf_string(&call->url)))
		return 0;
	r = chain_get(hf->chain, request->origin->engine, &credentials, &request->credentials,
		&call->why);
	if (!r)
		call_header(call, "Authorization", credentials.token);
	credentials_wipe(&credentials);
	return r;
}

/* To where the hub sent this version before, else to the hub. */
static void prepare_get(struct request *request, struct call *call)
{
	struct hf *hf = hf_of(request->origin);
	const struct origin_get *get = get_request_of(request)->get;
	char commit[COMMIT_SIZE] = "", range[64];
	const struct place *place;

	lock_take(&hf->lock);
	place = places_find(&hf->places, get->path, get->version.text);
	request->place = place ? place->number : 0;
	if (place)
		buf_add_string(&call->url, place->url);
	else if (request->back < hf->commits.n)
		memcpy(commit, hf->commits.sha[request->back], sizeof commit);
	lock_drop(&hf->lock);
	if (!request->place)
		add_resolve_url(hf, *commit ? commit : hf->revision, get->path, &call->url);
	get_range(request, range, sizeof range);
	call_header(call, "Range", range);
}

int hf_prepare(struct request *request, struct call *call)
{
	if (request->kind == REQUEST_GET) {
		prepare_get(request, call);
	} else {
		/* A repository that was renamed. curl gives the token to no other host. */
		call->redirects = true;
		hf_ask_prepare(request, call);
	}
	return authorize(request, call);
}

/* --- versions --- */

/* An ETag of the hub against a version: W/ and quotes don't count. */
static bool same_content(const char *etag, const struct origin_version *version)
{
	size_t n;

	etag += strncmp(etag, "W/", 2) ? 0 : 2;
	etag += *etag == '"';
	n = strcspn(etag, "\"");
	return n + 2 == strlen(version->text) && !strncmp(version->text + 1, etag, n);
}

static void drop_place(struct request *request)
{
	struct hf *hf = hf_of(request->origin);
	const struct origin_get *get = get_request_of(request)->get;

	lock_take(&hf->lock);
	places_drop(&hf->places, get->path, get->version.text, request->place);
	lock_drop(&hf->lock);
}

/* At this commit the path is something else, or nothing: a commit before may have the version. */
static void look_back(struct request *request, struct verdict *verdict)
{
	struct hf *hf = hf_of(request->origin);
	bool more;

	lock_take(&hf->lock);
	more = request->back + 1 < hf->commits.n;
	lock_drop(&hf->lock);
	if (more) {
		request->back++;
		request->hops = 0;
		verdict_on(verdict);
	} else {
		verdict_fail(verdict, -ESTALE, ORIGIN_CHANGED, "the object has changed");
	}
}

/* Of an answer of the hub itself, to the URL that was made of the path. */
static bool check_own(struct request *request)
{
	const struct answer *answer = &request->answer;
	const char *etag = *answer->linked_etag ? answer->linked_etag : answer->etag;

	if (!*etag)
		verdict_bad_answer(&request->verdict, "the hub doesn't say which version it gives");
	else if (!same_content(etag, &get_request_of(request)->get->version))
		look_back(request, &request->verdict);
	else
		return true;
	return false;
}

static void send_again(struct request *request, struct verdict *verdict)
{
	if (request->hops++ < HOPS_MAX)
		verdict_on(verdict);
	else
		verdict_fail(
			verdict, -EIO, ORIGIN_SERVER_ERROR, "more than %d redirects", HOPS_MAX);
}

enum finding { FINDING_RIGHT, FINDING_OTHER, FINDING_ODD, FINDING_GONE };

/* Of an answer of a place; a place that is not right is forgotten. The lock is held. */
static enum finding look_at_place(struct hf *hf, const struct request *request)
{
	const struct origin_get *get = get_request_of(request)->get;
	const struct answer *answer = &request->answer;
	struct place *place = places_find(&hf->places, get->path, get->version.text);
	enum finding finding = FINDING_RIGHT;

	if (!place || place->number != request->place)
		return FINDING_GONE;
	if (!place->proven) {
		place->proven = same_content(
			*answer->linked_etag ? answer->linked_etag : answer->etag, &get->version);
		finding = place->proven ? FINDING_RIGHT : FINDING_OTHER;
	} else if (*place->etag && strcmp(place->etag, answer->etag) != 0) {
		finding = FINDING_ODD;
	}
	if (finding == FINDING_RIGHT)
		memcpy(place->etag, answer->etag, sizeof place->etag);
	else
		places_drop(&hf->places, get->path, get->version.text, request->place);
	return finding;
}

bool hf_check_version(struct request *request)
{
	struct hf *hf = hf_of(request->origin);
	enum finding finding;

	if (!request->place)
		return check_own(request);
	lock_take(&hf->lock);
	finding = look_at_place(hf, request);
	lock_drop(&hf->lock);
	if (finding == FINDING_OTHER)
		look_back(request, &request->verdict);
	else if (finding == FINDING_ODD)
		verdict_bad_answer(&request->verdict,
			"where the hub sent this, the ETag is another than before");
	/* Another request found that it is out of use. */
	else if (finding == FINDING_GONE)
		send_again(request, &request->verdict);
	return finding == FINDING_RIGHT;
}

/* --- redirects --- */

/* Another request may have been sent on meanwhile: one place for all of them. */
static int keep_place(struct request *request, const char *url)
{
	struct hf *hf = hf_of(request->origin);
	const struct origin_get *get = get_request_of(request)->get;
	bool proven = *request->answer.linked_etag;
	struct place *place;

	lock_take(&hf->lock);
	place = places_find(&hf->places, get->path, get->version.text);
	if (!place || place->number == request->place) {
		proven |= place && place->proven;
		place = places_put(&hf->places, get->path, get->version.text, url);
		if (place)
			place->proven = proven;
	}
	lock_drop(&hf->lock);
	return place ? 0 : -ENOMEM;
}

/* A GET is sent on. */
static void follow(struct request *request, struct verdict *verdict)
{
	const struct hf *hf = hf_of(request->origin);
	const char *linked = request->answer.linked_etag, *url = NULL;
	bool tls = !strncmp(hf->url, "https:", 6);

	if (*linked && !same_content(linked, &get_request_of(request)->get->version)) {
		drop_place(request);
		look_back(request, verdict);
		return;
	}
	curl_easy_getinfo(request->easy, CURLINFO_REDIRECT_URL, &url);
	if (!url || strlen(url) > PLACE_URL_MAX || (tls && strncasecmp(url, "https://", 8) != 0))
		verdict_fail(verdict, -EIO, ORIGIN_SERVER_ERROR,
			"HTTP %ld that sends to no place, or to one without TLS",
			request->answer.status);
	else if (keep_place(request, url))
		verdict_fail(verdict, -ENOMEM, ORIGIN_SERVER_ERROR, "out of memory");
	else
		send_again(request, verdict);
}

/* The place refuses: its URL has expired, in all likelihood. One that the hub gave just now is
 * waited with. */
static void leave_place(struct request *request, struct verdict *verdict)
{
	drop_place(request);
	request->hops = 0;
	if (request->fixes_done & 1u << FIX_PLACE) {
		verdict_bad_answer(verdict, "HTTP %ld of the host that the hub sends to",
			request->answer.status);
		return;
	}
	request->fixes_done |= 1u << FIX_PLACE;
	verdict_on(verdict);
}

/* --- refusals --- */

static bool has_code(const struct request *request, const char *code)
{
	return !strcmp(request->answer.error_code, code);
}

/* A token that was replaced in its file is tried once. */
static bool other_token(struct request *request)
{
	struct hf *hf = hf_of(request->origin);

	if (request->answer.status != 401 || request->place || !hf->chain ||
		request->fixes_done & 1u << FIX_CREDENTIALS)
		return false;
	request->fixes_done |= 1u << FIX_CREDENTIALS;
	return chain_reject(hf->chain, request->credentials);
}

/* Of the hub's API, whose X-Error-Code says more than the status. */
static void refuse(struct request *request, struct verdict *verdict)
{
	const struct hf *hf = hf_of(request->origin);
	const struct answer *answer = &request->answer;
	const char *name = strchr(hf->repo, '/') + 1;
	bool denied = answer->status == 401 || answer->status == 403;

	if (has_code(request, "GatedRepo"))
		verdict_fail(verdict, -EACCES, ORIGIN_DENIED,
			"HTTP %ld GatedRepo: %s is gated: accept its conditions on its page with "
			"the account of the token, and give the token by credentials= or HF_TOKEN",
			answer->status, name);
	else if (has_code(request, "RepoNotFound"))
		verdict_fail(verdict, denied ? -EACCES : -EIO,
			denied ? ORIGIN_DENIED : ORIGIN_SERVER_ERROR,
			"HTTP %ld RepoNotFound: there is no %s, or it is private and the token may "
			"not see it: check the name, datasets/ before it, and the token "
			"(credentials=, HF_TOKEN)",
			answer->status, name);
	else if (has_code(request, "RevisionNotFound"))
		verdict_fail(verdict, -EIO, ORIGIN_SERVER_ERROR,
			"HTTP %ld RevisionNotFound: %s has no revision %.64s: check what stands "
			"behind the @",
			answer->status, name, hf->revision);
	else if (has_code(request, "EntryNotFound") && answer->status == 404)
		verdict_fail(verdict, -ENOENT, ORIGIN_NOT_FOUND, "HTTP 404 EntryNotFound");
	else if (denied)
		verdict_fail(verdict, -EACCES, ORIGIN_DENIED,
			"HTTP %ld %s: check the token (credentials=, HF_TOKEN) and what it may "
			"read",
			answer->status, answer->error_message);
	else if (verdict->error == -ENOENT)
		verdict_fail(verdict, -EIO, ORIGIN_SERVER_ERROR,
			"HTTP %ld without X-Error-Code: is this a Hugging Face hub?",
			answer->status);
}

void hf_judge(struct request *request, struct verdict *verdict)
{
	long status = request->answer.status;
	bool get = request->kind == REQUEST_GET;

	if (other_token(request)) {
		verdict->step = STEP_AGAIN;
		return;
	}
	if (get && status >= 300 && status < 400)
		follow(request, verdict);
	else if (get && request->place &&
		 (status == 400 || status == 401 || status == 403 || status == 404 ||
			 status == 410))
		leave_place(request, verdict);
	/* A commit may vanish with a branch's history. */
	else if (get &&
		 (has_code(request, "EntryNotFound") || (has_code(request, "RevisionNotFound") &&
								!hf_of(request->origin)->pinned)))
		look_back(request, verdict);
	else
		refuse(request, verdict);
}
