#include "hold/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "notify.h"
#include "private.h"

/* For a start on which no mount waits. */
#define START_LIMIT_NS (60 * NS_PER_SEC)
/* For the daemon that is to unmount, when we are asked to end and none is ready. */
#define END_WAIT_NS (10 * NS_PER_SEC)

static void schedule_restart(struct keeper *keeper, uint64_t delay_ms)
{
	keeper->restart_ns = clock_now_ns() + delay_ms * NS_PER_MS;
}

void keeper_start_daemon(struct keeper *keeper)
{
	int r = child_start(keeper, keeper->binary, &keeper->daemon);

	keeper->restart_ns = 0;
	if (r) {
		log_error("daemon_not_started", "error=%s", strerror(-r));
		schedule_restart(keeper, backoff_after(&keeper->backoff, 0));
		return;
	}
	log_info("daemon_started", "pid=%d restarts=%u mounts=%u", (int)keeper->daemon.pid,
		keeper->restarts, keeper->mounts.count);
}

void keeper_daemon_ready(struct keeper *keeper)
{
	struct child *daemon = &keeper->daemon;

	daemon->ready = true;
	daemon->ready_ns = daemon->heard_ns = clock_now_ns();
	keeper->down_since_ns = 0;
	if (!keeper->ever_ready) {
		keeper->ever_ready = true;
		listen_start(keeper);
		if (keeper->ready_fd >= 0)
			close(keeper->ready_fd);
		keeper->ready_fd = -1;
		notify_manager("READY=1");
	}
	upgrade_daemon_ready(keeper);
}

static void end_with(struct keeper *keeper, int status)
{
	upgrade_abandon(keeper, "the daemon was asked to end");
	keeper->over = true;
	keeper->status = status;
}

static void log_death(const struct keeper *keeper, const struct child *daemon)
{
	int status = keeper->last_status;

	if (WIFSIGNALED(status))
		log_warn("daemon_died", "pid=%d signal=%d", (int)daemon->pid, WTERMSIG(status));
	else
		log_info("daemon_ended", "pid=%d status=%d", (int)daemon->pid, WEXITSTATUS(status));
}

static void daemon_died(struct keeper *keeper, int status)
{
	struct child *daemon = &keeper->daemon;
	bool asked = WIFEXITED(status) && !WEXITSTATUS(status);
	uint64_t now_ns, delay_ms;

	/* It may have put a mount with its last breath. */
	while (talk_input(keeper, daemon))
		;
	if (daemon->channel >= 0)
		close(daemon->channel);
	keeper->last_status = status;
	log_death(keeper, daemon);
	now_ns = clock_now_ns();
	delay_ms =
		backoff_after(&keeper->backoff, daemon->ready ? now_ns - daemon->ready_ns + 1 : 0);
	child_init(daemon);
	if (!keeper->down_since_ns)
		keeper->down_since_ns = now_ns;
	/* Killed before it had unmounted: the next one is to do it. */
	if (WIFSIGNALED(status) && keeper->mounts.count && now_ns < keeper->end_by_ns)
		keeper->end_told = false;
	if (keeper->end_told) {
		end_with(keeper, asked ? 0 : 1);
	} else if (asked && keeper->upgrade.step != UPGRADE_TAKE_OVER) {
		end_with(keeper, 0);
	} else if (WIFEXITED(status) && !keeper->ever_ready) {
		/* It has said why; the next one would say the same. */
		end_with(keeper, WEXITSTATUS(status));
	} else if (!upgrade_daemon_died(keeper, status)) {
		keeper->restarts++;
		schedule_restart(keeper, delay_ms);
	}
}

static void reap(struct keeper *keeper)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == keeper->daemon.pid)
			daemon_died(keeper, status);
		else if (pid == keeper->upgrade.next.pid)
			upgrade_next_died(keeper, status);
		else if (pid == keeper->upgrade.checker)
			upgrade_checked(keeper, status);
	}
}

static void ask_end(struct keeper *keeper)
{
	if (!keeper->ending)
		keeper->end_by_ns = clock_now_ns() + END_WAIT_NS;
	keeper->ending = true;
}

static void take_signals(struct keeper *keeper)
{
	struct signalfd_siginfo info;

	while (read(keeper->signals, &info, sizeof info) == sizeof info) {
		if (info.ssi_signo == SIGCHLD)
			reap(keeper);
		else if (info.ssi_signo == SIGHUP)
			upgrade_by_signal(keeper);
		else
			ask_end(keeper);
	}
}

