/*
 * control: what the daemon answers on its control socket (HTTP and JSON on a unix socket, so that
 * `curl --unix-socket` works) and, if asked to, on a TCP port for Prometheus.
 *
 *     GET  /v1/status[?path=PATH]   the daemon; a mountpoint: with that volume only; or one object
 *     GET  /v1/volumes[?path=PATH]  {pid, uptime_s, volumes}: the status's volumes without cached_bytes, which
 *                                   takes a pass over the index
 *     GET  /v1/features             the kernel's features
 *     POST /v1/mount                {source, mountpoint, options?, store?, size?,
 *                                   environment?: origin/environment.h}
 *     POST /v1/umount               {mountpoint, force?}
 *     POST /v1/pin                  {targets, ttl_ms?}
 *     POST /v1/unpin, /v1/evict     {targets}
 *     POST /v1/verify               {targets, repair?} or {all: true, repair?}
 *     GET  /metrics                 Prometheus text format 0.0.4
 *
 * A body is one JSON object of at most 1 MiB, unknown fields are refused. An error is {"error":
 * sentence, "errno": number} with a status of 4xx or 5xx. A target is an absolute path below a
 * mount, or a SOURCE; one that is no UTF-8 is written {"encoded": percent-encoded bytes}.
 *
 * A thread for each connection, at most 32; requests may block for long (verify).
 */
#ifndef CONTROL_CONTROL_H
#define CONTROL_CONTROL_H

#include <stdbool.h>

#include "base/why.h"
#include "cache/cache.h"
#include "fs/volume.h"

struct control;

/* Who keeps the volumes beyond this process's life. */
struct control_keeper {
	int pid;            /* 0: nobody */
	unsigned restarts;  /* of the daemon */
	char last_exit[32]; /* how the daemon before ended, "" */
};

struct control_config {
	struct cache *cache;
	struct volumes *volumes;
	const char *socket;  /* the path that control_listen was given */
	const char *metrics; /* ADDR:PORT or [ADDR]:PORT; NULL: none */
	const char *store;   /* the store's directory, absolute */
	const char *size;    /* the capacity as typed; NULL: the default */
	struct control_keeper keeper;
	/* Whether it is still there. Asked when there was one; any thread, no lock held. */
	bool (*keeper_lives)(void *arg);
	/* Called after each mount request, whatever came of it; any thread, no lock held. */
	void (*mounted)(void *arg);
	void *arg;
};

/*
 * Makes the listening socket, mode 0600, and its directory, 0755, if missing. A socket that nobody
 * listens to is replaced. 0; -EADDRINUSE: another daemon listens there; -ENAMETOOLONG; -EACCES, …
 * with why. Connections wait until control_start.
 */
int control_listen(const char *path, int *ret_fd, struct why *why);
/* Undoes it, when control_start was not reached. */
void control_unlisten(const char *path, int fd);

/* Takes the listening socket fd, also when it fails. */
int control_start(
	const struct control_config *config, int fd, struct control **ret, struct why *why);
/* True, and from now on requests are refused (503), if there is no volume and no mount request
 * under way. */
bool control_end_if_idle(struct control *control);
/* Refuses requests from now on and returns when those under way are done. cache and volumes are not
 * used any more after it. */
void control_end(struct control *control);
/* Closes sockets and removes the path. After control_end. NULL is allowed. */
void control_stop(struct control *control);

#endif
