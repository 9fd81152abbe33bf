#include "script.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/lock.h"
#include "base/work.h"

#define STEPS_MAX    64
#define REQUESTS_MAX 64
#define HEAD_MAX     16384

struct script {
	pthread_t thread;
	int listener;
	unsigned port;
	struct script_step steps[STEPS_MAX];
	bool used[STEPS_MAX];
	size_t n_steps;
	struct lock lock;
	char *heads[REQUESTS_MAX]; /* lock */
	size_t n_heads;            /* lock */
};

/* Where the request ends by what is known of it. */
static size_t end_of_request(const char *text)
{
	const char *blank = strstr(text, "\r\n\r\n"), *length;

	if (!blank)
		return SIZE_MAX;
	length = strcasestr(text, "\r\nContent-Length: ");
	return (size_t)(blank + 4 - text) +
	       (length && length < blank ? strtoul(length + 18, NULL, 10) : 0);
}

static char *read_request(int fd)
{
	char *head = calloc(1, HEAD_MAX);
	size_t used = 0;

	check(head);
	while (used + 1 < HEAD_MAX && used < end_of_request(head)) {
		ssize_t n = recv(fd, head + used, HEAD_MAX - 1 - used, 0);

		if (n <= 0)
			break;
		used += (size_t)n;
	}
	return head;
}

static void send_all(int fd, const char *bytes, size_t n)
{
	while (n) {
		ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);

		if (sent <= 0)
			return;
		bytes += sent;
		n -= (size_t)sent;
	}
}

static const struct script_step *find_step(struct script *script, const char *head)
{
	static const struct script_step unexpected = {
		.answer = "HTTP/1.1 599 Unexpected\r\nContent-Length: 0\r\n\r\n"};

	for (size_t i = 0; i < script->n_steps; i++) {
		const struct script_step *step = &script->steps[i];

		if (script->used[i] || !strstr(head, step->match))
			continue;
		script->used[i] = !step->again;
		return step;
	}
	return &unexpected;
}

/* The client is told to close, since only one connection is served at a time. */
static void answer(int fd, const struct script_step *step)
{
	static const char zeros[4096], closing[] = "\r\nConnection: close";
	size_t line = strcspn(step->answer, "\r");
	size_t n = step->cut ? step->cut : strlen(step->answer);

	send_all(fd, step->answer, line);
	send_all(fd, closing, strlen(closing));
	send_all(fd, step->answer + line, n - line);
	for (size_t left = step->cut ? 0 : step->zeros; left;) {
		size_t some = left < sizeof zeros ? left : sizeof zeros;

		send_all(fd, zeros, some);
		left -= some;
	}
	shutdown(fd, SHUT_WR);
}

static void serve(struct script *script, int fd)
{
	char *head = read_request(fd), rest[256];
	const struct script_step *step;

	if (!*head) {
		free(head);
		return;
	}
	lock_take(&script->lock);
	check(script->n_heads < REQUESTS_MAX);
	script->heads[script->n_heads++] = head;
	lock_drop(&script->lock);
	step = find_step(script, head);
	if (!step->answer)
		return;
	if (!step->silent)
		answer(fd, step);
	/* The client closes first, so that nothing is lost. */
	while (recv(fd, rest, sizeof rest, 0) > 0)
		;
}

static void *run(void *arg)
{
	struct script *script = arg;

	for (;;) {
		int fd = accept(script->listener, NULL, NULL);

		if (fd < 0)
			return NULL;
		serve(script, fd);
		close(fd);
	}
}

struct script *script_start(const struct script_step *steps, size_t n)
{
	struct script *script = calloc(1, sizeof *script);
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof address;

	check(script && n <= STEPS_MAX);
	memcpy(script->steps, steps, n * sizeof *steps);
	script->n_steps = n;
	lock_init(&script->lock);
	script->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	check(script->listener >= 0);
	check(!bind(script->listener, (struct sockaddr *)&address, size));
	check(!listen(script->listener, 64));
	check(!getsockname(script->listener, (struct sockaddr *)&address, &size));
	script->port = ntohs(address.sin_port);
	check(!thread_start(&script->thread, "script", run, script));
	return script;
}

unsigned script_port(const struct script *script)
{
	return script->port;
}

const char *script_request(struct script *script, size_t i)
{
	const char *head;

	lock_take(&script->lock);
	head = i < script->n_heads ? script->heads[i] : "";
	lock_drop(&script->lock);
	return head;
}

size_t script_requests(struct script *script)
{
	size_t n;

	lock_take(&script->lock);
	n = script->n_heads;
	lock_drop(&script->lock);
	return n;
}

void script_stop(struct script *script)
{
	shutdown(script->listener, SHUT_RDWR);
	pthread_join(script->thread, NULL);
	close(script->listener);
	for (size_t i = 0; i < script->n_heads; i++)
		free(script->heads[i]);
	lock_destroy(&script->lock);
	free(script);
}
