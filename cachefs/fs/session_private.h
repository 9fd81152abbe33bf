/* session_private: what the files of a session share: session.c has its life and its threads,
 * session_io.c the hooks that reads and writes go through, session_replay.c a take-over. */
#ifndef FS_SESSION_PRIVATE_H
#define FS_SESSION_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/uio.h>

#include "base/lock.h"
#include "session.h"

#define SESSION_THREADS_MAX 4

struct session {
	struct fuse_session *fuse;
	struct table *table;
	const struct device_calls *calls;
	void *owner;
	int device;
	/* The starting thread's, before there are others. */
	uint64_t init_unique; /* of INIT until its reply is written */
	bool started;         /* INIT is answered */
	bool forgo_resend;
	/* INIT_AGAIN: it was read, and is to be answered now. */
	enum { REPLAY_NONE, REPLAY_INIT_AGAIN, REPLAY_REQUEST, REPLAY_REPLY } replay;
	int replay_result;

	void (*lost)(void *owner, uint64_t unique);

	_Atomic bool stopping;
	struct lock lock;
	struct cond ended;
	unsigned n_running; /* lock; threads that may still be in read(2) */
	unsigned n_threads; /* constant once started */
	pthread_t threads[SESSION_THREADS_MAX];
};

extern const struct fuse_custom_io session_io;
/* One request. 1, 0 when the device has ended, or -errno. */
int session_serve_one(struct session *session, struct fuse_buf *buffer);
/* Of INIT's body: flags and flags2. */
uint64_t session_flags_of_init(const void *request, size_t size);
/* One message; what the kernel doesn't know any more is no error. 0 or -errno. */
int session_write(struct session *session, const void *bytes, size_t size);

/* The hooks' part while INIT is replayed. */
ssize_t session_replay_read(struct session *session, void *bytes, size_t size);
void session_replay_reply(struct session *session, const struct iovec *iov, int count);
/* 0 or -errno with why. The threads may be started after it. */
int session_take_over(struct session *session, struct why *why);

#endif
