#include "daemon.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "cache/cache.h"
#include "control/control.h"
#include "fs/volume.h"
#include "hold/client.h"
#include "origin/origin.h"

/* A killed predecessor's store lock is free soon after it is dead. */
#define LOCK_WAIT_MS 10000
#define BEAT_NS      NS_PER_SEC

/* A daemon that was started for a mount which never came ends after this. */
#define FIRST_MOUNT_NS (60 * NS_PER_SEC)

struct daemon {
	const struct daemon_config *config;
	int signals, wake; /* signalfd; eventfd: a volume ended or a mount was tried */
	int listener;      /* until control_start takes it */
	struct origin_engine *engine;
	struct cache *cache;
	struct volumes *volumes;
	struct control *control;
	struct hold *hold; /* NULL: no keeper */
	struct hold_mounts inherited;
	struct hold_keeper keeper;
};

/* Callback of volumes and control: any thread. */
static void wake(void *arg)
{
	struct daemon *daemon = arg;

	/* It fails only when the counter is full: then the main thread is woken already. */
	if (eventfd_write(daemon->wake, 1) < 0)
		return;
}

/* Threads inherit the mask, so that these signals reach the signalfd only. A broken lease's SIGIO
 * and a peer that hung up are told by return values. */
static int take_signals(struct daemon *daemon, struct why *why)
{
	static const int ignored[] = {SIGPIPE, SIGIO, SIGHUP};
	sigset_t ends;

	for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++)
		signal(ignored[i], SIG_IGN);
	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	daemon->signals = signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
	daemon->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (daemon->signals < 0 || daemon->wake < 0)
		return why_set(why, -errno, "can't wait for signals: %s", strerror(errno));
	return 0;
}

static void raise_limits(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return;
	files.rlim_cur = files.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &files) < 0)
		log_warn("limit_not_raised", "limit=nofile error=%s", strerror(errno));
}

static void describe_exit(int status, char *text, size_t size)
{
	if (!status)
		text[0] = '\0';
	else if (WIFSIGNALED(status))
		snprintf(text, size, "signal %d", WTERMSIG(status));
	else if (WEXITSTATUS(status) == HOLD_EXIT_HANDED_OVER)
		snprintf(text, size, "hand-over");
	else
		snprintf(text, size, "status %d", WEXITSTATUS(status));
}

static bool keeper_lives(void *arg)
{
	struct daemon *daemon = arg;

	return daemon->hold && !hold_is_gone(daemon->hold);
}

static int start_control(struct daemon *daemon, struct why *why)
{
	/* As a person would write it, so that a mount's store= can be compared. */
	_cleanup_(freep) char *store = realpath(daemon->config->store, NULL);
	struct control_config config = {
		.cache = daemon->cache,
		.volumes = daemon->volumes,
		.socket = daemon->config->socket,
		.metrics = daemon->config->metrics,
		.store = store ? store : daemon->config->store,
		.size = daemon->config->size,
		.keeper = {.pid = daemon->keeper.pid, .restarts = daemon->keeper.restarts},
		.keeper_lives = keeper_lives,
		.mounted = wake,
		.arg = daemon,
	};

	describe_exit(daemon->keeper.last_status, config.keeper.last_exit,
		sizeof config.keeper.last_exit);
	return control_start(&config, steal_fd(&daemon->listener), &daemon->control, why);
}

/* --- the keeper --- */

/* In an upgrade this returns when the predecessor has gone. */
static int meet_keeper(struct daemon *daemon, struct why *why)
{
	int r;

	if (daemon->config->hold_fd < 0)
		return 0;
	r = hold_open(daemon->config->hold_fd, &daemon->hold, why);
	return r ? r : hold_take(daemon->hold, &daemon->inherited, &daemon->keeper, why);
}

/* A dead keeper takes nothing away but the next hand-over. */
static int keep(void *arg, uint64_t id, const char *description, int device, int table)
{
	struct daemon *daemon = arg;
	int r = hold_put(daemon->hold, id, description, strlen(description), device, table);

	if (r != -EPIPE)
		return r;
	log_warn("keeper_dead", "volume=%llu: it ends with this daemon", (unsigned long long)id);
	return 0;
}

static void let_go(void *arg, uint64_t id)
{
	struct daemon *daemon = arg;

	hold_drop(daemon->hold, id);
}

/* In an upgrade the previous version can go on with what this one can't. After a crash there is
 * nobody else: the volume is given up, and the others live. */
static int resume_one(struct daemon *daemon, struct hold_mount *mount, struct why *why)
{
	bool handed_over = WIFEXITED(daemon->keeper.last_status) &&
			   WEXITSTATUS(daemon->keeper.last_status) == HOLD_EXIT_HANDED_OVER;
	int r = volumes_resume(daemon->volumes, mount->id, mount->description,
		steal_fd(&mount->device), steal_fd(&mount->table), why);

	if (!r || handed_over)
		return r;
	log_error("volume_given_up", "volume=%llu reason=%s", (unsigned long long)mount->id,
		why->text);
	hold_drop(daemon->hold, mount->id);
	return 0;
}

static int resume(struct daemon *daemon, struct why *why)
{
	const struct volumes_keeper keeper = {.put = keep, .drop = let_go, .arg = daemon};
	int r = 0;

	if (!daemon->hold)
		return 0;
	volumes_set_keeper(daemon->volumes, &keeper);
	for (size_t i = 0; !r && i < daemon->inherited.count; i++)
		r = resume_one(daemon, &daemon->inherited.mounts[i], why);
	hold_mounts_free(&daemon->inherited);
	return r;
}

