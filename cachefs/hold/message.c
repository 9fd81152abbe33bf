#include "message.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/check.h"

_Static_assert(sizeof(struct hold_message) == 24, "the header never changes");
_Static_assert(
	offsetof(struct hold_packet, payload) == sizeof(struct hold_message), "no gap before it");

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(HOLD_FDS_MAX * sizeof(int))];
};

int message_send(int fd, const struct hold_message *head, const void *payload, size_t size,
	const int *fds, size_t n_fds, int flags)
{
	struct hold_message sent = *head;
	struct iovec iov[2] = {{&sent, sizeof sent}, {(void *)payload, size}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = size ? 2 : 1};
	union control control = {0};
	ssize_t n;

	check(n_fds <= HOLD_FDS_MAX);
	if (size > HOLD_DESCRIPTION_MAX)
		return -EFBIG;
	sent.magic = HOLD_MAGIC;
	sent.size = (uint32_t)size;
	if (n_fds) {
		struct cmsghdr *cmsg;

		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(n_fds * sizeof *fds);
		cmsg = CMSG_FIRSTHDR(&msg);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(n_fds * sizeof *fds);
		memcpy(CMSG_DATA(cmsg), fds, n_fds * sizeof *fds);
	}
	do {
		n = sendmsg(fd, &msg, flags | MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

void message_close_fds(struct hold_packet *packet)
{
	for (size_t i = 0; i < HOLD_FDS_MAX; i++) {
		if (packet->fds[i] >= 0)
			close(packet->fds[i]);
		packet->fds[i] = -1;
	}
}

/* The kernel has put every descriptor that it could into our table: each is taken, or closed. */
static void take_fds(struct msghdr *msg, struct hold_packet *packet)
{
	size_t taken = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		int fd;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n; i++) {
			memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
			if (taken < HOLD_FDS_MAX)
				packet->fds[taken++] = fd;
			else
				close(fd);
		}
	}
}

int message_receive(int fd, struct hold_packet *packet, int flags)
{
	struct iovec iov = {packet, sizeof packet->head + HOLD_DESCRIPTION_MAX};
	union control control;
	struct msghdr msg = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof control};
	ssize_t n;

	for (size_t i = 0; i < HOLD_FDS_MAX; i++)
		packet->fds[i] = -1;
	/* ECONNRESET is told once, when the other side ended with something unread; what it said
	 * before comes after that. */
	do {
		n = recvmsg(fd, &msg, flags | MSG_CMSG_CLOEXEC);
	} while (n < 0 && (errno == EINTR || errno == ECONNRESET));
	if (n < 0)
		return -errno;
	take_fds(&msg, packet);
	if (n == 0) {
		message_close_fds(packet);
		return 0;
	}
	if ((msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || (size_t)n < sizeof packet->head ||
		packet->head.magic != HOLD_MAGIC ||
		packet->head.size != (size_t)n - sizeof packet->head) {
		message_close_fds(packet);
		return -EBADMSG;
	}
	packet->payload[packet->head.size] = '\0';
	return 1;
}
