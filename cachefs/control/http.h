/* http: requests taken apart and answers put together for libmicrohttpd. */
#ifndef CONTROL_HTTP_H
#define CONTROL_HTTP_H

#include <microhttpd.h>

#include "room.h"

/* MHD_AccessHandlerCallback and MHD_RequestCompletedCallback of the control socket; cls is the
 * struct control. */
enum MHD_Result http_access(void *cls, struct MHD_Connection *connection, const char *url,
	const char *method, const char *version, const char *upload, size_t *upload_size,
	void **state);
void http_completed(void *cls, struct MHD_Connection *connection, void **state,
	enum MHD_RequestTerminationCode code);
/* The same of the metrics port: only GET /metrics and /healthz. */
enum MHD_Result http_metrics_access(void *cls, struct MHD_Connection *connection, const char *url,
	const char *method, const char *version, const char *upload, size_t *upload_size,
	void **state);

#endif
