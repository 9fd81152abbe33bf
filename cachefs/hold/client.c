#include "hold/client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/work.h"
#include "message.h"

/* The keeper answers from memory; more means that it hangs. */
#define ANSWER_MS 5000
/* In an upgrade the predecessor ends in between. */
#define MOUNTS_MS 15000

struct hold {
	int fd;
	int stop; /* eventfd */
	uint16_t version;
	pthread_t thread;
	bool started;
	struct hold_packet packet; /* the opener's, then the thread's */
	struct lock lock;
	struct cond answered;
	struct list waiting;
	bool gone;   /* the keeper; under the lock */
	bool closed; /* by us; under the lock */
};

/* A put under way. All under the lock. */
struct put {
	struct list link;
	uint64_t id;
	bool done;
	int error;
};

static int say(struct hold *hold, enum hold_type type, uint64_t id)
{
	const struct hold_message head = {
		.version = hold->version, .type = (uint16_t)type, .id = id};

	return message_send(hold->fd, &head, NULL, 0, NULL, 0, MSG_DONTWAIT);
}

static int receive_within(struct hold *hold, int timeout_ms)
{
	struct pollfd poll_fd = {.fd = hold->fd, .events = POLLIN};
	int r;

	do {
		r = poll(&poll_fd, 1, timeout_ms);
	} while (r < 0 && errno == EINTR);
	if (r <= 0)
		return r ? -errno : -ETIMEDOUT;
	r = message_receive(hold->fd, &hold->packet, 0);
	return r ? r : -EPIPE;
}

static int agree(struct hold *hold)
{
	int r = say(hold, HOLD_HELLO, 0);

	if (!r)
		r = receive_within(hold, ANSWER_MS);
	if (r <= 0)
		return r;
	message_close_fds(&hold->packet);
	if (hold->packet.head.type != HOLD_HELLO ||
		hold->packet.head.version < HOLD_VERSION_OLDEST ||
		hold->packet.head.version > HOLD_VERSION)
		return -EPROTONOSUPPORT;
	hold->version = hold->packet.head.version;
	return 0;
}

int hold_open(int fd, struct hold **ret, struct why *why)
{
	const struct timeval limit = {.tv_sec = ANSWER_MS / 1000};
	struct hold *hold = calloc(1, sizeof *hold);
	int r = -ENOMEM;

	if (!hold) {
		close(fd);
		return why_set(why, r, "no memory");
	}
	hold->fd = fd;
	hold->version = HOLD_VERSION;
	hold->stop = eventfd(0, EFD_CLOEXEC);
	lock_init(&hold->lock);
	cond_init(&hold->answered);
	list_init(&hold->waiting);
	r = hold->stop < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) < 0
		    ? -errno
		    : agree(hold);
	if (r) {
		hold_close(hold);
		return why_set(why, r, "can't agree with the keeper: %s", strerror(-r));
	}
	*ret = hold;
	return 0;
}

/* --- the mounts of a predecessor --- */

void hold_mounts_free(struct hold_mounts *mounts)
{
	for (size_t i = 0; i < mounts->count; i++) {
		free(mounts->mounts[i].description);
		closep(&mounts->mounts[i].device);
		closep(&mounts->mounts[i].table);
	}
	free(mounts->mounts);
	*mounts = (struct hold_mounts){0};
}

static int take_mount(struct hold_packet *packet, struct hold_mounts *mounts)
{
	struct hold_mount *mount = &mounts->mounts[mounts->count];

	if (packet->fds[0] < 0 || packet->fds[1] < 0 || mounts->count == HOLD_MOUNTS_MAX)
		return -EBADMSG;
	mount->description = malloc((size_t)packet->head.size + 1);
	if (!mount->description)
		return -ENOMEM;
	memcpy(mount->description, packet->payload, (size_t)packet->head.size + 1);
	mount->size = packet->head.size;
	mount->id = packet->head.id;
	mount->device = steal_fd(&packet->fds[0]);
	mount->table = steal_fd(&packet->fds[1]);
	mounts->count++;
	return 0;
}

static int take_standing(const struct hold_packet *packet, struct hold_keeper *ret)
{
	struct hold_standing standing;

	if (packet->head.size < sizeof standing)
		return -EBADMSG;
	memcpy(&standing, packet->payload, sizeof standing);
	*ret = (struct hold_keeper){.pid = (pid_t)standing.pid,
		.restarts = standing.restarts,
		.last_status = standing.last_status};
	return 0;
}

/* 1: the end has come. */
static int take_next(struct hold *hold, struct hold_mounts *mounts, struct hold_keeper *keeper)
{
	int r = receive_within(hold, MOUNTS_MS);

	if (r <= 0)
		return r;
	r = 0;
	if (hold->packet.head.type == HOLD_MOUNT)
		r = take_mount(&hold->packet, mounts);
	else if (hold->packet.head.type == HOLD_MOUNTS_END)
		r = take_standing(&hold->packet, keeper) ?: 1;
	message_close_fds(&hold->packet);
	return r;
}

