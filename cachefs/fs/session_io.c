/* What passes by on its way from and to the kernel, and is kept in the session table. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <linux/fuse.h>

#include "base/crash.h"
#include "base/log.h"
#include "session_private.h"

/* FUSE_HAS_RESEND of INIT's flags, since 6.9. */
#define INIT_HAS_RESEND (1ull << 39)
/* Newer than the headers of older systems. */
#define FUSE_TMPFILE_OP            51
#define FUSE_COPY_FILE_RANGE_64_OP 53

/* Requests that change something, and whose second run would change or say something else. */
static bool is_once(uint32_t opcode)
{
	switch (opcode) {
	case FUSE_SETATTR:
	case FUSE_SYMLINK:
	case FUSE_MKNOD:
	case FUSE_MKDIR:
	case FUSE_UNLINK:
	case FUSE_RMDIR:
	case FUSE_RENAME:
	case FUSE_RENAME2:
	case FUSE_LINK:
	case FUSE_WRITE:
	case FUSE_SETXATTR:
	case FUSE_REMOVEXATTR:
	case FUSE_CREATE:
	case FUSE_FALLOCATE:
	case FUSE_COPY_FILE_RANGE:
	case FUSE_TMPFILE_OP:
	case FUSE_COPY_FILE_RANGE_64_OP:
		return true;
	default:
		return false;
	}
}

static bool is_answered(uint32_t opcode)
{
	return opcode != FUSE_FORGET && opcode != FUSE_BATCH_FORGET && opcode != FUSE_INTERRUPT &&
	       opcode != FUSE_NOTIFY_REPLY;
}

int session_write(struct session *session, const void *bytes, size_t size)
{
	if (write(session->device, bytes, size) >= 0 || errno == ENOENT)
		return 0;
	return -errno;
}

/* The second half counts only when the first says that there is one. */
static uint64_t flags_of(uint32_t flags, uint32_t flags2)
{
	return flags | (flags & FUSE_INIT_EXT ? (uint64_t)flags2 << 32 : 0);
}

uint64_t session_flags_of_init(const void *request, size_t size)
{
	struct {
		struct fuse_in_header header;
		struct fuse_init_in init;
	} message = {0};

	memcpy(&message, request, size < sizeof message ? size : sizeof message);
	return flags_of(message.init.flags, message.init.flags2);
}

uint64_t session_init_flags(const struct session *session)
{
	size_t size;
	const void *reply = table_init_reply(session->table, &size);
	struct {
		struct fuse_out_header header;
		struct fuse_init_out init;
	} message = {0};

	memcpy(&message, reply, size < sizeof message ? size : sizeof message);
	return flags_of(message.init.flags, message.init.flags2);
}

static int keep_init(struct session *session, const void *bytes, size_t size)
{
	const struct fuse_in_header *header = bytes;
	bool resend = session_flags_of_init(bytes, size) & INIT_HAS_RESEND;

	session->init_unique = header->unique;
	table_keep_all(session->table, session->forgo_resend || !resend);
	return table_put_init(session->table, bytes, size);
}

static int refuse(struct session *session, uint64_t unique, int error)
{
	struct fuse_out_header header = {.len = sizeof header, .error = error, .unique = unique};

	log_warn("requests_too_many", "ceiling=%u", TABLE_IN_FLIGHT);
	return session_write(session, &header, sizeof header);
}

/* A request that was done, and whose answer the kernel did not get. */
static bool answer_from_record(struct session *session, uint64_t unique)
{
	union {
		struct fuse_out_header header;
		uint8_t bytes[TABLE_RESULT_MAX];
	} reply;
	uint64_t first = unique & ~SESSION_RESENT;
	size_t size = table_get_result(session->table, first, &reply, sizeof reply);

	if (!size)
		return false;
	reply.header.unique = unique;
	if (session_write(session, &reply, size))
		return true;
	table_request_end(session->table, first);
	table_drop_result(session->table, first);
	return true;
}

