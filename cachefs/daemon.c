#include "daemon.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "cache/cache.h"
#include "control/control.h"
#include "fs/volume.h"
#include "origin/origin.h"

/* A daemon that was started for a mount which never came ends after this. */
#define FIRST_MOUNT_MS 60000

struct daemon {
	const struct daemon_config *config;
	int signals, wake; /* signalfd; eventfd: a volume ended or a mount was tried */
	int listener;      /* until control_start takes it */
	struct origin_engine *engine;
	struct cache *cache;
	struct volumes *volumes;
	struct control *control;
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

static int start_control(struct daemon *daemon, struct why *why)
{
	/* As a person would write it, so that a mount's store= can be compared. */
	_cleanup_(freep) char *store = realpath(daemon->config->store, NULL);
	const struct control_config config = {
		.cache = daemon->cache,
		.volumes = daemon->volumes,
		.socket = daemon->config->socket,
		.metrics = daemon->config->metrics,
		.store = store ? store : daemon->config->store,
		.size = daemon->config->size,
		.mounted = wake,
		.arg = daemon,
	};

	return control_start(&config, steal_fd(&daemon->listener), &daemon->control, why);
}

/* The socket first: it tells at once whether another daemon is there, before a store is made. */
static int start(struct daemon *daemon, struct why *why)
{
	const struct cache_config cache = {
		.store_dir = daemon->config->store,
		.capacity = daemon->config->size,
	};
	int r = take_signals(daemon, why);

	if (!r)
		r = control_listen(daemon->config->socket, &daemon->listener, why);
	if (!r)
		r = cache_new(&cache, &daemon->cache, why);
	if (r)
		return r;
	r = origin_engine_new(&daemon->engine);
	if (r)
		return why_set(why, r, "can't start the origins' threads: %s", strerror(-r));
	r = volumes_new(daemon->cache, daemon->engine, wake, daemon, &daemon->volumes, why);
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

/* Returns why it is over, for the log. */
static const char *wait_for_end(struct daemon *daemon)
{
	struct pollfd fds[] = {
		{.fd = daemon->signals, .events = POLLIN}, {.fd = daemon->wake, .events = POLLIN}};
	int timeout_ms = daemon->config->exit_when_idle ? FIRST_MOUNT_MS : -1;
	struct signalfd_siginfo info;
	eventfd_t times;

	for (;;) {
		int n = poll(fds, 2, timeout_ms);

		if (n < 0)
			continue;
		if (read(daemon->signals, &info, sizeof info) == sizeof info)
			return strsignal((int)info.ssi_signo);
		if (eventfd_read(daemon->wake, &times) == 0)
			timeout_ms = -1;
		if (daemon->config->exit_when_idle && control_end_if_idle(daemon->control))
			return "idle";
	}
}

int daemon_run(const struct daemon_config *config, struct why *why)
{
	struct daemon daemon = {.config = config, .signals = -1, .wake = -1, .listener = -1};
	int r;

	umask(077);
	raise_limits();
	r = start(&daemon, why);
	if (r) {
		tell_ready(config->ready_fd, why->text);
	} else {
		log_info("daemon_start", "version=%s store=%s control=%s", CACHEFS_VERSION,
			config->store, config->socket);
		tell_ready(config->ready_fd, "\n");
		log_info("daemon_ending", "reason=%s", wait_for_end(&daemon));
	}
	end(&daemon);
	return r;
}
