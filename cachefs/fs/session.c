#include "session_private.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <linux/fuse.h>

#include "base/clock.h"
#include "base/crash.h"
#include "base/log.h"
#include "base/work.h"

/* Wakes a thread from read(2); ignored by default, so that a stray one does nothing. */
#define WAKE          SIGURG
#define WAKE_EVERY_NS 1000000
/* FUSE_NOTIFY_PRUNE, since 6.18. */
#define NOTIFY_PRUNE 9

static _Thread_local uint64_t current; /* unique of the request that this thread works at */

int session_new(int device, struct table *table, const struct device_calls *calls,
	const struct fuse_lowlevel_ops *ops, void *owner, struct session **ret)
{
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
	lock_init(&session->lock);
	cond_init(&session->ended);
	session->fuse = fuse_session_new(&args, ops, sizeof *ops, session);
	fuse_opt_free_args(&args);
	if (session->fuse)
		r = fuse_session_custom_io(session->fuse, &session_io, sizeof session_io, device);
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
	cond_destroy(&session->ended);
	lock_destroy(&session->lock);
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

void session_forgo_resend(struct session *session)
{
	session->forgo_resend = true;
}

void session_on_lost(struct session *session, void (*lost)(void *owner, uint64_t unique))
{
	session->lost = lost;
}

int session_serve_one(struct session *session, struct fuse_buf *buffer)
{
	int n = fuse_session_receive_buf(session->fuse, buffer);

	if (n == -EINTR || n == -EAGAIN)
		return 1;
	if (n <= 0)
		return n;
	current = ((const struct fuse_in_header *)buffer->mem)->unique;
	fuse_session_process_buf(session->fuse, buffer);
	return 1;
}

uint64_t session_unique(void)
{
	return current & ~SESSION_RESENT;
}

bool session_is_resent(void)
{
	return current & SESSION_RESENT;
}

static void on_wake(int number)
{
	(void)number;
}

static void allow_wake(void)
{
	sigset_t wake;

	sigemptyset(&wake);
	sigaddset(&wake, WAKE);
	pthread_sigmask(SIG_UNBLOCK, &wake, NULL);
}

static void *serve(void *arg)
{
	struct session *session = arg;
	struct fuse_buf buffer = {0};
	int r;

	allow_wake();
	do {
		r = session_serve_one(session, &buffer);
	} while (r > 0 && !fuse_session_exited(session->fuse) && !atomic_load(&session->stopping));
	if (r < 0)
		log_error("session_thread_ended", "error=%s", strerror(-r));
	free(buffer.mem);
	lock_take(&session->lock);
	session->n_running--;
	cond_broadcast(&session->ended);
	lock_drop(&session->lock);
	return NULL;
}

static unsigned thread_count(void)
{
	int cpus = get_nprocs();

	if (cpus < 2)
		return 2;
	return cpus < SESSION_THREADS_MAX ? (unsigned)cpus : SESSION_THREADS_MAX;
}

static int answer_init(struct session *session, struct why *why)
{
	struct fuse_buf buffer = {0};
	size_t size;
	int r;

	/* A predecessor read it, and did not get to answer: the kernel waits for that. */
	table_init(session->table, &size);
	if (size)
		session->replay = REPLAY_INIT_AGAIN;
	do {
		r = session_serve_one(session, &buffer);
	} while (r > 0 && !session->started && !fuse_session_exited(session->fuse));
	free(buffer.mem);
	if (r > 0 && !fuse_session_exited(session->fuse))
		return 0;
	r = r < 0 ? r : -EPROTO;
	return why_set(why, r, "the kernel's FUSE_INIT: %s", strerror(-r));
}

static int start_threads(struct session *session)
{
	/* Without SA_RESTART, so that a read ends. */
	struct sigaction wake = {.sa_handler = on_wake};
	unsigned wanted = thread_count();
	int r = 0;

	sigaction(WAKE, &wake, NULL);
	lock_take(&session->lock);
	while (session->n_threads < wanted) {
		r = thread_start(
			&session->threads[session->n_threads], "cachefs-fuse", serve, session);
		if (r)
			break;
		session->n_threads++;
		session->n_running++;
	}
	lock_drop(&session->lock);
	return session->n_threads ? 0 : r;
}

int session_start(struct session *session, struct why *why)
{
	size_t size;
	int r;

	table_init_reply(session->table, &size);
	r = size ? session_take_over(session, why) : answer_init(session, why);
	if (r)
		return r;
	r = start_threads(session);
	return r ? why_set(why, r, "threads of the mount: %s", strerror(-r)) : 0;
}

void session_join(struct session *session)
{
	/* Not joined before none runs: session_stop may be waking them. */
	lock_take(&session->lock);
	while (session->n_running)
		cond_wait(&session->ended, &session->lock);
	lock_drop(&session->lock);
	for (unsigned i = 0; i < session->n_threads; i++)
		pthread_join(session->threads[i], NULL);
	session->n_threads = 0;
}

/* A signal that comes just before read(2) is lost: so again, until all have seen the flag. */
void session_stop(struct session *session)
{
	atomic_store(&session->stopping, true);
	lock_take(&session->lock);
	while (session->n_running) {
		for (unsigned i = 0; i < session->n_threads; i++)
			pthread_kill(session->threads[i], WAKE);
		cond_wait_until(&session->ended, &session->lock, clock_now_ns() + WAKE_EVERY_NS);
	}
	lock_drop(&session->lock);
}

bool session_is_stopped(const struct session *session)
{
	return atomic_load(&session->stopping);
}

bool session_is_connected(const struct session *session)
{
	struct pollfd device = {.fd = session->device};

	return poll(&device, 1, 0) == 0;
}

int session_probe_node(struct session *session, uint64_t id)
{
	/* No pages: only the attributes, which are asked for again when somebody wants them. */
	return fuse_lowlevel_notify_inval_inode(session->fuse, id, -1, 0);
}

int session_prune(struct session *session, const uint64_t *ids, uint32_t count)
{
	struct prune {
		uint32_t count, padding;
		uint64_t spare;
	} prune = {.count = count};
	struct fuse_out_header header = {
		.len = (uint32_t)(sizeof header + sizeof prune + count * sizeof *ids),
		.error = NOTIFY_PRUNE,
	};
	struct iovec iov[] = {{&header, sizeof header}, {&prune, sizeof prune},
		{(void *)ids, count * sizeof *ids}};

	return writev(session->device, iov, 3) < 0 ? -errno : 0;
}

int session_backing_open(struct session *session, int fd)
{
	int id = session->calls->backing_open(session->device, fd);

	crash_point("after_backing_open");
	if (id > 0)
		table_saw_backing(session->table, id);
	return id;
}

void session_backing_close(struct session *session, int backing_id)
{
	session->calls->backing_close(session->device, backing_id);
	table_closing_end(session->table, backing_id);
}
