#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "notify.h"
#include "private.h"

#define CHECK_NS     (10 * NS_PER_SEC)
#define START_NS     (10 * NS_PER_SEC)
#define STOP_NS      (2 * NS_PER_SEC)
#define TAKE_OVER_NS (10 * NS_PER_SEC)
#define GO_BACK_NS   (20 * NS_PER_SEC)

static void enter(struct keeper *keeper, enum upgrade_step step, uint64_t limit_ns)
{
	keeper->upgrade.step = step;
	keeper->upgrade.deadline_ns = limit_ns ? clock_now_ns() + limit_ns : 0;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Tells who asked; there is no upgrade any more. */
static void finish(struct keeper *keeper, int error, const char *sentence)
{
	struct upgrade *upgrade = &keeper->upgrade;

	if (error)
		log_error("upgrade_failed", "reason=%s", sentence);
	else
		log_info("upgrade_done", "result=%s", sentence);
	listen_answer(upgrade->client, error, sentence);
	upgrade->client = -1;
	close_fd(&upgrade->binary);
	close_fd(&upgrade->output);
	enter(keeper, UPGRADE_NONE, 0);
	notify_manager("READY=1");
}

static void __attribute__((format(printf, 2, 3)))
set_failure(struct keeper *keeper, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(keeper->upgrade.failure, sizeof keeper->upgrade.failure, format, args);
	va_end(args);
}

/* How a child ended, for people. The text lives until the next call. */
static const char *ended_how(int status)
{
	static char text[64];

	if (WIFSIGNALED(status))
		snprintf(text, sizeof text, "was killed by signal %d", WTERMSIG(status));
	else
		snprintf(text, sizeof text, "ended with status %d", WEXITSTATUS(status));
	return text;
}

static void forget_next(struct upgrade *upgrade)
{
	close_fd(&upgrade->next.channel);
	child_init(&upgrade->next);
}

void upgrade_abandon(struct keeper *keeper, const char *reason)
{
	struct upgrade *upgrade = &keeper->upgrade;

	if (upgrade->step == UPGRADE_NONE)
		return;
	if (upgrade->checker > 0)
		kill(upgrade->checker, SIGKILL);
	upgrade->checker = 0;
	child_kill(&upgrade->next, SIGKILL);
	forget_next(upgrade);
	set_failure(keeper, "no upgrade, the running version goes on: %s", reason);
	finish(keeper, -ECANCELED, upgrade->failure);
}

void upgrade_begin(struct keeper *keeper, int binary, int client)
{
	struct upgrade *upgrade = &keeper->upgrade;
	const char *refusal = NULL;
	int r;

	if (upgrade->step != UPGRADE_NONE || keeper->renewal_due)
		refusal = "another upgrade is under way";
	else if (!keeper->daemon.ready || keeper->ending)
		refusal = "the daemon is just starting or ending: try again when it is ready";
	if (refusal) {
		log_warn("upgrade_refused", "reason=%s", refusal);
		listen_answer(client, -EBUSY, refusal);
		close(binary);
		return;
	}
	upgrade->binary = binary;
	upgrade->client = client;
	upgrade->said_size = 0;
	notify_manager("RELOADING=1");
	enter(keeper, UPGRADE_CHECK, CHECK_NS);
	r = child_start_check(keeper);
	if (r)
		upgrade_abandon(keeper, strerror(-r));
}

void upgrade_by_signal(struct keeper *keeper)
{
	int binary = open(keeper->path, O_RDONLY | O_CLOEXEC);

	log_info("upgrade_asked", "binary=%s", keeper->path);
	if (binary < 0)
		log_error("upgrade_failed", "binary=%s error=%s", keeper->path, strerror(errno));
	else
		upgrade_begin(keeper, binary, -1);
}

void upgrade_read_check(struct keeper *keeper)
{
	struct upgrade *upgrade = &keeper->upgrade;
	char rest[256];
	ssize_t n;

	/* What doesn't fit is read and forgotten, so that its writer ends. */
	do {
		size_t room = sizeof upgrade->said - 1 - upgrade->said_size;

		n = read(upgrade->output, room ? upgrade->said + upgrade->said_size : rest,
			room ? room : sizeof rest);
		if (n > 0 && room)
			upgrade->said_size += (size_t)n;
	} while (n > 0);
	if (n == 0 || errno != EAGAIN)
		close_fd(&upgrade->output);
}

static void start_next(struct keeper *keeper)
{
	int r = child_start(keeper, keeper->upgrade.binary, &keeper->upgrade.next);

	if (r)
		upgrade_abandon(keeper, strerror(-r));
	else
		enter(keeper, UPGRADE_START, START_NS);
}

void upgrade_checked(struct keeper *keeper, int status)
{
	struct upgrade *upgrade = &keeper->upgrade;
	char reason[sizeof upgrade->said + 128];

	upgrade->checker = 0;
	if (upgrade->output >= 0)
		upgrade_read_check(keeper);
	close_fd(&upgrade->output);
	upgrade->said[upgrade->said_size] = '\0';
	upgrade->said[strcspn(upgrade->said, "\n")] = '\0';
	if (!status) {
		start_next(keeper);
		return;
	}
	snprintf(reason, sizeof reason, "the new one's check %s%s%s", ended_how(status),
		*upgrade->said ? ": " : "", upgrade->said);
	upgrade_abandon(keeper, reason);
}

void upgrade_next_said_hello(struct keeper *keeper)
{
	if (keeper->upgrade.step != UPGRADE_START)
		return;
	talk_stop(&keeper->daemon);
	enter(keeper, UPGRADE_STOP, STOP_NS);
}

void upgrade_next_died(struct keeper *keeper, int status)
{
	struct upgrade *upgrade = &keeper->upgrade;
	char reason[128];

	snprintf(reason, sizeof reason, "the new daemon %s", ended_how(status));
	forget_next(upgrade);
	if (upgrade->step == UPGRADE_STOP)
		set_failure(keeper, "the previous version was started again: %s", reason);
	else
		upgrade_abandon(keeper, reason);
}

static void swap_binaries(struct keeper *keeper)
{
	int old = keeper->binary;

	keeper->binary = keeper->upgrade.binary;
	keeper->upgrade.binary = old;
}

static void take_over(struct keeper *keeper)
{
	struct upgrade *upgrade = &keeper->upgrade;

	swap_binaries(keeper);
	keeper->daemon = upgrade->next;
	child_init(&upgrade->next);
	keeper->daemon.started_ns = clock_now_ns();
	enter(keeper, UPGRADE_TAKE_OVER, TAKE_OVER_NS);
	talk_begin_mounts(keeper, &keeper->daemon);
}

static void go_back(struct keeper *keeper)
{
	enter(keeper, UPGRADE_GO_BACK, GO_BACK_NS);
	keeper->backoff = (struct backoff){0};
	keeper_start_daemon(keeper);
}

bool upgrade_daemon_died(struct keeper *keeper, int status)
{
	struct upgrade *upgrade = &keeper->upgrade;

	switch (upgrade->step) {
	case UPGRADE_CHECK:
	case UPGRADE_START:
		upgrade_abandon(keeper, "the running daemon died meanwhile and is restarted");
		return false;
	case UPGRADE_STOP:
		if (upgrade->next.pid)
			take_over(keeper);
		else
			go_back(keeper);
		return true;
	case UPGRADE_TAKE_OVER:
		if (upgrade->deadline_ns)
			set_failure(keeper,
				"the previous version was started again: the new daemon %s before "
				"it was ready",
				ended_how(status));
		swap_binaries(keeper);
		go_back(keeper);
		return true;
	default:
		return false;
	}
}

void upgrade_daemon_ready(struct keeper *keeper)
{
	struct upgrade *upgrade = &keeper->upgrade;

	if (upgrade->step == UPGRADE_GO_BACK) {
		finish(keeper, -ECANCELED, upgrade->failure);
	} else if (upgrade->step == UPGRADE_TAKE_OVER) {
		enter(keeper, UPGRADE_NONE, 0);
		close_fd(&upgrade->binary);
		keeper->renewal_due = true;
	}
}

void upgrade_deadline(struct keeper *keeper)
{
	struct upgrade *upgrade = &keeper->upgrade;

	upgrade->deadline_ns = 0;
	switch (upgrade->step) {
	case UPGRADE_CHECK:
		upgrade_abandon(keeper, "the new one's check did not end within 10 s");
		break;
	case UPGRADE_START:
		upgrade_abandon(keeper, "the new daemon did not start within 10 s");
		break;
	case UPGRADE_STOP:
		log_warn("daemon_not_stopping", "pid=%d", (int)keeper->daemon.pid);
		child_kill(&keeper->daemon, SIGKILL);
		break;
	case UPGRADE_TAKE_OVER:
		set_failure(keeper,
			"the previous version was started again: the new daemon was not ready "
			"within 10 s");
		child_kill(&keeper->daemon, SIGKILL);
		break;
	case UPGRADE_GO_BACK:
		strcat(upgrade->failure, "; it is not ready yet");
		finish(keeper, -ECANCELED, upgrade->failure);
		break;
	case UPGRADE_NONE:
		break;
	}
}

/* The newest state that the new binary takes, by what its check said: "… keeper N". */
static bool can_be_keeper(const struct upgrade *upgrade)
{
	const char *word = strstr(upgrade->said, "keeper ");

	return word && strtoul(word + strlen("keeper "), NULL, 10) >= KEEPER_STATE_VERSION;
}

void upgrade_renew_keeper(struct keeper *keeper)
{
	const char *result =
		"the new version took over; the keeper stays the old one, since the new one can't "
		"continue it";

	keeper->renewal_due = false;
	if (!keeper->daemon.ready) {
		result = "the new version took over, and died right after: it is restarted";
	} else if (can_be_keeper(&keeper->upgrade)) {
		int r = resume_exec(keeper);

		log_warn("keeper_not_renewed", "error=%s", strerror(-r));
		result = "the new version took over; the keeper stays the old one: its log says "
			 "why";
	}
	finish(keeper, 0, result);
}
