/* One try to S3: its URL, its signature, and what an error means. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "base/percent.h"

#include "get.h"
#include "s3/s3.h"
#include "s3/sigv4.h"
#include "url.h"

#define PATH_MAX_ENCODED  (16u << 10)
#define QUERY_MAX_ENCODED (48u << 10)

/* What is sent and signed. */
struct message {
	char host[512];
	char region[S3_REGION_MAX];
	struct buf uri, query;
	char range[64];
};

/* --- URL --- */

static void set_host(const struct s3 *s3, struct message *message)
{
	char aws[160];
	const char *host = s3->endpoint;

	if (!host) {
		snprintf(aws, sizeof aws, "s3.%s.amazonaws.com%s", message->region,
			strncmp(message->region, "cn-", 3) ? "" : ".cn");
		host = aws;
	}
	snprintf(message->host, sizeof message->host, "%s%s%s", s3->virtual_host ? s3->bucket : "",
		s3->virtual_host ? "." : "", host);
}

static void set_uri(const struct s3 *s3, const char *key, struct message *message)
{
	buf_add_string(&message->uri, "/");
	if (!s3->virtual_host) {
		percent_encode(&message->uri, s3->bucket, strlen(s3->bucket), false);
		if (*key)
			buf_add_string(&message->uri, "/");
	}
	percent_encode(&message->uri, key, strlen(key), true);
}

static void set_query(const struct s3_request *own, struct message *message)
{
	struct url_parameter parameters[8];
	char limit[16];
	size_t n = 0;

	if (!own->probe)
		parameters[n++] = (struct url_parameter){"delimiter", "/"};
	parameters[n++] = (struct url_parameter){"encoding-type", "url"};
	if (!own->v1)
		parameters[n++] = (struct url_parameter){"list-type", "2"};
	if (own->limit) {
		snprintf(limit, sizeof limit, "%u", own->limit);
		parameters[n++] = (struct url_parameter){"max-keys", limit};
	}
	parameters[n++] = (struct url_parameter){"prefix", own->key};
	if (own->token && *own->token)
		parameters[n++] = (struct url_parameter){
			own->v1 ? "marker" : "continuation-token", own->token};
	url_query(&message->query, parameters, n);
}

/* The key of a GET is made from its path; HEAD has its own; LIST is of the bucket. */
static int set_target(struct request *request, struct message *message)
{
	struct s3 *s3 = s3_of(request->origin);
	char *key;

	if (request->kind == REQUEST_LIST) {
		struct s3_request *own = s3_request_of(request);

		if (!*own->token)
			own->v1 = atomic_load(&s3->list_v1);
		set_uri(s3, "", message);
		set_query(own, message);
		return 0;
	}
	if (request->kind == REQUEST_HEAD) {
		set_uri(s3, s3_request_of(request)->key, message);
		return 0;
	}
	key = s3_key(s3, get_request_of(request)->get->path, false);
	if (!key)
		return -ENOMEM;
	set_uri(s3, key, message);
	free(key);
	get_range(request, message->range, sizeof message->range);
	return 0;
}

/* --- signature --- */

static void set_time(const struct s3 *s3, char time_text[SIGV4_TIME_SIZE])
{
	time_t now =
		(time_t)(clock_wall_ns() / (int64_t)NS_PER_SEC + atomic_load(&s3->clock_ahead_s));
	struct tm tm;

	gmtime_r(&now, &tm);
	strftime(time_text, SIGV4_TIME_SIZE, "%Y%m%dT%H%M%SZ", &tm);
}

static void sign(const struct request *request, const struct message *message,
	const struct credentials *credentials, struct call *call)
{
	struct sigv4_scope scope = {
		.key_id = credentials->key_id,
		.secret = credentials->secret,
		.region = message->region,
		.service = "s3",
	};
	struct sigv4_header headers[5];
	struct sigv4_request signed_request = {
		.method = request->kind == REQUEST_HEAD ? "HEAD" : "GET",
		.uri = buf_string(&message->uri),
		.query = buf_string(&message->query),
		.headers = headers,
		.payload_hash = SIGV4_EMPTY_HASH,
	};
	struct buf authorization;
	size_t n = 0;

	set_time(s3_of(request->origin), scope.time);
	headers[n++] = (struct sigv4_header){"host", message->host};
	if (*message->range)
		headers[n++] = (struct sigv4_header){"range", message->range};
	headers[n++] = (struct sigv4_header){"x-amz-content-sha256", SIGV4_EMPTY_HASH};
	headers[n++] = (struct sigv4_header){"x-amz-date", scope.time};
	if (*credentials->token)
		headers[n++] = (struct sigv4_header){"x-amz-security-token", credentials->token};
	signed_request.n_headers = n;
	buf_init(&authorization, 4096);
	sigv4_authorization(&signed_request, &scope, &authorization);
	if (authorization.error)
		call->error = authorization.error;
	/* host is curl's to send, range is sent in any case. */
	for (size_t i = 0; i < n; i++) {
		if (!strncmp(headers[i].name, "x-amz-", 6))
			call_header(call, headers[i].name, headers[i].value);
	}
	call_header(call, "Authorization", buf_string(&authorization));
	buf_free(&authorization);
}

static int sign_with_chain(
	struct request *request, const struct message *message, struct call *call)
{
	struct s3 *s3 = s3_of(request->origin);
	struct credentials credentials;
	int r = chain_get(s3->chain, request->origin->engine, &credentials, &request->credentials,
		&call->why);

