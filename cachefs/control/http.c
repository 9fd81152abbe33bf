#include "http.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BODY_MAX    (1u << 20)
#define METRICS_MAX (64u << 20)

/* A request while its body arrives; belongs to the connection's thread. */
struct exchange {
	struct buf body;
};

static const struct route {
	const char *url, *method;
	handler *handle;
} routes[] = {
	{"/v1/status", "GET", handle_status},
	{"/v1/volumes", "GET", handle_volumes},
	{"/v1/features", "GET", handle_features},
	{"/v1/mount", "POST", handle_mount},
	{"/v1/umount", "POST", handle_umount},
	{"/v1/pin", "POST", handle_pin},
	{"/v1/unpin", "POST", handle_unpin},
	{"/v1/evict", "POST", handle_evict},
	{"/v1/verify", "POST", handle_verify},
	{"/metrics", "GET", NULL},
};

static unsigned status_of(int error)
{
	switch (-error) {
	case 0:
		return MHD_HTTP_OK;
	case EINVAL:
	case ENAMETOOLONG:
		return MHD_HTTP_BAD_REQUEST;
	case EACCES:
	case EPERM:
		return MHD_HTTP_FORBIDDEN;
	case ENOENT:
		return MHD_HTTP_NOT_FOUND;
	case EOPNOTSUPP:
		return MHD_HTTP_METHOD_NOT_ALLOWED;
	case EBUSY:
	case EEXIST:
	case ENOTEMPTY:
		return MHD_HTTP_CONFLICT;
	case EFBIG:
		return MHD_HTTP_CONTENT_TOO_LARGE;
	case ESHUTDOWN:
		return MHD_HTTP_SERVICE_UNAVAILABLE;
	default:
		return MHD_HTTP_INTERNAL_SERVER_ERROR;
	}
}

/* Takes text (malloc'ed). */
static enum MHD_Result send_text(
	struct MHD_Connection *connection, unsigned status, const char *type, char *text)
{
	struct MHD_Response *response;
	enum MHD_Result result;

	if (!text)
		return MHD_NO;
	response = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
	if (!response) {
		free(text);
		return MHD_NO;
	}
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	result = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return result;
}

/* Takes value. */
static enum MHD_Result send_json(struct MHD_Connection *connection, unsigned status, json_t *value)
{
	char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;

	json_decref(value);
	return send_text(connection, status, "application/json", text);
}

static enum MHD_Result send_error(
	struct MHD_Connection *connection, int error, const struct why *why)
{
	return send_json(connection, status_of(error),
		json_pack("{s:o, s:i}", "error", json_shown(why->text), "errno", -error));
}

static enum MHD_Result send_metrics(struct MHD_Connection *connection, struct control *control)
{
	struct buf out;

	buf_init(&out, METRICS_MAX);
	metrics_write(control, &out);
	if (out.error) {
		buf_free(&out);
		return MHD_NO;
	}
	return send_text(connection, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8",
		buf_steal(&out));
}

static int parse_body(const struct buf *body, json_t **ret, struct why *why)
{
	json_error_t at;
	json_t *value;

	if (body->error == -EFBIG)
		return why_set(why, -EFBIG, "the request's body is longer than %u bytes", BODY_MAX);
	if (body->error)
		return why_set(why, body->error, "no memory for the request");
	value = json_loadb(buf_string(body), body->size, JSON_REJECT_DUPLICATES, &at);
	if (!value)
		return why_set(why, -EINVAL, "the request's body is no JSON: %s (line %d)", at.text,
			at.line);
	if (!json_is_object(value)) {
		json_decref(value);
		return why_set(why, -EINVAL, "the request's body is no JSON object");
	}
	*ret = value;
	return 0;
}

