#include "notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"

void notify_manager(const char *state)
{
	const char *name = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	_cleanup_(closep) int fd = -1;
	size_t size = name ? strlen(name) : 0;

	if (!size || size >= sizeof address.sun_path)
		return;
	memcpy(address.sun_path, name, size);
	if (name[0] == '@')
		address.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT,
			      (const struct sockaddr *)&address,
			      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size)) < 0)
		log_debug("manager_not_told", "state=%s", state);
}

uint64_t notify_interval_ns(void)
{
	const char *text = getenv("WATCHDOG_USEC");

	/* Half of what is allowed, as sd_watchdog_enabled(3) advises. */
	return text ? strtoull(text, NULL, 10) * 1000 / 2 : 0;
}