/* A daemon that is just handing over can't unmount: its successor will. */
static bool is_end_due(const struct keeper *keeper)
{
	enum upgrade_step step = keeper->upgrade.step;

	return keeper->ending && !keeper->end_told && step != UPGRADE_STOP &&
	       step != UPGRADE_TAKE_OVER;
}

/* Nor can one that is dead, or has not taken the mounts over yet. */
static void end_if_due(struct keeper *keeper)
{
	if (!is_end_due(keeper))
		return;
	if (!keeper->daemon.ready && keeper->mounts.count && clock_now_ns() < keeper->end_by_ns)
		return;
	notify_manager("STOPPING=1");
	keeper->end_told = true;
	upgrade_abandon(keeper, "the keeper was asked to end");
	if (keeper->daemon.pid)
		child_kill(&keeper->daemon, SIGTERM);
	else
		end_with(keeper, 0);
}

/* --- deadlines; 0: none --- */

static uint64_t abort_ns(const struct keeper *keeper)
{
	uint64_t limit_ns = keeper->config->abort_after_ms * NS_PER_MS;

	return limit_ns && keeper->down_since_ns && keeper->mounts.count
		       ? keeper->down_since_ns + limit_ns
		       : 0;
}

static uint64_t watchdog_ns(const struct keeper *keeper)
{
	const struct child *daemon = &keeper->daemon;
	uint64_t limit_ns = keeper->config->watchdog_ms * NS_PER_MS, start_ns = START_LIMIT_NS;

	if (!daemon->pid || !limit_ns)
		return 0;
	if (daemon->ready)
		return daemon->heard_ns + limit_ns;
	/* Soon enough for a second try before the connections are aborted. */
	if (abort_ns(keeper))
		start_ns = keeper->config->abort_after_ms * NS_PER_MS / 2;
	return daemon->started_ns + start_ns;
}

/* The daemon that is being started has the descriptors too. The kernel aborts a connection, so that
 * its requests fail, when the last one of its device is closed. */
static void abort_connections(struct keeper *keeper)
{
	log_error("connections_aborted",
		"mounts=%u reason=no daemon took over within the limit of --abort-after",
		keeper->mounts.count);
	child_kill(&keeper->daemon, SIGKILL);
	mounts_drop_all(&keeper->mounts);
}

static void kill_silent(struct keeper *keeper)
{
	log_error("daemon_silent", "pid=%d ready=%d: killed", (int)keeper->daemon.pid,
		keeper->daemon.ready);
	child_kill(&keeper->daemon, SIGKILL);
	keeper->daemon.heard_ns = keeper->daemon.started_ns = clock_now_ns();
}

static void tell_manager(struct keeper *keeper)
{
	notify_manager("WATCHDOG=1");
	keeper->notify_ns = clock_now_ns() + notify_interval_ns();
}

static bool due(uint64_t deadline_ns, uint64_t now_ns)
{
	return deadline_ns && now_ns >= deadline_ns;
}

static void run_timers(struct keeper *keeper)
{
	uint64_t now_ns = clock_now_ns();

	if (due(keeper->restart_ns, now_ns) && !keeper->over)
		keeper_start_daemon(keeper);
	if (due(abort_ns(keeper), now_ns))
		abort_connections(keeper);
	if (due(watchdog_ns(keeper), now_ns))
		kill_silent(keeper);
	if (due(keeper->upgrade.deadline_ns, now_ns))
		upgrade_deadline(keeper);
	if (due(keeper->notify_ns, now_ns))
		tell_manager(keeper);
}

static uint64_t next_deadline_ns(const struct keeper *keeper)
{
	const uint64_t deadlines[] = {keeper->restart_ns, abort_ns(keeper), watchdog_ns(keeper),
		keeper->upgrade.deadline_ns, keeper->notify_ns,
		is_end_due(keeper) ? keeper->end_by_ns : 0};
	uint64_t next_ns = 0;

	for (size_t i = 0; i < sizeof deadlines / sizeof deadlines[0]; i++) {
		if (deadlines[i] && (!next_ns || deadlines[i] < next_ns))
			next_ns = deadlines[i];
	}
	return next_ns;
}

/* --- the loop --- */

/* Whoever stopped us (a frozen cgroup, a paused machine) stopped the daemon too: it gets the time
 * that we did not see. */
static void forgive_pause(struct keeper *keeper, uint64_t deadline_ns)
{
	uint64_t now_ns = clock_now_ns();

	if (!deadline_ns || now_ns < deadline_ns + NS_PER_SEC)
		return;
	keeper->daemon.heard_ns += now_ns - deadline_ns;
	keeper->daemon.started_ns += now_ns - deadline_ns;
}

