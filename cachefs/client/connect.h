/* connect: the way to the control socket. Blocks. */
#ifndef CLIENT_CONNECT_H
#define CLIENT_CONNECT_H

#include "base/why.h"

/* A connection. Waits while the socket's queue is full, as when many commands come at once, for
 * wait_ms. 0, or -errno with why: -ENOENT and -ECONNREFUSED, nobody listens; -ETIMEDOUT, still full;
 * -EACCES. why may be NULL. */
int connect_control(const char *socket_path, int wait_ms, int *ret_fd, struct why *why);

#endif
