#include "client/client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <curl/curl.h>

#include "base/buf.h"
#include "base/cleanup.h"

/* The status of very many targets or volumes; more is no answer of ours. */
#define ANSWER_MAX (64u << 20)
/* Longer than a keeper's watchdog waits by default, so that its next daemon is what a command meets. */
#define ANSWER_WAIT_MS 15000

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

static int fill_address(const char *path, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof ret->sun_path)
		return -ENAMETOOLONG;
	strcpy(ret->sun_path, path);
	return 0;
}

/* curl says only that it could not connect; this says why. */
static int connect_socket(const struct client *client, int *ret_fd)
{
	_cleanup_(closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un address;
	int r;

	if (fd < 0)
		return -errno;
	r = fill_address(client->socket, &address);
	if (r)
		return r;
	if (connect(fd, (const struct sockaddr *)&address, sizeof address) < 0)
		return -errno;
	*ret_fd = steal_fd(&fd);
	return 0;
}

static int check_connect(const struct client *client, struct why *why)
{
	_cleanup_(closep) int fd = -1;
	int r = connect_socket(client, &fd);

	if (client_no_daemon(r))
		return why_set(why, r,
			"no daemon listens on %s: `cachefs mount` starts one, or run `cachefs "
			"serve`; "
			"another socket is named by --control or CACHEFS_CONTROL",
			client->socket);
	if (r == -EACCES || r == -EPERM)
		return why_set(why, -EACCES,
			"the control socket %s is not yours: run the command as the daemon's user "
			"(root)",
			client->socket);
	return r ? why_set(why, r, "can't connect to %s: %s", client->socket, strerror(-r)) : 0;
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
	case CURLE_COULDNT_CONNECT:
		return why_set(why, -ECONNREFUSED, "the daemon has just ended");
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

static int perform(struct call *call, json_t **ret, struct why *why)
{
	CURLcode code = curl_easy_perform(call->curl);
	json_error_t at;
	long status = 0;
	json_t *value;

	if (code)
		return not_answered(call, code, why);
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
	struct call call = {0};
	CURLcode code;
	int r;

	buf_init(&call.answer, ANSWER_MAX);
	r = prepare(&call, client, "GET", "/healthz", NULL);
	if (!r && curl_easy_setopt(call.curl, CURLOPT_TIMEOUT_MS, (long)ANSWER_WAIT_MS))
		r = -ENOMEM;
	if (r) {
		end_call(&call);
		return why_set(why, r, "can't prepare a request to the daemon: %s", strerror(-r));
	}
	code = curl_easy_perform(call.curl);
	if (code == CURLE_OPERATION_TIMEDOUT)
		r = why_set(why, -ETIMEDOUT,
			"the daemon on %s does not answer: a keeper (`cachefs hold`) replaces it "
			"after "
			"a while, else kill it; `cachefs umount --force` detaches a mount that "
			"hangs",
			client->socket);
	else if (code)
		r = not_answered(&call, code, why);
	end_call(&call);
	return r;
}

int client_call(const struct client *client, const char *method, const char *path, json_t *body,
	json_t **ret, struct why *why)
{
	struct call call = {0};
	int r = check_connect(client, why);

	buf_init(&call.answer, ANSWER_MAX);
	if (!r)
		r = check_answers(client, why);
	if (!r) {
		r = prepare(&call, client, method, path, body);
		if (r)
			why_set(why, r, "can't prepare a request to the daemon: %s", strerror(-r));
	}
	json_decref(body);
	if (!r)
		r = perform(&call, ret, why);
	end_call(&call);
	return r;
}

int client_wait_end(const struct client *client, int timeout_ms)
{
	_cleanup_(closep) int fd = -1;
	struct pollfd ready = {.events = POLLIN | POLLRDHUP};
	int r = connect_socket(client, &fd);

	if (r)
		return client_no_daemon(r) ? 0 : r;
	ready.fd = fd;
	/* Nothing is asked, so all that can come is the end. */
	do {
		r = poll(&ready, 1, timeout_ms);
	} while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : r ? 0 : -ETIMEDOUT;
}

char *client_escape(const char *text)
{
	static const char hex[] = "0123456789ABCDEF";
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				    "0123456789-._~/:";
	char *escaped = malloc(strlen(text) * 3 + 1), *to = escaped;

	if (!escaped)
		return NULL;
	for (const char *from = text; *from; from++) {
		unsigned char c = (unsigned char)*from;

		if (strchr(plain, c)) {
			*to++ = *from;
		} else {
			*to++ = '%';
			*to++ = hex[c >> 4];
			*to++ = hex[c & 15];
		}
	}
	*to = '\0';
	return escaped;
}

json_t *client_target(const char *text)
{
	_cleanup_(freep) char *escaped = NULL;
	json_t *value = json_string(text);

	if (value)
		return value;
	escaped = client_escape(text);
	return escaped ? json_pack("{s:s}", "encoded", escaped) : NULL;
}
