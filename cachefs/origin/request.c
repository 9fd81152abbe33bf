#include "request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#include "get.h"
#include "impl.h"

#define CONNECT_TIMEOUT_S  10
#define STALL_TIMEOUT_S    15
#define RECEIVE_BUFFER     (512 * 1024)
#define RECEIVE_SMALL      (64 * 1024)
#define SMALL_GET          (1 << 20)
#define LISTING_MAX        (64u << 20)
#define ERROR_DOCUMENT_MAX (64u << 10)
#define PAUSE_FIRST_MS     100
#define PAUSE_MAX_MS       10000

void call_header(struct call *call, const char *name, const char *value)
{
	struct curl_slist *list;
	struct buf line;

	buf_init(&line, 16384);
	buf_printf(&line, "%s: %s", name, value);
	list = line.error ? NULL : curl_slist_append(call->headers, buf_string(&line));
	if (list)
		call->headers = list;
	else
		call->error = -ENOMEM;
	buf_free(&line);
}

void request_init(struct request *request, enum request_kind kind, struct origin *origin,
	enum origin_priority priority)
{
	*request = (struct request){
		.kind = kind,
		.origin = origin_ref(origin),
		.priority = priority,
	};
	list_init(&request->link);
	list_init(&request->all);
	list_init(&request->signal);
	buf_init(&request->body, kind == REQUEST_LIST ? LISTING_MAX : ERROR_DOCUMENT_MAX);
}

uint64_t request_pause_ms(unsigned tries, uint64_t retry_after_s, uint64_t random)
{
	uint64_t most = PAUSE_FIRST_MS;

	for (unsigned i = 0; i < tries && most < PAUSE_MAX_MS; i++)
		most *= 2;
	if (most > PAUSE_MAX_MS)
		most = PAUSE_MAX_MS;
	return retry_after_s * 1000 + PAUSE_FIRST_MS + random % (most - PAUSE_FIRST_MS + 1);
}

static bool is_success(const struct request *request)
{
	return request->answer.status >= 200 && request->answer.status < 300;
}

static size_t on_header(char *line, size_t unit, size_t n, void *arg)
{
	struct request *request = arg;

	answer_line(&request->answer, line, unit * n);
	return unit * n;
}

/* A listing must fit; an error document is kept as far as it does. */
static size_t collect(struct request *request, const uint8_t *bytes, size_t n)
{
	struct buf *body = &request->body;

	if (!is_success(request) && body->size + n > ERROR_DOCUMENT_MAX)
		return n;
	if (!buf_add(body, bytes, n))
		return n;
	request->rejected = true;
	verdict_fail(&request->verdict, body->error == -ENOMEM ? -ENOMEM : -EIO,
		ORIGIN_SERVER_ERROR, "the answer is longer than %u MiB", LISTING_MAX >> 20);
	return 0;
}

static size_t on_body(char *bytes, size_t unit, size_t n, void *arg)
{
	struct request *request = arg;

	n *= unit;
	if (request->cancelled)
		return 0;
	if (request->kind == REQUEST_GET && is_success(request))
		return get_body(request, (const uint8_t *)bytes, n);
	return collect(request, (const uint8_t *)bytes, n);
}

static bool is_short(const struct request *request)
{
	return get_missing(request) <= SMALL_GET;
}

/* Somebody waits for the first bytes of a short GET, and gets them when the first buffer is full; a
 * long one is to cost little. */
static long receive_bytes(const struct request *request)
{
	return request->kind == REQUEST_GET && is_short(request) ? RECEIVE_SMALL : RECEIVE_BUFFER;
}

/* Which connection the try takes. */
static void set_connection(struct request *request)
{
	struct flow *flow = &request->origin->flow;
	CURL *easy = request->easy;
	bool fresh;

	/* Bodies get connections of their own: those that share one share its window. */
	if (request->kind != REQUEST_GET) {
		curl_easy_setopt(easy, CURLOPT_PIPEWAIT, 1L);
		return;
	}
	/* What making a connection takes is much of a short GET's time. */
	fresh = !is_short(request) && flow_begin(flow);
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(
		easy, CURLOPT_FRESH_CONNECT, (long)(fresh || request->hedges || request->moves));
	/* What has become slow is of no use to the next one. */
	curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, (long)(fresh && atomic_load(&flow->ages)));
}

