/* room: what the files of this room share. */
#ifndef CONTROL_ROOM_H
#define CONTROL_ROOM_H

#include <stdint.h>

#include <jansson.h>

#include "base/buf.h"
#include "base/lock.h"
#include "control/control.h"

struct MHD_Connection;
struct MHD_Daemon;

struct control {
	struct control_config config; /* its strings belong to us */
	struct MHD_Daemon *http, *metrics;
	uint64_t started_ns;
	int64_t started_wall_ns;
	struct lock lock;
	struct cond quiet;       /* under_way became 0 */
	unsigned under_way;      /* lock: requests being answered */
	unsigned mounts;         /* lock: mount requests among them */
	uint64_t mounts_started; /* lock */
	_Atomic bool ending;     /* written under lock */
};

/* False when the daemon is ending: the request must be refused. */
bool control_enter(struct control *control);
void control_leave(struct control *control);

/*
 * One request's work. path: the query's, or NULL. body: of a POST, an object. Returns 0 with *ret,
 * one reference, or -errno with why.
 */
typedef int handler(
	struct control *control, const char *path, json_t *body, json_t **ret, struct why *why);
handler handle_status, handle_volumes, handle_features; /* status.c */
handler handle_mount, handle_umount;                    /* mounts.c */
handler handle_pin, handle_unpin, handle_evict;         /* keep.c */
handler handle_verify;                                  /* verify.c */

/* The text of /metrics. */
void metrics_write(struct control *control, struct buf *out); /* metrics.c */
/* The two lines before a metric's samples. */
void metrics_head(struct buf *out, const char *name, const char *type, const char *help);

/* A JSON string of text in which bytes that are no UTF-8 show as '?'. */
json_t *json_shown(const char *text);

#endif
