#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "private.h"

/* So that a daemon that talks without end can't keep the loop from its timers. */
#define MESSAGES_AT_ONCE 64

/* A daemon that doesn't read its channel does without the answer: the loop never waits for it. */
static void say(const struct child *child, enum hold_type type, uint64_t id, int error)
{
	const struct hold_message head = {
		.version = child->version, .type = (uint16_t)type, .id = id, .error = error};
	int r = message_send(child->channel, &head, NULL, 0, NULL, 0, MSG_DONTWAIT);

	if (r)
		log_warn("daemon_not_told", "pid=%d type=%d error=%d", (int)child->pid, (int)type,
			-r);
}

static void take_hello(struct keeper *keeper, struct child *child)
{
	uint16_t version = keeper->packet.head.version;

	if (version < HOLD_VERSION_OLDEST) {
		child->version = HOLD_VERSION;
		say(child, HOLD_ERROR, 0, -EPROTONOSUPPORT);
		return;
	}
	child->version = version < HOLD_VERSION ? version : HOLD_VERSION;
	say(child, HOLD_HELLO, 0, 0);
	if (child == &keeper->upgrade.next)
		upgrade_next_said_hello(keeper);
	else
		talk_begin_mounts(keeper, child);
}

static int put(struct keeper *keeper)
{
	struct hold_packet *packet = &keeper->packet;
	int r;

	if (packet->fds[0] < 0 || packet->fds[1] < 0)
		return -EBADMSG;
	r = mounts_add(&keeper->mounts, packet->head.id, packet->payload, packet->head.size,
		packet->fds[0], packet->fds[1]);
	if (!r)
		packet->fds[0] = packet->fds[1] = -1;
	return r;
}

static void acknowledge(struct keeper *keeper, const struct child *child, int r)
{
	if (r)
		log_warn("mount_not_kept", "id=%llu error=%d",
			(unsigned long long)keeper->packet.head.id, -r);
	say(child, r ? HOLD_ERROR : HOLD_OK, keeper->packet.head.id, r);
}

static void take_message(struct keeper *keeper, struct child *child)
{
	const struct hold_packet *packet = &keeper->packet;

	child->heard_ns = clock_now_ns();
	if (packet->head.type == HOLD_HELLO && !child->version) {
		take_hello(keeper, child);
		return;
	}
	/* The mounts are the daemon's: a successor has no say before it is the daemon. */
	if (child != &keeper->daemon || !child->version)
		return;
	switch (packet->head.type) {
	case HOLD_PUT:
		acknowledge(keeper, child, put(keeper));
		break;
	case HOLD_PUT_AGAIN:
		acknowledge(keeper, child,
			mounts_change(&keeper->mounts, packet->head.id, packet->payload,
				packet->head.size));
		break;
	case HOLD_DROP:
		mounts_drop(&keeper->mounts, packet->head.id);
		break;
	case HOLD_READY:
		if (!child->ready)
			keeper_daemon_ready(keeper);
		break;
	default: /* BEAT is heard already; the rest a later version may say */
		break;
	}
}

bool talk_input(struct keeper *keeper, struct child *child)
{
	for (int i = 0; i < MESSAGES_AT_ONCE && child->channel >= 0; i++) {
		int r = message_receive(child->channel, &keeper->packet, MSG_DONTWAIT);

		if (r == -EAGAIN)
			return false;
		if (r == -EBADMSG) {
			log_warn("daemon_garbage", "pid=%d", (int)child->pid);
			continue;
		}
		if (r <= 0) {
			close(child->channel);
			child->channel = -1;
			child->sending = false;
			return false;
		}
		take_message(keeper, child);
		message_close_fds(&keeper->packet);
	}
	return child->channel >= 0;
}

void talk_begin_mounts(struct keeper *keeper, struct child *child)
{
	child->sending = true;
	child->next_slot = 0;
	talk_output(keeper, child);
}

static int send_mount(const struct child *child, const struct kept_mount *mount)
{
	const struct hold_message head = {
		.version = child->version, .type = HOLD_MOUNT, .id = mount->id};
	const int fds[] = {mount->device, mount->table};

	return message_send(
		child->channel, &head, mount->description, mount->size, fds, 2, MSG_DONTWAIT);
}

static int send_end(const struct keeper *keeper, const struct child *child)
{
	const struct hold_message head = {.version = child->version, .type = HOLD_MOUNTS_END};
	const struct hold_standing standing = {.pid = (uint32_t)getpid(),
		.restarts = keeper->restarts,
		.last_status = keeper->last_status};

	return message_send(
		child->channel, &head, &standing, sizeof standing, NULL, 0, MSG_DONTWAIT);
}

/* A full channel is gone on with when poll says so; a broken one ends with its daemon. */
void talk_output(struct keeper *keeper, struct child *child)
{
	while (child->sending && child->next_slot < HOLD_MOUNTS_MAX) {
		const struct kept_mount *mount = &keeper->mounts.slots[child->next_slot];
		int r = mount->used ? send_mount(child, mount) : 0;

		if (r == -EAGAIN || r == -ETOOMANYREFS)
			return;
		child->next_slot++;
	}
	if (child->sending && send_end(keeper, child) != -EAGAIN)
		child->sending = false;
}

void talk_stop(struct child *child)
{
	say(child, HOLD_STOP, 0, 0);
}