/* --- the thread --- */

static void answer(struct hold *hold, uint64_t id, int error)
{
	lock_take(&hold->lock);
	list_for_each (node, &hold->waiting) {
		struct put *put = container_of(node, struct put, link);

		if (put->id == id && !put->done) {
			put->done = true;
			put->error = error;
			break;
		}
	}
	cond_broadcast(&hold->answered);
	lock_drop(&hold->lock);
}

static void keeper_gone(struct hold *hold)
{
	bool closed;

	lock_take(&hold->lock);
	hold->gone = true;
	closed = hold->closed;
	cond_broadcast(&hold->answered);
	lock_drop(&hold->lock);
	if (!closed)
		log_error("keeper_dead", "the end of this daemon, also a crash, ends its mounts");
}

bool hold_is_gone(struct hold *hold)
{
	bool gone;

	lock_take(&hold->lock);
	gone = hold->gone;
	lock_drop(&hold->lock);
	return gone;
}

static void *listen_to_keeper(void *arg)
{
	struct hold *hold = arg;
	int r;

	while ((r = message_receive(hold->fd, &hold->packet, 0))) {
		if (r == -EBADMSG)
			continue;
		if (r < 0)
			break;
		message_close_fds(&hold->packet);
		if (hold->packet.head.type == HOLD_OK)
			answer(hold, hold->packet.head.id, 0);
		else if (hold->packet.head.type == HOLD_ERROR)
			answer(hold, hold->packet.head.id,
				hold->packet.head.error < 0 ? hold->packet.head.error : -EPROTO);
		else if (hold->packet.head.type == HOLD_STOP && eventfd_write(hold->stop, 1) < 0)
			break;
	}
	keeper_gone(hold);
	return NULL;
}

int hold_take(
	struct hold *hold, struct hold_mounts *ret, struct hold_keeper *ret_keeper, struct why *why)
{
	struct hold_mounts mounts = {.mounts = calloc(HOLD_MOUNTS_MAX, sizeof *mounts.mounts)};
	int r = mounts.mounts ? 0 : -ENOMEM;

	while (!r)
		r = take_next(hold, &mounts, ret_keeper);
	if (r > 0)
		r = thread_start(&hold->thread, "hold", listen_to_keeper, hold);
	if (r) {
		hold_mounts_free(&mounts);
		return why_set(why, r, "can't take the volumes from the keeper: %s", strerror(-r));
	}
	hold->started = true;
	*ret = mounts;
	return 0;
}

void hold_close(struct hold *hold)
{
	if (!hold)
		return;
	lock_take(&hold->lock);
	hold->closed = true;
	lock_drop(&hold->lock);
	/* Ends the thread's receive. */
	shutdown(hold->fd, SHUT_RDWR);
	if (hold->started)
		pthread_join(hold->thread, NULL);
	close(hold->fd);
	closep(&hold->stop);
	cond_destroy(&hold->answered);
	lock_destroy(&hold->lock);
	free(hold);
}

/* --- what the daemon says --- */

static int wait_answer(struct hold *hold, struct put *put)
{
	uint64_t deadline_ns = clock_now_ns() + ANSWER_MS * NS_PER_MS;
	int r = 0;

	lock_take(&hold->lock);
	while (!put->done && !hold->gone && !r)
		r = cond_wait_until(&hold->answered, &hold->lock, deadline_ns);
	if (put->done)
		r = put->error;
	else if (hold->gone)
		r = -EPIPE;
	list_remove(&put->link);
	lock_drop(&hold->lock);
	return r;
}

int hold_put(
	struct hold *hold, uint64_t id, const char *description, size_t size, int device, int table)
{
	const int fds[] = {device, table};
	const struct hold_message head = {
		.version = hold->version, .type = device < 0 ? HOLD_PUT_AGAIN : HOLD_PUT, .id = id};
	struct put put = {.id = id};
	int r;

	lock_take(&hold->lock);
	list_append(&hold->waiting, &put.link);
	lock_drop(&hold->lock);
	r = message_send(hold->fd, &head, description, size, fds, device < 0 ? 0 : 2, 0);
	if (r)
		answer(hold, id, r == -EAGAIN ? -ETIMEDOUT : r);
	return wait_answer(hold, &put);
}

/* Small messages: the channel is full of them only when the keeper hangs, and then nothing that we
 * do helps. */
static void tell(struct hold *hold, enum hold_type type, uint64_t id)
{
	int r = say(hold, type, id);

	if (r && r != -EPIPE)
		log_warn("keeper_not_told", "type=%d error=%s", (int)type, strerror(-r));
}

void hold_drop(struct hold *hold, uint64_t id)
{
	tell(hold, HOLD_DROP, id);
}

void hold_ready(struct hold *hold)
{
	tell(hold, HOLD_READY, 0);
}

void hold_beat(struct hold *hold)
{
	tell(hold, HOLD_BEAT, 0);
}

int hold_stop_fd(const struct hold *hold)
{
	return hold->stop;
}
