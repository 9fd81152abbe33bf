/*
 * hold/keeper: the process that outlives the daemon. It starts the daemon, keeps copies of its
 * volumes' descriptors, starts it again when it dies, and replaces it by a newer one on request.
 *
 * One thread, static memory, one poll loop: nothing in it can grow, wait or be refused memory.
 */
#ifndef HOLD_KEEPER_H
#define HOLD_KEEPER_H

#include <stdint.h>

#include "base/why.h"

/* The version of what a keeper leaves to its successor in --resume-fd. */
#define KEEPER_STATE_VERSION 1

#define KEEPER_ARGS_MAX 48

/* Of the environment of `serve --check`: the descriptors of the session tables that are there now,
 * "5,7". Not an argument, so that an older version, which doesn't know it, can be gone back to. */
#define KEEPER_TABLES "CACHEFS_CHECK_TABLES"

struct keeper_config {
	/* Given to the daemon after "serve", at most KEEPER_ARGS_MAX, then NULL. */
	const char *const *serve_args;
	const char *socket;      /* where upgrades are asked for, see hold/upgrade.h */
	uint64_t abort_after_ms; /* without a daemon the connections are aborted then; 0: never */
	uint64_t watchdog_ms;    /* a silent daemon is killed after this; 0: never */
	int ready_fd;            /* the first daemon's --ready-fd; -1: none */
	int resume_fd;           /* from the keeper that this process was before; -1: none */
};

/*
 * Runs until the daemon was asked to end. The daemon is this program's own file, called
 *     cachefs serve SERVE_ARGS --hold-fd N [--ready-fd N]
 * with the extra argument --check before an upgrade (see upgrade.c), and the keeper itself
 *     cachefs hold SERVE_ARGS --abort-after N --watchdog N --resume-fd N
 * after one. The exit status: 0, or that of a first daemon that refused to start; -errno with why.
 */
int keeper_run(const struct keeper_config *config, struct why *why);

#endif
