#include "client/client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <curl/curl.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/percent.h"
#include "connect.h"
#include "hold/upgrade.h"

/* The status of very many targets or volumes; more is no answer of ours. */
#define ANSWER_MAX (64u << 20)
/* Longer than a keeper's watchdog waits by default, so that its next daemon is what a command meets. */
#define ANSWER_WAIT_MS 15000
/* How long a daemon that is being replaced is waited for: longer than a keeper waits between two tries. */
#define RETURN_WAIT_MS 15000ull

const char *client_socket(const char *text)
{
	const char *environment = getenv("CACHEFS_CONTROL");

	if (text)
		return text;
	return environment && *environment ? environment : CLIENT_DEFAULT_SOCKET;
}

bool client_no_daemon(int error)
{
	return error == -ENOENT || error == -ECONNREFUSED;
}

static size_t take_answer(char *bytes, size_t size, size_t n, void *arg)
{
	return buf_add(arg, bytes, size * n) ? 0 : size * n;
}

struct call {
	CURL *curl;
	struct curl_slist *headers;
	char *url, *body;
	struct buf answer;
};

static void end_call(struct call *call)
{
	curl_slist_free_all(call->headers);
	if (call->curl)
		curl_easy_cleanup(call->curl);
	free(call->url);
	free(call->body);
	buf_free(&call->answer);
}

static int prepare(struct call *call, const struct client *client, const char *method,
	const char *path, const json_t *body)
{
	CURLcode code = CURLE_OK;

	*call = (struct call){0};
	buf_init(&call->answer, ANSWER_MAX);
	call->curl = curl_easy_init();
	call->headers = curl_slist_append(NULL, "Content-Type: application/json");
	if (!call->curl || !call->headers || asprintf(&call->url, "http://localhost%s", path) < 0)
		return -ENOMEM;
	if (body) {
		call->body = json_dumps(body, JSON_COMPACT);
		if (!call->body)
			return -ENOMEM;
	}
	code |= curl_easy_setopt(call->curl, CURLOPT_URL, call->url);
	code |= curl_easy_setopt(call->curl, CURLOPT_UNIX_SOCKET_PATH, client->socket);
	code |= curl_easy_setopt(call->curl, CURLOPT_PROXY, "");
	code |= curl_easy_setopt(call->curl, CURLOPT_NOSIGNAL, 1L);
	code |= curl_easy_setopt(call->curl, CURLOPT_HTTPHEADER, call->headers);
	code |= curl_easy_setopt(call->curl, CURLOPT_WRITEFUNCTION, take_answer);
	code |= curl_easy_setopt(call->curl, CURLOPT_WRITEDATA, &call->answer);
	if (call->body)
		code |= curl_easy_setopt(call->curl, CURLOPT_POSTFIELDS, call->body);
	code |= curl_easy_setopt(call->curl, CURLOPT_CUSTOMREQUEST, method);
	return code ? -ENOMEM : 0;
}

/* Takes value. */
static int refused(json_t *value, long status, struct why *why)
{
	const char *sentence = json_string_value(json_object_get(value, "error"));
	json_int_t number = json_integer_value(json_object_get(value, "errno"));
	int r = number > 0 && number < 4096 ? (int)-number : -EPROTO;

	if (sentence)
		why_set(why, r, "%s", sentence);
	else
		why_set(why, r, "the daemon answered with HTTP status %ld", status);
	json_decref(value);
	/* These two say of a call that there is no daemon. */
	if (r == -ECONNREFUSED)
		return -EIO;
	return r == -ENOENT ? -ENODATA : r;
}

/* A daemon may end between any two steps of a call. */
static int not_answered(const struct call *call, CURLcode code, struct why *why)
{
	switch (code) {
	case CURLE_GOT_NOTHING:
	case CURLE_SEND_ERROR:
	case CURLE_RECV_ERROR:
		return why_set(why, -ESHUTDOWN,
			"the daemon ended without an answer: see its log, cachefs.log beside the "
			"control socket or the journal");
	case CURLE_WRITE_ERROR:
		return why_set(why, call->answer.error ?: -EIO,
			"the daemon's answer could not be taken: %s",
			strerror(call->answer.error ? -call->answer.error : EIO));
	default:
		return why_set(
			why, -EIO, "the daemon did not answer: %s", curl_easy_strerror(code));
	}
}

/* curl says only that it could not connect; a connection of our own says why, and waits for room in
 * the socket's queue. *ret_unknown: nobody can say whether it was done. */
static int perform(
	struct call *call, const struct client *client, bool *ret_unknown, struct why *why)
{
	uint64_t deadline_ns = clock_now_ns() + ANSWER_WAIT_MS * NS_PER_MS;
	CURLcode code;