	if (!r)
		sign(request, message, &credentials, call);
	credentials_wipe(&credentials);
	return r;
}

static void add_condition(const struct request *request, struct call *call)
{
	const struct origin_version *version = &get_request_of(request)->get->version;

	if (version->strong)
		call_header(call, "If-Match", version->text);
}

static int fill_call(struct request *request, struct message *message, struct call *call)
{
	struct s3 *s3 = s3_of(request->origin);
	int r = set_target(request, message);

	if (r)
		return r;
	buf_printf(&call->url, "http%s://%s%s%s%s", s3->tls ? "s" : "", message->host,
		buf_string(&message->uri), message->query.size ? "?" : "",
		buf_string(&message->query));
	if (message->uri.error || message->query.error)
		return message->uri.error == -ENOMEM || message->query.error == -ENOMEM
			       ? -ENOMEM
			       : -ENAMETOOLONG;
	if (*message->range)
		call_header(call, "Range", message->range);
	if (request->kind == REQUEST_GET)
		add_condition(request, call);
	return s3->chain ? sign_with_chain(request, message, call) : 0;
}

int s3_prepare(struct request *request, struct call *call)
{
	struct s3 *s3 = s3_of(request->origin);
	struct message message = {.range = ""};
	int r;

	buf_init(&message.uri, PATH_MAX_ENCODED);
	buf_init(&message.query, QUERY_MAX_ENCODED);
	lock_take(&s3->lock);
	strcpy(message.region, s3->region);
	lock_drop(&s3->lock);
	set_host(s3, &message);
	r = fill_call(request, &message, call);
	buf_free(&message.uri);
	buf_free(&message.query);
	return r;
}

/* --- errors --- */

static bool valid_region(const char *region)
{
	return *region && strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(region);
}

/* Learns the bucket's region from the answer. True also when another request has learned it while
 * this one was under way. */
static bool fix_region(struct request *request, const char *region)
{
	struct s3 *s3 = s3_of(request->origin);

	if (!valid_region(region))
		return false;
	lock_take(&s3->lock);
	strcpy(s3->region, region);
	lock_drop(&s3->lock);
	return true;
}

static bool fix_clock(struct request *request)
{
	struct s3 *s3 = s3_of(request->origin);

	if (!request->answer.date_s)
		return false;
	atomic_store(
		&s3->clock_ahead_s, request->answer.date_s - clock_wall_ns() / (int64_t)NS_PER_SEC);
	return true;
}

static bool fix_list_v1(struct request *request)
{
	if (request->kind != REQUEST_LIST || s3_request_of(request)->v1 ||
		*s3_request_of(request)->token)
		return false;
	atomic_store(&s3_of(request->origin)->list_v1, true);
	return true;
}

static bool apply_fix(struct request *request, enum fix fix, const char *region)
{
	struct s3 *s3 = s3_of(request->origin);

	if (request->fixes_done & 1u << fix)
		return false;
	switch (fix) {
	case FIX_REGION:
		return fix_region(request, region);
	case FIX_CLOCK:
		return fix_clock(request);
	case FIX_CREDENTIALS:
		return s3->chain && chain_reject(s3->chain, request->credentials);
	case FIX_LIST_V1:
		return fix_list_v1(request);
	case FIX_PLACE:
	case FIX_NONE:
		break;
	}
	return false;
}

/* Another region's answer need not say so in a code: a HEAD has no body. Where its headers don't
 * name the region either, the LIST that runs beside it learns it, so a HEAD waits and tries again
 * once. */
static void suspect_region(struct request *request, const char *region, struct verdict *ret)
{
	long status = request->answer.status;

	if (ret->step != STEP_FAIL || (status / 100 != 3 && status != 400) ||
		request->fixes_done & 1u << FIX_REGION)
		return;
	if (request->kind == REQUEST_HEAD && !*region) {
		request->fixes_done |= 1u << FIX_REGION;
		ret->step = STEP_RETRY;
		return;
	}
	if (*region) {
		ret->step = STEP_AGAIN;
		ret->fix = FIX_REGION;
	}
}

void s3_judge_error(
	struct request *request, const struct error_document *error, struct verdict *verdict)
{
	const char *region = *request->answer.region ? request->answer.region : error->region;
	long status = request->answer.status;

	verdict_of_answer(status >= 300 ? status : 500, error->code, verdict);
	/* Only NoSuchKey, or a HEAD that can't say more, means that the object does not exist. */
	if (verdict->error == -ENOENT && strncmp(error->code, "NoSuch", 6) != 0 &&
		request->kind != REQUEST_HEAD)
		verdict->error = -EIO;
	/* A server that has never heard of list-type=2. */
	if (status == 501 ||
		(status == 400 && (!*error->code || !strcmp(error->code, "InvalidArgument")))) {
		if (request->kind == REQUEST_LIST)
			verdict->fix = FIX_LIST_V1, verdict->step = STEP_AGAIN;
	}
	suspect_region(request, region, verdict);
	if (verdict->step != STEP_AGAIN)
		return;
	if (apply_fix(request, verdict->fix, region))
		request->fixes_done |= 1u << verdict->fix;
	else
		verdict->step = STEP_FAIL;
}

void s3_judge(struct request *request, struct verdict *verdict)
{
	struct error_document error = {"", ""};

	if (request->body.size)
		error_xml_parse(buf_string(&request->body), request->body.size, &error);
	s3_judge_error(request, &error, verdict);
}