static void set_options(struct request *request, const struct call *call)
{
	const struct origin *origin = request->origin;
	CURL *easy = request->easy;

	curl_easy_setopt(easy, CURLOPT_URL, buf_string(&call->url));
	curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	/* Nobody leads a reader away from TLS. */
	curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR,
		strncmp(buf_string(&call->url), "https:", 6) ? "http,https" : "https");
	curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, (long)call->redirects);
	curl_easy_setopt(easy, CURLOPT_MAXREDIRS, 5L);
	if (call->form.size) {
		curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, (long)call->form.size);
		curl_easy_setopt(easy, CURLOPT_COPYPOSTFIELDS, buf_string(&call->form));
		curl_easy_setopt(easy, CURLOPT_POSTREDIR, (long)CURL_REDIR_POST_ALL);
	}
	curl_easy_setopt(easy, CURLOPT_HTTPHEADER, request->headers);
	curl_easy_setopt(easy, CURLOPT_USERAGENT, "cachefs/" CACHEFS_VERSION);
	curl_easy_setopt(easy, CURLOPT_NOBODY, (long)(request->kind == REQUEST_HEAD));
	curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(easy, CURLOPT_HEADERDATA, request);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, request);
	curl_easy_setopt(easy, CURLOPT_PRIVATE, request);
	curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, request->detail);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	/* A try that ends while its host's name is being looked up does not wait for that: a name
	 * server that is silent would stop every request of the loop. */
	curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
	curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, receive_bytes(request));
	curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
	set_connection(request);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_TIMEOUT_S);
	/* Not counted by curl while a transfer is paused. */
	curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
	curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, (long)STALL_TIMEOUT_S);
	if (origin->ca)
		curl_easy_setopt(easy, CURLOPT_CAINFO, origin->ca);
	if (origin->loopback)
		curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
}

int request_prepare(struct request *request, struct verdict *verdict)
{
	struct call call = {0};
	int r;

	buf_init(&call.url, 65536);
	buf_init(&call.form, 65536);
	r = request->origin->ops->prepare(request, &call);
	/* Without it a server may pack what it sends (RFC 9110, 12.5.3). */
	if (!r)
		call_header(&call, "Accept-Encoding", "identity");
	if (!r)
		r = call.error ? call.error : call.url.error ? call.url.error : call.form.error;
	curl_slist_free_all(request->headers);
	request->headers = call.headers;
	if (!r) {
		buf_reset(&request->body);
		request->answer = (struct answer){0};
		request->rejected = false;
		request->detail[0] = '\0';
		if (request->kind == REQUEST_GET)
			get_reset(request);
		set_options(request, &call);
	} else {
		verdict_fail(verdict, r, r == -EACCES ? ORIGIN_DENIED : ORIGIN_NETWORK_ERROR, "%s",
			*call.why.text ? call.why.text : strerror(-r));
	}
	buf_free(&call.url);
	buf_free(&call.form);
	return r;
}

void request_judge(struct request *request, CURLcode code, struct verdict *ret)
{
	bool complete = request->kind == REQUEST_GET && get_complete(request);

	/* curl's word for an answer without a status line: what is left on the connection of the
	 * answer before. With a status line it is where a redirect leads to. */
	if (code == CURLE_UNSUPPORTED_PROTOCOL && !request->answer.status)
		code = CURLE_WEIRD_SERVER_REPLY;
	if (request->rejected) {
		*ret = request->verdict;
	} else if (complete) {
		verdict_done(ret);
	} else if (code != CURLE_OK) {
		verdict_of_curl(code, request->detail, ret);
	} else if (is_success(request)) {
		request->accept(request, ret);
	} else {
		verdict_of_answer(request->answer.status, NULL, ret);
		request->origin->ops->judge(request, ret);
	}
}
