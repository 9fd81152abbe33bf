#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/fuse.h>

#include "session_private.h"

/* Since 6.9; older systems' headers lack it. */
#define NOTIFY_RESEND 7
/* 32,768 requests, some 30 ms. */
#define LOST_MARGIN 65536

struct init_reply {
	struct fuse_out_header header;
	struct fuse_init_out init;
};

ssize_t session_replay_read(struct session *session, void *bytes, size_t size)
{
	size_t n;
	const void *request = table_init(session->table, &n);

	session->replay = session->replay == REPLAY_REQUEST ? REPLAY_REPLY : REPLAY_NONE;
	if (!n || n > size) {
		errno = EPROTO;
		return -1;
	}
	memcpy(bytes, request, n);
	return (ssize_t)n;
}

/*
 * The kernel goes by the reply that it got, so all of what it says must be so now. But for the two
 * numbers about background requests, which only the kernel uses.
 */
static bool is_same_reply(const void *saved, size_t saved_size, const void *now, size_t size)
{
	struct init_reply a = {0}, b = {0};

	if (saved_size != size || size > sizeof a)
		return false;
	memcpy(&a, saved, size);
	memcpy(&b, now, size);
	b.header.unique = a.header.unique;
	b.init.max_background = a.init.max_background;
	b.init.congestion_threshold = a.init.congestion_threshold;
	return !memcmp(&a, &b, size);
}

void session_replay_reply(struct session *session, const struct iovec *iov, int count)
{
	uint8_t bytes[TABLE_INIT_MAX];
	size_t size = 0, saved_size;
	const void *saved = table_init_reply(session->table, &saved_size);

	session->replay = REPLAY_NONE;
	session->replay_result = -EPROTO;
	for (int i = 0; i < count && iov[i].iov_len <= sizeof bytes - size; i++) {
		memcpy(bytes + size, iov[i].iov_base, iov[i].iov_len);
		size += iov[i].iov_len;
	}
	if (is_same_reply(saved, saved_size, bytes, size))
		session->replay_result = 0;
}

static int replay_init(struct session *session)
{
	struct fuse_buf buffer = {0};
	int r;

	session->replay = REPLAY_REQUEST;
	session->replay_result = -EPROTO;
	r = session_serve_one(session, &buffer);
	free(buffer.mem);
	session->replay = REPLAY_NONE;
	return r < 0 ? r : session->replay_result;
}

/* The predecessor may have died between keeping its reply and writing it; if not, the kernel doesn't
 * know the request any more, which is no error. */
static int answer_init_again(struct session *session)
{
	size_t size;
	const void *reply = table_init_reply(session->table, &size);

	return session_write(session, reply, size);
}

static void fail_lost(void *arg, uint64_t unique)
{
	struct session *session = arg;

	/* Unknown to the kernel: it was answered, and its handle, if it has one, is alive. */
	if (session->calls->fail(session->device, unique, -EIO))
		session->lost(session->owner, unique);
}

/*
 * A request may have been read and not be in the set yet. Uniques count up, so it is near the last
 * that is known; and what the kernel takes an answer of now was read by the predecessor, since
 * nobody else has read anything.
 */
static void fail_unknown(struct session *session)
{
	uint64_t last = table_last_request(session->table);
	uint64_t from = last > LOST_MARGIN ? last - LOST_MARGIN : 2;

	for (uint64_t unique = from; unique <= last + LOST_MARGIN; unique += 2)
		fail_lost(session, unique);
}

static void forget_lost(void *arg, uint64_t unique)
{
	(void)arg;
	(void)unique;
}

/* What the predecessor read and did not answer. Before the first read: the kernel would else send a
 * request again that we have already. */
static int recover_requests(struct session *session)
{
	struct fuse_out_header resend = {.len = sizeof resend, .error = NOTIFY_RESEND};

	if (table_keeps_all(session->table)) {
		table_requests_drain(session->table, fail_lost, session);
		fail_unknown(session);
		return 0;
	}
	table_requests_drain(session->table, forget_lost, NULL);
	return session_write(session, &resend, sizeof resend);
}

int session_take_over(struct session *session, struct why *why)
{
	int r = replay_init(session);

	if (r)
		return why_set(why, r,
			"taking over a mount: this version answers FUSE_INIT otherwise than the "
			"one before (%s)",
			strerror(-r));
	session->started = true;
	r = answer_init_again(session);
	if (!r)
		r = recover_requests(session);
	return r ? why_set(why, r, "taking over a mount: %s", strerror(-r)) : 0;
}
