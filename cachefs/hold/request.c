#include "hold/upgrade.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/cleanup.h"
#include "message.h"

char *hold_socket(const char *control)
{
	char *path;

	return asprintf(&path, "%s.hold", control) < 0 ? NULL : path;
}

static int connect_to(const char *socket_path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	_cleanup_(closep) int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (strlen(socket_path) >= sizeof address.sun_path)
		return -ENAMETOOLONG;
	strcpy(address.sun_path, socket_path);
	if (connect(fd, (const struct sockaddr *)&address, sizeof address) < 0)
		return -errno;
	return steal_fd(&fd);
}

bool hold_alive(const char *socket)
{
	_cleanup_(closep) int fd = connect_to(socket);

	return fd >= 0;
}

static int read_result(int fd, struct why *result)
{
	_cleanup_(freep) struct hold_packet *packet = malloc(sizeof *packet);
	int r;

	if (!packet)
		return why_set(result, -ENOMEM, "no memory");
	r = message_receive(fd, packet, 0);
	if (r <= 0)
		return why_set(result, r ? r : -EPIPE,
			"the keeper ended the connection without an answer; its log says why");
	message_close_fds(packet);
	r = packet->head.error < 0 ? packet->head.error : -EPROTO;
	if (packet->head.type != HOLD_OK)
		return why_set(result, r, "%s", packet->payload);
	snprintf(result->text, sizeof result->text, "%.512s", packet->payload);
	return 0;
}

int hold_upgrade(const char *socket, const char *binary, struct why *result)
{
	const struct hold_message head = {.version = HOLD_VERSION, .type = HOLD_UPGRADE};
	_cleanup_(closep) int file = open(binary, O_RDONLY | O_CLOEXEC);
	_cleanup_(closep) int fd = -1;
	int r;

	if (file < 0)
		return why_set(result, -errno, "can't open the new binary %s: %s", binary,
			strerror(errno));
	fd = connect_to(socket);
	if (fd < 0)
		return why_set(result, fd,
			"no keeper listens on %s (%s): `cachefs status` tells whether a daemon "
			"runs; one that was started as `cachefs serve`, or whose keeper is dead, "
			"can only be stopped and started",
			socket, strerror(-fd));
	r = message_send(fd, &head, binary, strlen(binary), &file, 1, 0);
	if (r)
		return why_set(result, r, "can't ask the keeper: %s", strerror(-r));
	return read_result(fd, result);
}
