#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "private.h"

#define OOM_FILE "/proc/self/oom_score_adj"

/* What a daemon is called with. */
struct arguments {
	const char *argv[KEEPER_ARGS_MAX + 8];
	size_t count;
	char hold_fd[12], ready_fd[12];
};

void child_init(struct child *child)
{
	*child = (struct child){.channel = -1};
}

static bool write_oom(const char *score)
{
	_cleanup_(closep) int fd = open(OOM_FILE, O_WRONLY | O_CLOEXEC);

	return fd >= 0 && write(fd, score, strlen(score)) > 0;
}

void child_protect_keeper(struct keeper *keeper)
{
	_cleanup_(closep) int fd = open(OOM_FILE, O_RDONLY | O_CLOEXEC);
	char before[sizeof keeper->oom_score_adj] = "";
	ssize_t n = fd < 0 ? -1 : read(fd, before, sizeof before - 1);

	if (n > 0 && write_oom("-1000"))
		memcpy(keeper->oom_score_adj, before, sizeof before);
	else
		log_warn("keeper_killable",
			"reason=oom_score_adj can't be lowered: a kill for lack of memory can end "
			"the mounts");
}

static void add(struct arguments *arguments, const char *argument)
{
	check(arguments->count < KEEPER_ARGS_MAX + 7);
	arguments->argv[arguments->count++] = argument;
	arguments->argv[arguments->count] = NULL;
}

static void add_serve(struct arguments *arguments, const struct keeper *keeper)
{
	arguments->count = 0;
	add(arguments, "cachefs");
	add(arguments, "serve");
	for (const char *const *a = keeper->config->serve_args; *a; a++)
		add(arguments, *a);
}

/* In the child, between fork and exec: as the keeper itself was started. */
static void be_ordinary(const struct keeper *keeper)
{
	sigset_t none;

	if (*keeper->oom_score_adj && !write_oom(keeper->oom_score_adj))
		_exit(127);
	signal(SIGPIPE, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static _Noreturn void become(int binary, const struct arguments *arguments)
{
	fexecve(binary, (char *const *)arguments->argv, environ);
	_exit(127);
}

int child_start(struct keeper *keeper, int binary, struct child *child)
{
	struct arguments arguments;
	int fds[2], r;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	add_serve(&arguments, keeper);
	snprintf(arguments.hold_fd, sizeof arguments.hold_fd, "%d", fds[1]);
	add(&arguments, "--hold-fd");
	add(&arguments, arguments.hold_fd);
	if (keeper->ready_fd >= 0) {
		snprintf(arguments.ready_fd, sizeof arguments.ready_fd, "%d", keeper->ready_fd);
		add(&arguments, "--ready-fd");
		add(&arguments, arguments.ready_fd);
	}
	pid = fork();
	r = -errno;
	if (pid == 0) {
		be_ordinary(keeper);
		fcntl(fds[1], F_SETFD, 0);
		if (keeper->ready_fd >= 0)
			fcntl(keeper->ready_fd, F_SETFD, 0);
		become(binary, &arguments);
	}
	close(fds[1]);
	if (pid < 0) {
		close(fds[0]);
		return r;
	}
	child_init(child);
	child->pid = pid;
	child->channel = fds[0];
	child->started_ns = child->heard_ns = clock_now_ns();
	return 0;
}

/* In the child, between fork and exec: the checker gets the session tables too. */
static void hand_tables(const struct keeper *keeper)
{
	char list[HOLD_MOUNTS_MAX * 12] = "";
	size_t used = 0;

	for (size_t i = 0; i < HOLD_MOUNTS_MAX; i++) {
		const struct kept_mount *mount = &keeper->mounts.slots[i];

		if (!mount->used)
			continue;
		if (fcntl(mount->table, F_SETFD, 0) < 0)
			_exit(127);
		used += (size_t)snprintf(
			list + used, sizeof list - used, "%s%d", used ? "," : "", mount->table);
	}
	if (setenv(KEEPER_TABLES, list, 1) < 0)
		_exit(127);
}

int child_start_check(struct keeper *keeper)
{
	struct upgrade *upgrade = &keeper->upgrade;
	struct arguments arguments;
	int fds[2], r;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	add_serve(&arguments, keeper);
	add(&arguments, "--check");
	pid = fork();
	r = -errno;
	if (pid == 0) {
		be_ordinary(keeper);
		if (dup2(fds[1], STDOUT_FILENO) < 0 || dup2(fds[1], STDERR_FILENO) < 0)
			_exit(127);
		hand_tables(keeper);
		become(upgrade->binary, &arguments);
	}
	close(fds[1]);
	if (pid < 0) {
		close(fds[0]);
		return r;
	}
	fcntl(fds[0], F_SETFL, O_NONBLOCK);
	upgrade->checker = pid;
	upgrade->output = fds[0];
	return 0;
}

void child_kill(const struct child *child, int signal)
{
	if (child->pid > 0)
		kill(child->pid, signal);
}