/* NULL with *ret_error and why. */
static const struct route *find_route(
	const char *url, const char *method, int *ret_error, struct why *why)
{
	for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
		if (strcmp(routes[i].url, url))
			continue;
		if (!strcmp(routes[i].method, method))
			return &routes[i];
		*ret_error = why_set(
			why, -EOPNOTSUPP, "%s takes %s, not %s", url, routes[i].method, method);
		return NULL;
	}
	*ret_error = why_set(why, -ENOENT, "this daemon (version %s) knows no %s %s",
		CACHEFS_VERSION, method, url);
	return NULL;
}

static int run_handler(const struct route *route, struct control *control,
	struct MHD_Connection *connection, const struct exchange *exchange, json_t **ret,
	struct why *why)
{
	const char *path = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "path");
	json_t *body = NULL;
	int r = 0;

	if (!strcmp(route->method, "POST"))
		r = parse_body(&exchange->body, &body, why);
	if (!r)
		r = route->handle(control, path, body, ret, why);
	json_decref(body);
	return r;
}

static enum MHD_Result answer(struct control *control, struct MHD_Connection *connection,
	const struct route *route, const struct exchange *exchange)
{
	enum MHD_Result result;
	struct why why = {""};
	json_t *value = NULL;
	int r;

	if (!control_enter(control)) {
		why_set(&why, -ESHUTDOWN, "the daemon is ending");
		return send_error(connection, -ESHUTDOWN, &why);
	}
	if (!route->handle) {
		result = send_metrics(connection, control);
	} else {
		r = run_handler(route, control, connection, exchange, &value, &why);
		if (r && !why.text[0])
			why_set(&why, r, "%s", strerror(-r));
		result = r ? send_error(connection, r, &why)
			   : send_json(connection, MHD_HTTP_OK, value);
	}
	control_leave(control);
	return result;
}

enum MHD_Result http_access(void *cls, struct MHD_Connection *connection, const char *url,
	const char *method, const char *version, const char *upload, size_t *upload_size,
	void **state)
{
	struct exchange *exchange = *state;
	const struct route *route;
	struct why why;
	int error;

	(void)version;
	if (!exchange) {
		exchange = calloc(1, sizeof *exchange);
		if (!exchange)
			return MHD_NO;
		buf_init(&exchange->body, BODY_MAX);
		*state = exchange;
		return MHD_YES;
	}
	if (*upload_size) {
		/* Too much is noted in the buffer and refused at the end. */
		buf_add(&exchange->body, upload, *upload_size);
		*upload_size = 0;
		return MHD_YES;
	}
	route = find_route(url, method, &error, &why);
	if (!route)
		return send_error(connection, error, &why);
	return answer(cls, connection, route, exchange);
}

void http_completed(void *cls, struct MHD_Connection *connection, void **state,
	enum MHD_RequestTerminationCode code)
{
	struct exchange *exchange = *state;

	(void)cls;
	(void)connection;
	(void)code;
	if (!exchange)
		return;
	buf_free(&exchange->body);
	free(exchange);
	*state = NULL;
}

enum MHD_Result http_metrics_access(void *cls, struct MHD_Connection *connection, const char *url,
	const char *method, const char *version, const char *upload, size_t *upload_size,
	void **state)
{
	static const struct route metrics = {"/metrics", "GET", NULL};

	(void)version;
	(void)upload;
	/* An answer to the first call, which has the header only, would close the connection. */
	if (!*state) {
		*state = cls;
		return MHD_YES;
	}
	/* A body is of no use here. */
	if (*upload_size) {
		*upload_size = 0;
		return MHD_YES;
	}
	if (strcmp(method, "GET"))
		return send_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "text/plain",
			strdup("only GET\n"));
	if (!strcmp(url, "/healthz"))
		return send_text(connection, MHD_HTTP_OK, "text/plain", strdup("ok\n"));
	if (!strcmp(url, "/metrics"))
		return answer(cls, connection, &metrics, NULL);
	return send_text(connection, MHD_HTTP_NOT_FOUND, "text/plain",
		strdup("only /metrics and /healthz\n"));
}