static int timeout_ms(uint64_t deadline_ns)
{
	uint64_t now_ns = clock_now_ns();

	if (!deadline_ns)
		return -1;
	return now_ns >= deadline_ns ? 0 : (int)((deadline_ns - now_ns) / NS_PER_MS) + 1;
}

static short wanted(const struct child *child)
{
	return child->sending ? POLLIN | POLLOUT : POLLIN;
}

static void turn(struct keeper *keeper)
{
	struct upgrade *upgrade = &keeper->upgrade;
	uint64_t deadline_ns = next_deadline_ns(keeper);
	struct pollfd fds[] = {
		{keeper->daemon.channel, wanted(&keeper->daemon), 0},
		{upgrade->next.channel, wanted(&upgrade->next), 0},
		{upgrade->output, POLLIN, 0},
		{keeper->listener, POLLIN, 0},
		{keeper->caller, POLLIN, 0},
		{keeper->signals, POLLIN, 0},
	};

	if (poll(fds, sizeof fds / sizeof fds[0], timeout_ms(deadline_ns)) < 0)
		return;
	forgive_pause(keeper, deadline_ns);
	if (fds[0].revents)
		talk_input(keeper, &keeper->daemon);
	if (fds[0].revents & POLLOUT)
		talk_output(keeper, &keeper->daemon);
	if (fds[1].revents)
		talk_input(keeper, &upgrade->next);
	if (fds[2].revents)
		upgrade_read_check(keeper);
	if (fds[3].revents)
		listen_accept(keeper);
	else if (fds[4].revents)
		listen_read(keeper);
	if (fds[5].revents)
		take_signals(keeper);
	run_timers(keeper);
	end_if_due(keeper);
	if (keeper->renewal_due)
		upgrade_renew_keeper(keeper);
}

static int block_signals(struct keeper *keeper)
{
	static const int signals[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP};
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
		sigaddset(&set, signals[i]);
	signal(SIGPIPE, SIG_IGN);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return -errno;
	keeper->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return keeper->signals < 0 ? -errno : 0;
}

/* The binary as it is now stays ours, whatever becomes of its name. */
static int find_binary(struct keeper *keeper)
{
	static const char deleted[] = " (deleted)";
	ssize_t n = readlink("/proc/self/exe", keeper->path, sizeof keeper->path - 1);
	size_t tail = sizeof deleted - 1;

	keeper->binary = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (n < 0 || keeper->binary < 0)
		return -errno;
	keeper->path[n] = '\0';
	if ((size_t)n > tail && !strcmp(keeper->path + n - tail, deleted))
		keeper->path[(size_t)n - tail] = '\0';
	return 0;
}

static int begin(struct keeper *keeper, struct why *why)
{
	int r = block_signals(keeper);

	if (!r)
		r = find_binary(keeper);
	if (r)
		return why_set(why, r, "can't start the keeper: %s", strerror(-r));
	if (keeper->config->resume_fd >= 0) {
		r = resume_load(keeper, keeper->config->resume_fd);
		if (r)
			return why_set(
				why, r, "can't continue the previous keeper: %s", strerror(-r));
		log_info("keeper_renewed", "version=%s mounts=%u", CACHEFS_VERSION,
			keeper->mounts.count);
		listen_answer(keeper->upgrade.client, 0,
			"daemon and keeper are version " CACHEFS_VERSION " now");
		keeper->upgrade.client = -1;
		notify_manager("READY=1");
		/* Whoever died meanwhile sent its signal to the one before us. */
		reap(keeper);
		return 0;
	}
	child_protect_keeper(keeper);
	log_info("keeper_start", "version=%s", CACHEFS_VERSION);
	keeper_start_daemon(keeper);
	return 0;
}

int keeper_run(const struct keeper_config *config, struct why *why)
{
	/* Too large for the stack, and there is one in a process. */
	static struct keeper keeper;
	int r;

	keeper.config = config;
	keeper.listener = keeper.caller = keeper.upgrade.binary = keeper.upgrade.client =
		keeper.upgrade.output = -1;
	keeper.ready_fd = config->ready_fd;
	child_init(&keeper.daemon);
	child_init(&keeper.upgrade.next);
	if (notify_interval_ns())
		keeper.notify_ns = clock_now_ns();
	r = begin(&keeper, why);
	if (r)
		return r;
	while (!keeper.over)
		turn(&keeper);
	listen_stop(&keeper);
	log_info("keeper_end", "status=%d", keeper.status);
	return keeper.status;
}
