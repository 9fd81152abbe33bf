/* daemon: puts the rooms together and waits for the end. */
#ifndef DAEMON_H
#define DAEMON_H

#include <stdbool.h>

#include "base/why.h"

/* What daemon_run returns when a successor has the volumes. */
#define DAEMON_HANDED_OVER 1

struct daemon_config {
	const char *store;   /* absolute */
	const char *size;    /* as typed; NULL: the cache's default */
	const char *socket;  /* the control socket, absolute */
	const char *metrics; /* ADDR:PORT; NULL: none */
	int ready_fd;        /* told when the daemon answers; -1: nobody asks */
	int hold_fd;         /* the keeper's channel; -1: there is none */
	bool exit_when_idle; /* ends when the last volume has gone */
};

/*
 * Runs until SIGTERM or SIGINT, until it is idle, or until the keeper wants a hand-over. ready_fd gets a newline when requests are
 * answered, or the reason why not, and is closed, as hold_fd. Call it from the main thread, before any other
 * thread exists. 0, DAEMON_HANDED_OVER, or -errno with why when it could not start.
 */
int daemon_run(const struct daemon_config *config, struct why *why);

#endif