/* The socket first: it tells at once whether another daemon is there, before a store is made. With
 * a keeper the store first: a predecessor's socket is free when its store is. */
static int take_places(struct daemon *daemon, struct why *why)
{
	const struct cache_config cache = {
		.store_dir = daemon->config->store,
		.capacity = daemon->config->size,
		.lock_wait_ms = daemon->hold ? LOCK_WAIT_MS : 0,
	};
	int r = 0;

	if (!daemon->hold)
		r = control_listen(daemon->config->socket, &daemon->listener, why);
	if (!r)
		r = cache_new(&cache, &daemon->cache, why);
	if (!r && daemon->hold)
		r = control_listen(daemon->config->socket, &daemon->listener, why);
	return r;
}

static int start(struct daemon *daemon, struct why *why)
{
	int r = take_signals(daemon, why);

	if (!r)
		r = meet_keeper(daemon, why);
	if (!r)
		r = take_places(daemon, why);
	if (r)
		return r;
	r = origin_engine_new(&daemon->engine);
	if (r)
		return why_set(why, r, "can't start the origins' threads: %s", strerror(-r));
	r = volumes_new(daemon->cache, daemon->engine, wake, daemon, &daemon->volumes, why);
	if (!r)
		r = resume(daemon, why);
	return r ? r : start_control(daemon, why);
}

/* Each step's users are gone before it: requests, volumes, fetches. The control socket goes last,
 * so that whoever waits for our end finds the store free. */
static void end(struct daemon *daemon)
{
	if (daemon->control)
		control_end(daemon->control);
	if (daemon->volumes)
		volumes_free(daemon->volumes);
	cache_free(daemon->cache);
	origin_engine_free(daemon->engine);
	control_stop(daemon->control);
	if (daemon->listener >= 0)
		control_unlisten(daemon->config->socket, daemon->listener);
	hold_mounts_free(&daemon->inherited);
	hold_close(daemon->hold);
	if (daemon->signals >= 0)
		close(daemon->signals);
	if (daemon->wake >= 0)
		close(daemon->wake);
}

static void tell_ready(int fd, const char *text)
{
	if (fd < 0)
		return;
	/* Who doesn't read it any more has given up. */
	if (write(fd, text, strlen(text)) < 0)
		log_debug("ready_unread", "error=%s", strerror(errno));
	close(fd);
}

static int milliseconds_until(uint64_t deadline_ns)
{
	uint64_t now_ns = clock_now_ns();

	if (!deadline_ns)
		return -1;
	return now_ns >= deadline_ns ? 0 : (int)((deadline_ns - now_ns) / NS_PER_MS) + 1;
}

static uint64_t earlier(uint64_t a_ns, uint64_t b_ns)
{
	return !a_ns || (b_ns && b_ns < a_ns) ? b_ns : a_ns;
}

static bool due(uint64_t deadline_ns)
{
	return deadline_ns && clock_now_ns() >= deadline_ns;
}

/* Returns why it is over, for the log. */
static const char *wait_for_end(struct daemon *daemon, bool *ret_handed_over)
{
	struct pollfd fds[] = {{.fd = daemon->signals, .events = POLLIN},
		{.fd = daemon->wake, .events = POLLIN},
		{.fd = daemon->hold ? hold_stop_fd(daemon->hold) : -1, .events = POLLIN}};
	uint64_t idle_ns = daemon->config->exit_when_idle ? clock_now_ns() + FIRST_MOUNT_NS : 0;
	uint64_t beat_ns = daemon->hold ? clock_now_ns() : 0;
	struct signalfd_siginfo info;
	eventfd_t times;

	for (;;) {
		bool look = false;

		if (poll(fds, 3, milliseconds_until(earlier(idle_ns, beat_ns))) < 0)
			continue;
		if (read(daemon->signals, &info, sizeof info) == sizeof info)
			return strsignal((int)info.ssi_signo);
		if (fds[2].revents) {
			*ret_handed_over = true;
			return "hand-over";
		}
		if (due(beat_ns)) {
			hold_beat(daemon->hold);
			beat_ns = clock_now_ns() + BEAT_NS;
		}
		if (eventfd_read(daemon->wake, &times) == 0 || due(idle_ns)) {
			idle_ns = 0;
			look = daemon->config->exit_when_idle;
		}
		if (look && control_end_if_idle(daemon->control))
			return "idle";
	}
}

static int serve(struct daemon *daemon)
{
	bool handed_over = false;
	const char *reason;

	log_info("daemon_start", "version=%s store=%s control=%s", CACHEFS_VERSION,
		daemon->config->store, daemon->config->socket);
	tell_ready(daemon->config->ready_fd, "\n");
	if (daemon->hold)
		hold_ready(daemon->hold);
	reason = wait_for_end(daemon, &handed_over);
	log_info("daemon_ending", "reason=%s", reason);
	return handed_over ? DAEMON_HANDED_OVER : 0;
}

int daemon_run(const struct daemon_config *config, struct why *why)
{
	struct daemon daemon = {.config = config, .signals = -1, .wake = -1, .listener = -1};
	int r;

	umask(077);
	raise_limits();
	r = start(&daemon, why);
	if (r)
		tell_ready(config->ready_fd, why->text);
	else
		r = serve(&daemon);
	/* What was taken over before something failed is another daemon's to take over. */
	if (r && daemon.volumes && daemon.hold)
		volumes_stop(daemon.volumes);
	end(&daemon);
	return r;
}
