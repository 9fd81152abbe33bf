/*
 * session: the conversation with the kernel over one /dev/fuse descriptor.
 *
 * Reads and writes go through hooks on the one original descriptor (a clone's requests would end
 * when it closes), so that INIT and its reply are in the session table before the kernel sees the
 * reply, and results that must not be made twice before theirs. The threads end when the device says
 * ENODEV: the last mount is gone, or the connection was aborted; or by session_stop.
 *
 * A successor is told of nothing: it gives the saved INIT to libfuse as if it came from the kernel,
 * checks that the same is negotiated, and then has the kernel send again what its predecessor read
 * and did not answer (session_replay.c). Such a request's unique has a bit more than at first.
 */
#ifndef FS_SESSION_H
#define FS_SESSION_H

#define FUSE_USE_VERSION 318
#include <fuse_lowlevel.h>

#include "device.h"
#include "table.h"

/* Of the unique of a request that comes again. */
#define SESSION_RESENT (1ull << 63)

struct session;

/* The session owns device from now on, also on failure. userdata is what fuse_req_userdata gives,
 * through session_owner(). 0 or -errno. */
int session_new(int device, struct table *table, const struct device_calls *calls,
	const struct fuse_lowlevel_ops *ops, void *owner, struct session **ret);
/* No thread may run, no request be unanswered. NULL is allowed. */
void session_free(struct session *session);
void *session_owner(fuse_req_t req);
/* The same from what init() is called with. */
void *session_owner_of(void *userdata);

/* Requests are not asked for again, even where the kernel could. Before session_start. */
void session_forgo_resend(struct session *session);
/* Called from session_start with the unique of each request that a predecessor left unanswered and
 * that was failed, since the kernel can't send it again. */
void session_on_lost(struct session *session, void (*lost)(void *owner, uint64_t unique));
/*
 * Answers INIT, which must be waiting or on its way, then starts the threads; with an adopted table
 * takes over instead. 0 or -errno; -EPROTO with why: INIT can't be answered as it was.
 */
int session_start(struct session *session, struct why *why);
/* Returns when all threads have ended. */
void session_join(struct session *session);
/* No request is read any more, and those that were are done with by their threads: parked, or
 * answered. Returns when the threads have ended. */
void session_stop(struct session *session);
bool session_is_stopped(const struct session *session);

/* Within an operation, on the thread that was called: the request's unique as it was at first. */
uint64_t session_unique(void);
/* The same: the kernel sent it to a predecessor before. */
bool session_is_resent(void);

/* What the kernel knows of a node that nobody asked for: 0, -ENOENT: nothing. Not on a thread of
 * the session: it may wait for one. */
int session_probe_node(struct session *session, uint64_t id);
/* Has the kernel drop what it keeps of these nodes and doesn't use. As session_probe_node. 0;
 * -EINVAL: it can't be asked for that (before 6.18). */
int session_prune(struct session *session, const uint64_t *ids, uint32_t count);
/* The flags of the INIT that was answered, from the table: the two words as one. */
uint64_t session_init_flags(const struct session *session);

/* False: the superblock is gone, or will be soon, and its st_dev may be another's. Any thread;
 * doesn't wait. */
bool session_is_connected(const struct session *session);

/* As in device_calls; what is open is kept in the table. Any thread. */
int session_backing_open(struct session *session, int fd);
void session_backing_close(struct session *session, int backing_id);

#endif
