#include "control/control.h"

#include <errno.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "http.h"
#include "room.h"

#define CONNECTIONS_MAX         32u
#define METRICS_CONNECTIONS_MAX 8u
/* Of a silent connection. Longer than a command waits for an ending daemon's last breath. */
#define CONTROL_IDLE_S 120u
#define METRICS_IDLE_S 10u

bool control_enter(struct control *control)
{
	bool entered;

	lock_take(&control->lock);
	entered = !control->ending;
	if (entered)
		control->under_way++;
	lock_drop(&control->lock);
	return entered;
}

void control_leave(struct control *control)
{
	lock_take(&control->lock);
	check(control->under_way > 0);
	if (--control->under_way == 0)
		cond_broadcast(&control->quiet);
	lock_drop(&control->lock);
}

static void count_volume(void *arg, struct volume *volume)
{
	unsigned *count = arg;

	(void)volume;
	++*count;
}

bool control_end_if_idle(struct control *control)
{
	uint64_t started;
	unsigned volumes = 0;
	bool idle;

	lock_take(&control->lock);
	started = control->mounts_started;
	idle = control->mounts == 0;
	lock_drop(&control->lock);
	if (!idle)
		return false;
	volumes_each(control->config.volumes, count_volume, &volumes);
	if (volumes)
		return false;
	lock_take(&control->lock);
	/* A mount that began meanwhile may have brought a volume. */
	idle = control->mounts_started == started;
	if (idle)
		control->ending = true;
	lock_drop(&control->lock);
	return idle;
}

void control_end(struct control *control)
{
	lock_take(&control->lock);
	control->ending = true;
	while (control->under_way)
		cond_wait(&control->quiet, &control->lock);
	lock_drop(&control->lock);
}

static int listen_metrics(const char *text, int *ret_fd, struct why *why)
{
	static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV};
	_cleanup_(freep) char *host = strdup(text);
	char *port = host ? strrchr(host, ':') : NULL, *name = host;
	struct addrinfo *address;
	int r, fd, on = 1;

	if (!host)
		return why_set(why, -ENOMEM, "no memory");
	if (port)
		*port++ = '\0';
	if (name[0] == '[' && name[1] && name[strlen(name) - 1] == ']') {
		name++;
		name[strlen(name) - 1] = '\0';
	}
	/* getaddrinfo takes 99999 for 34463. */
	r = port && strlen(port) <= 5 && atoi(port) <= UINT16_MAX
		    ? getaddrinfo(*name ? name : NULL, port, &hints, &address)
		    : EAI_NONAME;
	if (r)
		return why_set(why, -EINVAL,
			"'%s' is no address for --metrics: write 127.0.0.1:9464, [::1]:9464 or "
			":9464",
			text);
	fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (fd < 0 || bind(fd, address->ai_addr, address->ai_addrlen) < 0 || listen(fd, 16) < 0)
		r = why_set(
			why, -errno, "can't listen on %s for --metrics: %s", text, strerror(errno));
	else
		*ret_fd = fd;
	freeaddrinfo(address);
	if (r && fd >= 0)
		close(fd);
	return r;
}

/* Takes fd. The threads inherit the caller's signal mask: all blocked. */
static int start_http(struct control *control, int fd, bool metrics, struct why *why)
{
	struct MHD_Daemon *http = MHD_start_daemon(
		MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL, 0,
		NULL, NULL, metrics ? http_metrics_access : http_access, control,
		MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
		metrics ? METRICS_CONNECTIONS_MAX : CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
		metrics ? METRICS_IDLE_S : CONTROL_IDLE_S, MHD_OPTION_NOTIFY_COMPLETED,
		metrics ? NULL : http_completed, NULL, MHD_OPTION_END);

	if (!http) {
		close(fd);
		return why_set(
			why, -EIO, "can't start the %s server", metrics ? "metrics" : "control");
	}
	*(metrics ? &control->metrics : &control->http) = http;
	return 0;
}

static int copy_string(const char *text, const char **ret)
{
	if (!text)
		return 0;
	*ret = strdup(text);
	return *ret ? 0 : -ENOMEM;
}

static void control_free(struct control *control)
{
	free((char *)control->config.socket);
	free((char *)control->config.metrics);
	free((char *)control->config.store);
	free((char *)control->config.size);
	cond_destroy(&control->quiet);
	lock_destroy(&control->lock);
	free(control);
}

static int control_new(const struct control_config *config, struct control **ret)
{
	struct control *control = calloc(1, sizeof *control);

	if (!control)
		return -ENOMEM;
	lock_init(&control->lock);
	cond_init(&control->quiet);
	control->started_ns = clock_now_ns();
	control->started_wall_ns = clock_wall_ns();
	control->config = *config;
	control->config.socket = control->config.metrics = NULL;
	control->config.store = control->config.size = NULL;
	if (copy_string(config->socket, &control->config.socket) ||
		copy_string(config->metrics, &control->config.metrics) ||
		copy_string(config->store, &control->config.store) ||
		copy_string(config->size, &control->config.size)) {
		control_free(control);
		return -ENOMEM;
	}
	*ret = control;
	return 0;
}

int control_start(
	const struct control_config *config, int fd, struct control **ret, struct why *why)
{
	_cleanup_(closep) int metrics_fd = -1;
	struct control *control;
	int r = control_new(config, &control);

	if (r) {
		control_unlisten(config->socket, fd);
		return why_set(why, r, "no memory");
	}
	if (config->metrics)
		r = listen_metrics(config->metrics, &metrics_fd, why);
	if (!r && metrics_fd >= 0)
		r = start_http(control, steal_fd(&metrics_fd), true, why);
	if (r) {
		control_unlisten(config->socket, fd);
		control_free(control);
		return r;
	}
	r = start_http(control, fd, false, why);
	if (r) {
		control_end(control);
		control_stop(control);
		return r;
	}
	*ret = control;
	return 0;
}

void control_stop(struct control *control)
{
	if (!control)
		return;
	check(control->ending);
	/* First the name, so that whoever finds no socket may start a daemon. */
	unlink(control->config.socket);
	if (control->http)
		MHD_stop_daemon(control->http);
	if (control->metrics)
		MHD_stop_daemon(control->metrics);
	control_free(control);
}
