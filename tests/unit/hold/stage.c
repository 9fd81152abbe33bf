#include "stage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Nothing takes this long; it ends a test that waits in vain. */
#define PATIENCE_MS 30000

static const char *actor;

void stage_set_actor(const char *path)
{
	actor = path;
}

static void copy_actor(const char *to)
{
	int in = open(actor, O_RDONLY | O_CLOEXEC);
	int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
	struct stat st;

	assert_true(in >= 0 && out >= 0);
	assert_int_equal(fstat(in, &st), 0);
	for (off_t done = 0; done < st.st_size;)
		assert_true(sendfile(out, in, &done, (size_t)(st.st_size - done)) > 0);
	close(in);
	close(out);
}

int stage_make(void **state)
{
	struct stage *stage = calloc(1, sizeof *stage);
	char device[128];

	assert_non_null(stage);
	/* A daemon whose keeper died is our child then, and can be waited for. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	strcpy(stage->dir, "/tmp/cachefs-hold-XXXXXX");
	assert_non_null(mkdtemp(stage->dir));
	snprintf(stage->socket, sizeof stage->socket, "%s/control", stage->dir);
	snprintf(stage->binary, sizeof stage->binary, "%s/actor", stage->dir);
	snprintf(stage->newer, sizeof stage->newer, "%s/newer", stage->dir);
	snprintf(device, sizeof device, "%s/device", stage->dir);
	copy_actor(stage->binary);
	copy_actor(stage->newer);
	assert_int_equal(mkfifo(device, 0600), 0);
	stage->device = open(device, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	assert_true(stage->device >= 0);
	*state = stage;
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

int stage_remove(void **state)
{
	struct stage *stage = *state;

	if (stage->keeper) {
		/* Its group: the daemon too, whatever state it is in. */
		kill(-stage->keeper, SIGKILL);
		while (waitpid(-stage->keeper, NULL, 0) > 0 || errno == EINTR)
			;
	}
	close(stage->log);
	close(stage->device);
	nftw(stage->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	free(stage);
	return 0;
}

void stage_plan(struct stage *stage, const char *plan)
{
	char path[128];
	int fd;

	snprintf(path, sizeof path, "%s/plan", stage->dir);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, plan, strlen(plan)), strlen(plan));
	close(fd);
}

void stage_begin(
	struct stage *stage, const char *plan, const char *abort_after, const char *watchdog)
{
	char log[16];
	int fds[2];

	stage_plan(stage, plan);
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	stage->log = fds[0];
	snprintf(log, sizeof log, "%d", fds[1]);
	setenv("ACTOR_DIR", stage->dir, 1);
	setenv("ACTOR_LOG", log, 1);
	stage->keeper = fork();
	assert_true(stage->keeper >= 0);
	if (!stage->keeper) {
		setpgid(0, 0);
		/* Kept through exec: a test that aborts leaves nothing behind. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fcntl(fds[1], F_SETFD, 0);
		execl(stage->binary, "cachefs", "hold", "--control", stage->socket, "--abort-after",
			abort_after, "--watchdog", watchdog, NULL);
		_exit(127);
	}
	setpgid(stage->keeper, stage->keeper);
	close(fds[1]);
}

static bool take_line(struct stage *stage)
{
	char *end = memchr(stage->buffer, '\n', stage->buffered);
	size_t size;

	if (!end)
		return false;
	size = (size_t)(end - stage->buffer);
	snprintf(stage->line, sizeof stage->line, "%.*s", (int)size, stage->buffer);
	stage->buffered -= size + 1;
	memmove(stage->buffer, end + 1, stage->buffered);
	return true;
}

static void next_line(struct stage *stage, const char *begin)
{
	struct pollfd fd = {.fd = stage->log, .events = POLLIN};
	ssize_t n;

	while (!take_line(stage)) {
		if (poll(&fd, 1, PATIENCE_MS) <= 0)
			fail_msg("nothing is said while '%s' is waited for", begin);
		n = read(stage->log, stage->buffer + stage->buffered,
			sizeof stage->buffer - stage->buffered);
		if (n <= 0)
			fail_msg("keeper and daemon ended while '%s' is waited for", begin);
		stage->buffered += (size_t)n;
	}
}

const char *stage_wait(struct stage *stage, const char *begin)
{
	do {
		next_line(stage, begin);
		if (!strncmp(stage->line, "failed", 6))
			fail_msg("the daemon %s", stage->line);
	} while (strncmp(stage->line, begin, strlen(begin)) != 0);
	return stage->line;
}

pid_t stage_wait_start(struct stage *stage)
{
	return (pid_t)strtol(stage_wait(stage, "start ") + strlen("start "), NULL, 10);
}

void stage_device_reads(struct stage *stage, const char *text)
{
	struct pollfd fd = {.fd = stage->device, .events = POLLIN};
	char got[64] = "";

	assert_int_equal(poll(&fd, 1, PATIENCE_MS), 1);
	assert_true(read(stage->device, got, strlen(text)) > 0);
	assert_string_equal(got, text);
}

void stage_device_ends(struct stage *stage)
{
	struct pollfd fd = {.fd = stage->device, .events = POLLIN};
	char rest[64];

	do {
		assert_int_equal(poll(&fd, 1, PATIENCE_MS), 1);
	} while (read(stage->device, rest, sizeof rest) > 0);
	assert_true(fd.revents & POLLHUP);
}

int stage_wait_end(struct stage *stage)
{
	int status;

	assert_int_equal(waitpid(stage->keeper, &status, 0), stage->keeper);
	stage->keeper = 0;
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}