/* 1: libfuse is to see it, 0: it has been dealt with, or -errno. */
static int take_request(struct session *session, const void *bytes, size_t size)
{
	const struct fuse_in_header *header = bytes;
	struct table *table = session->table;
	uint64_t unique;
	bool once;

	if (size < sizeof *header)
		return 1;
	unique = header->unique & ~SESSION_RESENT;
	if (header->opcode == FUSE_INIT) {
		int r = session->started ? 0 : keep_init(session, bytes, size);

		return r ? r : 1;
	}
	crash_point("after_read");
	once = is_once(header->opcode);
	if (!is_answered(header->opcode) || (!once && !table_keeps_all(table)))
		return 1;
	if (header->unique != unique && once && answer_from_record(session, header->unique))
		return 0;
	if (table_request_begin(table, unique, once))
		return 1;
	return refuse(session, header->unique, -EIO);
}

static ssize_t read_hook(int fd, void *bytes, size_t size, void *userdata)
{
	struct session *session = userdata;
	ssize_t n;
	int r;

	if (session->replay == REPLAY_REQUEST)
		return session_replay_read(session, bytes, size);
	if (atomic_load(&session->stopping)) {
		errno = EINTR;
		return -1;
	}
	n = session->replay == REPLAY_INIT_AGAIN ? session_replay_read(session, bytes, size)
						 : read(fd, bytes, size);
	/* A device has no end of file; the socket that stands in for one in tests has. */
	r = n > 0 ? take_request(session, bytes, (size_t)n) : n ? -errno : -ENODEV;
	if (r <= 0) {
		errno = r ? -r : EINTR;
		return -1;
	}
	return n;
}

/* All of a reply in one piece. */
static int gather(const struct iovec *iov, int count, uint8_t *ret, size_t room, size_t *ret_size)
{
	size_t size = 0;

	for (int i = 0; i < count; i++) {
		if (iov[i].iov_len > room - size)
			return -EFBIG;
		memcpy(ret + size, iov[i].iov_base, iov[i].iov_len);
		size += iov[i].iov_len;
	}
	*ret_size = size;
	return 0;
}

static int keep_init_reply(struct session *session, const struct iovec *iov, int count)
{
	uint8_t bytes[TABLE_INIT_MAX];
	size_t size;
	int r = gather(iov, count, bytes, sizeof bytes, &size);

	session->init_unique = 0;
	session->started = true;
	return r ? r : table_put_init_reply(session->table, bytes, size);
}

/* Whoever asks for it again gets this: a second run would do it twice. */
static int keep_result(struct session *session, uint64_t unique, const struct iovec *iov, int count)
{
	uint8_t bytes[TABLE_RESULT_MAX];
	size_t size;
	int r = gather(iov, count, bytes, sizeof bytes, &size);

	return r ? r : table_put_result(session->table, unique, bytes, size);
}

static ssize_t write_reply(
	struct session *session, uint64_t unique, const struct iovec *iov, int count)
{
	bool once = table_request_is_once(session->table, unique);
	ssize_t n;
	int r = once ? keep_result(session, unique, iov, count) : 0;

	if (r)
		log_error("result_not_kept", "error=%s", strerror(-r));
	crash_point("before_reply");
	n = writev(session->device, iov, count);
	crash_point("after_reply");
	/* A reply that the kernel refused is of a request that it doesn't have any more. */
	table_request_end(session->table, unique);
	if (once)
		table_drop_result(session->table, unique);
	return n;
}

static ssize_t writev_hook(int fd, struct iovec *iov, int count, void *userdata)
{
	struct session *session = userdata;
	const struct fuse_out_header *header = iov[0].iov_base;
	int r = 0;

	if (session->replay == REPLAY_REPLY) {
		session_replay_reply(session, iov, count);
		return (ssize_t)header->len;
	}
	if (session->init_unique && header->unique == session->init_unique)
		r = keep_init_reply(session, iov, count);
	else if (header->unique)
		return write_reply(session, header->unique & ~SESSION_RESENT, iov, count);
	if (r) {
		errno = -r;
		return -1;
	}
	return writev(fd, iov, count);
}

const struct fuse_custom_io session_io = {.read = read_hook, .writev = writev_hook};
