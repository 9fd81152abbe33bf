/* hold/upgrade: asks the keeper for an upgrade. Used by commands; blocks. */
#ifndef HOLD_UPGRADE_H
#define HOLD_UPGRADE_H

#include <stdbool.h>

#include "base/why.h"

/* The keeper's socket beside the daemon's control socket, malloc'ed. NULL: no memory. */
char *hold_socket(const char *control);
/* True if a keeper listens there: a daemon that does not answer is just being replaced. */
bool hold_alive(const char *socket);
/* The binary (absolute) takes over. result: what happened, on success too. 0, or -errno when the
 * previous one goes on or no keeper listens. */
int hold_upgrade(const char *socket, const char *binary, struct why *result);

#endif