	do {
		_cleanup_(closep) int fd = -1;
		int r = connect_control(client->socket, ANSWER_WAIT_MS, &fd, why);

		if (r)
			return r;
		code = curl_easy_perform(call->curl);
	} while (code == CURLE_COULDNT_CONNECT && clock_now_ns() < deadline_ns);
	*ret_unknown = code != CURLE_OK && code != CURLE_COULDNT_CONNECT;
	if (code == CURLE_OPERATION_TIMEDOUT)
		return why_set(why, -ETIMEDOUT,
			"the daemon on %s does not answer: a keeper (`cachefs hold`) replaces it "
			"after a while, else kill it; `cachefs umount --force` detaches a mount "
			"that hangs",
			client->socket);
	return code ? not_answered(call, code, why) : 0;
}

static int take_result(struct call *call, json_t **ret, struct why *why)
{
	json_error_t at;
	long status = 0;
	json_t *value;

	curl_easy_getinfo(call->curl, CURLINFO_RESPONSE_CODE, &status);
	value = json_loadb(buf_string(&call->answer), call->answer.size, 0, &at);
	if (status != 200)
		return refused(value, status, why);
	if (!value)
		return why_set(why, -EPROTO, "the daemon's answer is no JSON: %s", at.text);
	if (ret)
		*ret = value;
	else
		json_decref(value);
	return 0;
}

/* A daemon that is stopped, or hangs, is told from one that has much to do: only the latter says that
 * it is well. Whatever it answers will do. */
static int check_answers(const struct client *client, struct why *why)
{
	struct call call;
	bool unknown;
	int r = prepare(&call, client, "GET", "/healthz", NULL);

	if (!r && curl_easy_setopt(call.curl, CURLOPT_TIMEOUT_MS, (long)ANSWER_WAIT_MS))
		r = -ENOMEM;
	if (r)
		why_set(why, r, "can't prepare a request to the daemon: %s", strerror(-r));
	else
		r = perform(&call, client, &unknown, why);
	end_call(&call);
	return r;
}

static int call_once(const struct client *client, const char *method, const char *path,
	const json_t *body, json_t **ret, bool *ret_unknown, struct why *why)
{
	struct call call;
	int r;

	*ret_unknown = false;
	r = check_answers(client, why);
	if (r)
		return r;
	r = prepare(&call, client, method, path, body);
	if (r)
		why_set(why, r, "can't prepare a request to the daemon: %s", strerror(-r));
	else
		r = perform(&call, client, ret_unknown, why);
	if (!r)
		r = take_result(&call, ret, why);
	end_call(&call);
	return r;
}

/* A keeper that lives is just replacing its daemon, or ending with it. */
static bool is_replaced(const struct client *client)
{
	_cleanup_(freep) char *keeper = hold_socket(client->socket);

	return keeper && hold_alive(keeper);
}

int client_call(const struct client *client, const char *method, const char *path, json_t *body,
	json_t **ret, struct why *why)
{
	const struct timespec pause = {.tv_nsec = 20 * NS_PER_MS};
	uint64_t deadline_ns = clock_now_ns() + RETURN_WAIT_MS * NS_PER_MS;
	bool only_asks = !strcmp(method, "GET"), unknown;
	int r;

	for (;;) {
		r = call_once(client, method, path, body, ret, &unknown, why);
		if ((!client_no_daemon(r) && r != -ESHUTDOWN) || !is_replaced(client))
			break;
		if (unknown && !only_asks) {
			r = why_set(why, -ECONNRESET,
				"the daemon ended before it answered: it may be done or not, "
				"`cachefs status` tells");
			break;
		}
		if (clock_now_ns() >= deadline_ns) {
			r = why_set(why, -ETIMEDOUT,
				"the daemon on %s does not come back; its keeper's log says why",
				client->socket);
			break;
		}
		nanosleep(&pause, NULL);
	}
	json_decref(body);
	return r;
}

int client_wait_end(const struct client *client, int timeout_ms)
{
	_cleanup_(closep) int fd = -1;
	struct pollfd ready = {.events = POLLIN | POLLRDHUP};
	int r = connect_control(client->socket, timeout_ms, &fd, NULL);

	if (r)
		return client_no_daemon(r) ? 0 : r;
	ready.fd = fd;
	/* Nothing is asked, so all that can come is the end. */
	do {
		r = poll(&ready, 1, timeout_ms);
	} while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : r ? 0 : -ETIMEDOUT;
}

json_t *client_target(const char *text)
{
	_cleanup_(buf_free) struct buf escaped;
	json_t *value = json_string(text);

	buf_init(&escaped, ANSWER_MAX);
	if (value)
		return value;
	percent_encode(&escaped, text, strlen(text), true);
	return escaped.error ? NULL : json_pack("{s:s}", "encoded", buf_string(&escaped));
}
