/* start: starts the node's daemon when none runs. */
#ifndef START_H
#define START_H

#include "base/why.h"
#include "client/client.h"

/*
 * Returns when a daemon listens on the client's socket: one that is there already (two commands that
 * start one at once get the same), or a new one, detached, that ends with its last volume. store: an
 * absolute path; size may be NULL. 0, or -errno with the daemon's own reason.
 */
int start_daemon(const struct client *client, const char *store, const char *size, struct why *why);

#endif
