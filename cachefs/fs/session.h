/*
 * session: the conversation with the kernel over one /dev/fuse descriptor.
 *
 * Reads and writes go through hooks on the one original descriptor (a clone's requests would end
 * when it closes), so that INIT and its reply are in the session table before the kernel sees the
 * reply. The threads end when the device says ENODEV: the last mount is gone, or the connection was
 * aborted.
 */
#ifndef FS_SESSION_H
#define FS_SESSION_H

#define FUSE_USE_VERSION 318
#include <fuse_lowlevel.h>

#include "device.h"
#include "table.h"

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

/* Answers INIT, which must be waiting or on its way, then starts the threads. 0 or -errno. */
int session_start(struct session *session);
/* Returns when all threads have ended. */
void session_join(struct session *session);

/* False: the superblock is gone, or will be soon, and its st_dev may be another's. Any thread;
 * doesn't wait. */
bool session_is_connected(const struct session *session);

/* As in device_calls. Any thread. */
int session_backing_open(struct session *session, int fd);
void session_backing_close(struct session *session, int backing_id);

#endif
