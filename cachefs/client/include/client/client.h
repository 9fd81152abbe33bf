/*
 * client: asks the daemon over its control socket. Used by every program but the daemon.
 *
 * Blocks until the answer has come, without a time limit: a verification takes as long as it takes.
 * But a daemon that doesn't even say that it is well within some seconds isn't waited for. One that
 * its keeper is just replacing is: a request that nobody got is made again, and one that only asks.
 * One thread at a time for each struct client.
 */
#ifndef CLIENT_CLIENT_H
#define CLIENT_CLIENT_H

#include <stdbool.h>

#include <jansson.h>

#include "base/why.h"

#define CLIENT_DEFAULT_SOCKET "/run/cachefs/control.sock"

struct client {
	const char *socket;
};

/* text, or when it is NULL the environment's CACHEFS_CONTROL, or CLIENT_DEFAULT_SOCKET. */
const char *client_socket(const char *text);

/*
 * One request. body may be NULL; its reference is taken, also on failure. ret may be NULL, else
 * gets one reference. Errors: -ENOENT or -ECONNREFUSED, no daemon listens; -EACCES, the socket is
 * not ours; else what the daemon refused with, and its sentence in why. -ESHUTDOWN: it is ending.
 * -ETIMEDOUT: it hangs, or does not come back. -ECONNRESET: it ended, and is replaced, before it
 * answered, and nobody knows whether it was done.
 */
int client_call(const struct client *client, const char *method, const char *path, json_t *body,
	json_t **ret, struct why *why);

/* True for the errors of client_call that mean that there is no daemon. */
bool client_no_daemon(int error);

/* Waits until an ending daemon has closed its socket. 0, also when it is gone already; -ETIMEDOUT.
 */
int client_wait_end(const struct client *client, int timeout_ms);

/* A target for a request's "targets": a string, or its encoded form when it is no UTF-8. */
json_t *client_target(const char *text);

#endif
