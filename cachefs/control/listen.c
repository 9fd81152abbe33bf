#include "control/control.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/cleanup.h"

static int make_directory(const char *path, struct why *why)
{
	_cleanup_(freep) char *copy = strdup(path);
	const char *dir;

	if (!copy)
		return why_set(why, -ENOMEM, "no memory");
	dir = dirname(copy);
	if (mkdir(dir, 0755) < 0)
		return errno == EEXIST ? 0
				       : why_set(why, -errno,
						 "can't make the control socket's directory %s: %s",
						 dir, strerror(errno));
	/* The daemon's umask is tighter than what this directory shall have. */
	if (chmod(dir, 0755) < 0)
		return why_set(why, -errno, "can't set the mode of %s: %s", dir, strerror(errno));
	return 0;
}

/* Held while a stale socket is told from a live one and replaced, so that two daemons that start
 * at once don't remove each other's. */
static int take_lock(const char *path, int *ret_fd, struct why *why)
{
	_cleanup_(freep) char *name = NULL;
	int fd;

	if (asprintf(&name, "%s.lock", path) < 0)
		return why_set(why, -ENOMEM, "no memory");
	fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return why_set(why, -errno, "can't open %s: %s", name, strerror(errno));
	while (flock(fd, LOCK_EX) < 0) {
		if (errno != EINTR) {
			int r = why_set(why, -errno, "can't lock %s: %s", name, strerror(errno));

			close(fd);
			return r;
		}
	}
	*ret_fd = fd;
	return 0;
}

static int remove_stale(const struct sockaddr_un *address, struct why *why)
{
	_cleanup_(closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct stat st;

	if (fd < 0)
		return why_set(why, -errno, "can't make a socket: %s", strerror(errno));
	if (lstat(address->sun_path, &st) < 0)
		return errno == ENOENT ? 0
				       : why_set(why, -errno, "can't look at %s: %s",
						 address->sun_path, strerror(errno));
	if (!S_ISSOCK(st.st_mode))
		return why_set(why, -EEXIST,
			"%s exists and is no socket: remove it or choose another with --control",
			address->sun_path);
	if (!connect(fd, (const struct sockaddr *)address, sizeof *address) || errno == EAGAIN)
		return why_set(why, -EADDRINUSE,
			"another daemon listens on %s: `cachefs status` shows it; choose another "
			"socket with --control",
			address->sun_path);
	if (errno == ENOENT)
		return 0;
	if (errno != ECONNREFUSED)
		return why_set(why, -errno, "can't tell whether a daemon listens on %s: %s",
			address->sun_path, strerror(errno));
	if (unlink(address->sun_path) < 0 && errno != ENOENT)
		return why_set(why, -errno, "can't remove the stale socket %s: %s",
			address->sun_path, strerror(errno));
	return 0;
}

static int bind_socket(const struct sockaddr_un *address, int *ret_fd, struct why *why)
{
	_cleanup_(closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	/* Nobody can connect before listen(), so that the mode comes in time. */
	if (fd < 0 || bind(fd, (const struct sockaddr *)address, sizeof *address) < 0 ||
		chmod(address->sun_path, 0600) < 0 || listen(fd, 64) < 0)
		return why_set(
			why, -errno, "can't listen on %s: %s", address->sun_path, strerror(errno));
	*ret_fd = steal_fd(&fd);
	return 0;
}

int control_listen(const char *path, int *ret_fd, struct why *why)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	_cleanup_(closep) int lock = -1;
	int r;

	if (strlen(path) >= sizeof address.sun_path)
		return why_set(why, -ENAMETOOLONG,
			"the control socket's path %s has more than %zu bytes: choose a shorter "
			"one "
			"with --control",
			path, sizeof address.sun_path - 1);
	strcpy(address.sun_path, path);
	r = make_directory(path, why);
	if (!r)
		r = take_lock(path, &lock, why);
	if (!r)
		r = remove_stale(&address, why);
	return r ? r : bind_socket(&address, ret_fd, why);
}

void control_unlisten(const char *path, int fd)
{
	/* While fd listens nobody replaces the path, so it is ours. */
	unlink(path);
	close(fd);
}
