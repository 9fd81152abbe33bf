#include "start.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "paths.h"

/* Opening a large store takes a second or two; much more is a disk in trouble. */
#define START_TIMEOUT_S 60
#define READY_FD        3

struct files {
	char *lock, *log;
};

static void free_files(struct files *files)
{
	free(files->lock);
	free(files->log);
}

static int name_files(const char *socket, struct files *files, struct why *why)
{
	_cleanup_(freep) char *copy = strdup(socket);
	const char *dir;

	if (!copy)
		return why_set(why, -ENOMEM, "no memory");
	dir = dirname(copy);
	if (mkdir(dir, 0755) < 0 && errno != EEXIST)
		return why_set(why, -errno,
			"can't make the control socket's directory %s: %s; name another socket "
			"with "
			"--control or CACHEFS_CONTROL",
			dir, strerror(errno));
	if (asprintf(&files->lock, "%s.start", socket) < 0 ||
		asprintf(&files->log, "%s/cachefs.log", dir) < 0)
		return why_set(why, -ENOMEM, "no memory");
	return 0;
}

static int take_lock(const char *name, int *ret_fd, struct why *why)
{
	_cleanup_(closep) int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	int r;

	if (fd < 0)
		return why_set(why, -errno,
			"can't open %s: %s; run as root, or name another socket with --control or "
			"CACHEFS_CONTROL",
			name, strerror(errno));
	do {
		r = flock(fd, LOCK_EX);
	} while (r < 0 && errno == EINTR);
	if (r < 0)
		return why_set(why, -errno, "can't lock %s: %s", name, strerror(errno));
	*ret_fd = steal_fd(&fd);
	return 0;
}

/* In the child; only what is allowed between fork and exec. */
static _Noreturn void become_daemon(
	const char *const *argv, const char *program, int null, int log, int ready)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid();
	/* The descriptors are above READY_FD: the caller saw to that. */
	if (dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(log, 2) < 0 ||
		dup2(ready, READY_FD) < 0 || chdir("/") < 0)
		_exit(127);
	close_range(READY_FD + 1, UINT_MAX, 0);
	execv(program, (char *const *)argv);
	_exit(127);
}

static int open_high(const char *name, int flags)
{
	_cleanup_(closep) int fd = open(name, flags | O_CLOEXEC | O_NOFOLLOW, 0600);

	return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, READY_FD + 1);
}

static int spawn(
	const char *const *argv, const char *log_name, int ready, pid_t *ret, struct why *why)
{
	_cleanup_(closep) int null = open_high("/dev/null", O_RDWR);
	_cleanup_(closep) int log = open_high(log_name, O_WRONLY | O_CREAT | O_APPEND);
	char program[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);

	if (log < 0)
		return why_set(why, -errno, "can't open the daemon's log %s: %s", log_name,
			strerror(errno));
	if (null < 0 || n < 0)
		return why_set(why, -errno, "can't start the daemon: %s", strerror(errno));
	program[n] = '\0';
	*ret = fork();
	if (*ret == 0)
		become_daemon(argv, program, null, log, ready);
	return *ret < 0 ? why_set(why, -errno, "can't start the daemon: %s", strerror(errno)) : 0;
}

/* What the daemon says of its start: a newline, or why it failed. The number of bytes. */
static size_t read_ready(int fd, char *text, size_t size)
{
	uint64_t deadline_ns = clock_now_ns() + START_TIMEOUT_S * NS_PER_SEC;
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	size_t used = 0;

	while (used < size - 1) {
		uint64_t now_ns = clock_now_ns();
		ssize_t n;

		if (now_ns >= deadline_ns)
			break;
		if (poll(&ready, 1, (int)((deadline_ns - now_ns) / NS_PER_MS) + 1) <= 0)
			continue;
		n = read(fd, text + used, size - 1 - used);
		if (n <= 0)
			break;
		used += (size_t)n;
		if (text[0] == '\n')
			break;
	}
	text[used] = '\0';
	return used;
}

static int wait_ready(int fd, pid_t pid, const char *log_name, struct why *why)
{
	char text[1024];

	if (read_ready(fd, text, sizeof text) && text[0] == '\n')
		return 0;
	/* It has failed or will never be ready: the keeper, whose group it is, and its daemon. */
	kill(-pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (text[0])
		return why_set(why, -EIO, "the daemon can't start: %s", text);
	return why_set(why, -EIO, "the daemon did not start; its log is %s", log_name);
}

static int start(const struct client *client, const char *store, const char *size,
	const char *log_name, struct why *why)
{
	/* The daemon's working directory is another one. */
	_cleanup_(freep) char *socket = path_resolved(client->socket);
	const char *const argv[] = {"cachefs", "hold", "--exit-when-idle", "--ready-fd", "3",
		"--control", socket, "--store", store, size ? "--size" : NULL, size, NULL};
	int pipe_fds[2], r;
	pid_t pid;

	if (!socket || pipe2(pipe_fds, O_CLOEXEC) < 0)
		return why_set(why, -errno, "can't start the daemon: %s", strerror(errno));
	r = spawn(argv, log_name, pipe_fds[1], &pid, why);
	close(pipe_fds[1]);
	if (!r)
		r = wait_ready(pipe_fds[0], pid, log_name, why);
	close(pipe_fds[0]);
	return r;
}

int start_daemon(const struct client *client, const char *store, const char *size, struct why *why)
{
	_cleanup_(free_files) struct files files = {0};
	_cleanup_(closep) int lock = -1;
	int r = name_files(client->socket, &files, why);

	if (!r)
		r = take_lock(files.lock, &lock, why);
	if (r)
		return r;
	/* Whoever held the lock before may have started it. */
	r = client_call(client, "GET", "/v1/features", NULL, NULL, why);
	return client_no_daemon(r) ? start(client, store, size, files.log, why) : r;
}
