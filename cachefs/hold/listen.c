#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "private.h"

/* Our daemon is ready, so it has the control socket's name, and we this one beside it: whatever is
 * there is a dead keeper's. */
void listen_start(struct keeper *keeper)
{
	const char *path = keeper->config->socket;
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd >= 0 && strlen(path) < sizeof address.sun_path) {
		strcpy(address.sun_path, path);
		unlink(path);
		/* Nobody can connect before listen, so that the mode comes in time. */
		if (!bind(fd, (const struct sockaddr *)&address, sizeof address) &&
			!chmod(path, 0600) && !listen(fd, 4)) {
			keeper->listener = fd;
			return;
		}
	}
	log_warn("keeper_not_listening", "socket=%s error=%s: no upgrade by command", path,
		strerror(errno));
	if (fd >= 0)
		close(fd);
}

void listen_stop(struct keeper *keeper)
{
	if (keeper->listener < 0)
		return;
	/* Its name stays: it may be the next keeper's by now. */
	close(keeper->listener);
	keeper->listener = -1;
}

/* One caller at a time: a new one takes the place of one that never asked. */
void listen_accept(struct keeper *keeper)
{
	int fd = accept4(keeper->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		return;
	if (keeper->caller >= 0)
		close(keeper->caller);
	keeper->caller = fd;
}

void listen_read(struct keeper *keeper)
{
	int fd = keeper->caller, binary;
	int r = message_receive(fd, &keeper->packet, MSG_DONTWAIT);

	if (r == -EAGAIN)
		return;
	keeper->caller = -1;
	binary = r > 0 ? keeper->packet.fds[0] : -1;
	if (r <= 0 || keeper->packet.head.type != HOLD_UPGRADE || binary < 0) {
		listen_answer(fd, -EBADMSG, "the keeper is asked for upgrades only");
	} else {
		keeper->packet.fds[0] = -1;
		log_info("upgrade_asked", "binary=%s", keeper->packet.payload);
		upgrade_begin(keeper, binary, fd);
	}
	if (r > 0)
		message_close_fds(&keeper->packet);
}

void listen_answer(int fd, int error, const char *sentence)
{
	const struct hold_message head = {
		.version = HOLD_VERSION, .type = error ? HOLD_ERROR : HOLD_OK, .error = error};

	if (fd < 0)
		return;
	if (message_send(fd, &head, sentence, strlen(sentence), NULL, 0, MSG_DONTWAIT))
		log_debug("upgrade_answer_unread", "sentence=%s", sentence);
	close(fd);
}
