#include "session.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>
#include <unistd.h>

#include <linux/fuse.h>

#include "base/log.h"
#include "base/work.h"

#define THREADS_MAX 4

struct session {
	struct fuse_session *fuse;
	struct table *table;
	const struct device_calls *calls;
	void *owner;
	int device;
	uint64_t init_unique; /* of INIT until its reply is written; the starting thread's */
	bool started;         /* INIT is answered; the starting thread's */
	unsigned n_threads;
	pthread_t threads[THREADS_MAX];
};

static int keep_request(struct session *session, const void *bytes, size_t size)
{
	const struct fuse_in_header *header = bytes;

	if (size < sizeof *header || header->opcode != FUSE_INIT)
		return 0;
	session->init_unique = header->unique;
	return table_put_init(session->table, bytes, size);
}

static ssize_t read_hook(int fd, void *bytes, size_t size, void *userdata)
{
	ssize_t n = read(fd, bytes, size);
	/* A device has no end of file; the socket that stands in for one in tests has. */
	int r = n > 0 ? keep_request(userdata, bytes, (size_t)n) : n ? 0 : -ENODEV;

	if (r) {
		errno = -r;
		return -1;
	}
	return n;
}

static int keep_reply(struct session *session, const struct iovec *iov, int count)
{
	uint8_t bytes[TABLE_INIT_MAX];
	size_t size = 0;

	for (int i = 0; i < count; i++) {
		if (iov[i].iov_len > sizeof bytes - size)
			return -EFBIG;
		memcpy(bytes + size, iov[i].iov_base, iov[i].iov_len);
		size += iov[i].iov_len;
	}
	return table_put_init_reply(session->table, bytes, size);
}

static ssize_t writev_hook(int fd, struct iovec *iov, int count, void *userdata)
{
	struct session *session = userdata;
	const struct fuse_out_header *header = iov[0].iov_base;
	int r = 0;

	if (session->init_unique && header->unique == session->init_unique) {
		session->init_unique = 0;
		session->started = true;
		r = keep_reply(session, iov, count);
	}
	if (r) {
		errno = -r;
		return -1;
	}
	return writev(fd, iov, count);
}

int session_new(int device, struct table *table, const struct device_calls *calls,
	const struct fuse_lowlevel_ops *ops, void *owner, struct session **ret)
{
	static const struct fuse_custom_io io = {.read = read_hook, .writev = writev_hook};
	char name[] = "cachefs";
	char *argv[] = {name, NULL};
	struct fuse_args args = FUSE_ARGS_INIT(1, argv);
	struct session *session = calloc(1, sizeof *session);
	int r = -ENOMEM;

	if (!session) {
		close(device);
		return r;
	}
	*session =
		(struct session){.table = table, .calls = calls, .owner = owner, .device = device};
	session->fuse = fuse_session_new(&args, ops, sizeof *ops, session);
	fuse_opt_free_args(&args);
	if (session->fuse)
		r = fuse_session_custom_io(session->fuse, &io, sizeof io, device);
	if (r) {
		close(device);
		session_free(session);
		return r;
	}
	*ret = session;
	return 0;
}

void session_free(struct session *session)
{
	if (!session)
		return;
	if (session->fuse)
		fuse_session_destroy(session->fuse); /* closes the device */
	free(session);
}

void *session_owner(fuse_req_t req)
{
	return session_owner_of(fuse_req_userdata(req));
}

void *session_owner_of(void *userdata)
{
	struct session *session = userdata;

	return session->owner;
}

/* One request. 1, 0 when the device has ended, or -errno. */
static int serve_one(struct session *session, struct fuse_buf *buffer)
{
	int n = fuse_session_receive_buf(session->fuse, buffer);

	if (n == -EINTR || n == -EAGAIN)
		return 1;
	if (n <= 0)
		return n;
	fuse_session_process_buf(session->fuse, buffer);
	return 1;
}

static void *serve(void *arg)
{
	struct session *session = arg;
	struct fuse_buf buffer = {0};
	int r;

	do {
		r = serve_one(session, &buffer);
	} while (r > 0 && !fuse_session_exited(session->fuse));
	if (r < 0)
		log_error("session_thread_ended", "error=%s", strerror(-r));
	free(buffer.mem);
	return NULL;
}

static unsigned thread_count(void)
{
	int cpus = get_nprocs();

	if (cpus < 2)
		return 2;
	return cpus < THREADS_MAX ? (unsigned)cpus : THREADS_MAX;
}

int session_start(struct session *session)
{
	unsigned wanted = thread_count();
	struct fuse_buf buffer = {0};
	int r;

	do {
		r = serve_one(session, &buffer);
	} while (r > 0 && !session->started && !fuse_session_exited(session->fuse));
	free(buffer.mem);
	if (r <= 0 || fuse_session_exited(session->fuse))
		return r < 0 ? r : -EPROTO;
	while (session->n_threads < wanted) {
		r = thread_start(
			&session->threads[session->n_threads], "cachefs-fuse", serve, session);
		if (r)
			return session->n_threads ? 0 : r;
		session->n_threads++;
	}
	return 0;
}

void session_join(struct session *session)
{
	for (unsigned i = 0; i < session->n_threads; i++)
		pthread_join(session->threads[i], NULL);
	session->n_threads = 0;
}

bool session_is_connected(const struct session *session)
{
	struct pollfd device = {.fd = session->device};

	return poll(&device, 1, 0) == 0;
}

int session_backing_open(struct session *session, int fd)
{
	return session->calls->backing_open(session->device, fd);
}

void session_backing_close(struct session *session, int backing_id)
{
	session->calls->backing_close(session->device, backing_id);
}
