#include "connect.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"

#define PAUSE_NS (5 * NS_PER_MS)

static int fill_address(const char *path, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof ret->sun_path)
		return -ENAMETOOLONG;
	strcpy(ret->sun_path, path);
	return 0;
}

/* -EAGAIN: the queue of those who wait to be accepted is full (unix(7)). */
static int try_connect(const struct sockaddr_un *address, int *ret_fd)
{
	_cleanup_(closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0 || connect(fd, (const struct sockaddr *)address, sizeof *address) < 0)
		return -errno;
	*ret_fd = steal_fd(&fd);
	return 0;
}

static int connect_within(const char *path, int wait_ms, int *ret_fd)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	uint64_t deadline_ns = clock_now_ns() + (uint64_t)wait_ms * NS_PER_MS;
	struct sockaddr_un address;
	int r = fill_address(path, &address);

	while (!r && (r = try_connect(&address, ret_fd)) == -EAGAIN &&
		clock_now_ns() < deadline_ns) {
		nanosleep(&pause, NULL);
		r = 0;
	}
	return r;
}

int connect_control(const char *path, int wait_ms, int *ret_fd, struct why *why)
{
	int r = connect_within(path, wait_ms, ret_fd);

	switch (r) {
	case 0:
		return 0;
	case -ENOENT:
	case -ECONNREFUSED:
		return why_set(why, r,
			"no daemon listens on %s: `cachefs mount` starts one, or run `cachefs "
			"serve`; another socket is named by --control or CACHEFS_CONTROL",
			path);
	case -EAGAIN:
		return why_set(why, -ETIMEDOUT,
			"the daemon on %s takes no more connections: too many commands wait for "
			"it, "
			"or it hangs; `cachefs umount --force` detaches a mount that hangs",
			path);
	case -EACCES:
	case -EPERM:
		return why_set(why, -EACCES,
			"the control socket %s is not yours: run the command as the daemon's user "
			"(root)",
			path);
	default:
		return why_set(why, r, "can't connect to %s: %s", path, strerror(-r));
	}
}
