/*
 * GETs that fall behind: against a server that answers many at once, and of "/slow/…" and
 * "/silent/…" the first request badly.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/work.h"

#include "wait.h"

#define SIZE        (1u << 20)
#define CONNECTIONS 64

struct server {
	pthread_t thread, threads[CONNECTIONS];
	int listener;
	_Atomic int fds[CONNECTIONS];
	unsigned n;
	unsigned port;
	_Atomic unsigned slow, silent; /* requests of each kind */
	_Atomic bool stopping;
};

struct connection {
	struct server *server;
	int fd;
};

static uint8_t byte_at(uint64_t offset)
{
	return (uint8_t)(offset * 31 + (offset >> 10));
}

static bool send_all(int fd, const void *bytes, size_t n)
{
	const char *at = bytes;

	while (n) {
		ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);

		if (sent <= 0)
			return false;
		at += sent;
		n -= (size_t)sent;
	}
	return true;
}

static bool send_body(struct server *server, int fd, uint64_t first, uint64_t end, const char *head)
{
	static _Thread_local uint8_t bytes[SIZE];
	bool slow = strstr(head, "/slow/") && !atomic_fetch_add(&server->slow, 1);
	bool silent = strstr(head, "/silent/") && !atomic_fetch_add(&server->silent, 1);
	uint64_t at = first, stop = slow || silent ? first + 1000 : end;

	for (uint64_t i = first; i < end; i++)
		bytes[i - first] = byte_at(i);
	if (!send_all(fd, bytes, stop - first))
		return false;
	/* Ten bytes now and then; or none. */
	for (at = stop; at < end && !atomic_load(&server->stopping);) {
		struct timespec pause = {.tv_nsec = 10000000};
		char gone;

		nanosleep(&pause, NULL);
		if (!recv(fd, &gone, 1, MSG_DONTWAIT))
			return false;
		if (silent)
			continue;
		if (!send_all(fd, bytes + (at - first), end - at < 10 ? end - at : 10))
			return false;
		at += end - at < 10 ? end - at : 10;
	}
	return at == end;
}

static bool serve_one(struct server *server, int fd)
{
	char head[4096], answer[256];
	unsigned long long first, last;
	const char *range;
	size_t n = 0;

	do {
		ssize_t got = recv(fd, head + n, sizeof head - 1 - n, 0);

		if (got <= 0)
			return false;
		n += (size_t)got;
		head[n] = '\0';
	} while (!strstr(head, "\r\n\r\n"));
	range = strstr(head, "Range: bytes=");
	check(range && sscanf(range, "Range: bytes=%llu-%llu", &first, &last) == 2);
	snprintf(answer, sizeof answer,
		"HTTP/1.1 206 P\r\nETag: \"v\"\r\nContent-Length: %llu\r\n"
		"Content-Range: bytes %llu-%llu/%u\r\n\r\n",
		last + 1 - first, first, last, SIZE);
	return send_all(fd, answer, strlen(answer)) && send_body(server, fd, first, last + 1, head);
}

static void *serve(void *arg)
{
	struct connection *connection = arg;

	while (serve_one(connection->server, connection->fd))
		;
	shutdown(connection->fd, SHUT_RDWR);
	free(connection);
	return NULL;
}

static void *run(void *arg)
{
	struct server *server = arg;

	for (;;) {
		struct connection *connection;
		int fd = accept(server->listener, NULL, NULL);

		if (fd < 0)
			return NULL;
		connection = malloc(sizeof *connection);
		check(connection && server->n < CONNECTIONS);
		*connection = (struct connection){server, fd};
		server->fds[server->n] = fd;
		check(!thread_start(&server->threads[server->n++], "serve", serve, connection));
	}
}

static struct server *server_start(void)
{
	struct server *server = calloc(1, sizeof *server);
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof address;

	check(server);
	server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	check(!bind(server->listener, (struct sockaddr *)&address, size));
	check(!listen(server->listener, 64));
	check(!getsockname(server->listener, (struct sockaddr *)&address, &size));
	server->port = ntohs(address.sin_port);
	check(!thread_start(&server->thread, "server", run, server));
	return server;
}

static void server_stop(struct server *server)
{
	atomic_store(&server->stopping, true);
	shutdown(server->listener, SHUT_RDWR);
	pthread_join(server->thread, NULL);
	close(server->listener);
	for (unsigned i = 0; i < server->n; i++) {
		shutdown(server->fds[i], SHUT_RDWR);
		pthread_join(server->threads[i], NULL);
		close(server->fds[i]);
	}
	free(server);
}

struct fixture {
	struct server *server;
	struct origin_engine *engine;
	struct origin *origin;
	struct wait_get *slow, *other;
};

static void get_init(struct wait_get *wait, struct origin *origin, const char *path)
{
	wait->get = (struct origin_get){.origin = origin,
		.path = path,
		.length = SIZE,
		.size_bytes = SIZE,
		.version = {.text = "\"v\"", .strong = true}};
}

static void expect_right(const struct wait_get *wait)
{
	assert_int_equal(wait->size, SIZE);
	for (uint64_t i = 0; i < SIZE; i++) {
		if ((uint8_t)wait->bytes[i] != byte_at(i))
			fail_msg("byte %llu is wrong", (unsigned long long)i);
	}
}

/* So many parts at their usual speed. */
static void others(struct fixture *fixture, int n)
{
	for (int i = 0; i < n; i++) {
		get_init(fixture->other, fixture->origin, "fast/a");
		assert_int_equal(wait_get(fixture->other), 0);
		expect_right(fixture->other);
	}
}

static int setup(void **state)
{
	struct fixture *fixture = calloc(1, sizeof *fixture);
	struct origin_config config = {.timeout_ms = 60000};
	char source[64];

	fixture->server = server_start();
	snprintf(source, sizeof source, "http://127.0.0.1:%u/", fixture->server->port);
	config.source = source;
	check(!origin_engine_new(&fixture->engine));
	check(!origin_open(fixture->engine, &config, &fixture->origin, NULL));
	fixture->slow = calloc(1, sizeof *fixture->slow);
	fixture->other = calloc(1, sizeof *fixture->other);
	*state = fixture;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fixture = *state;

	origin_unref(fixture->origin);
	origin_engine_free(fixture->engine);
	server_stop(fixture->server);
	free(fixture->slow);
	free(fixture->other);
	free(fixture);
	return 0;
}

static void one_that_trickles_is_hedged(void **state)
{
	struct fixture *fixture = *state;
	struct origin_stats stats;

	others(fixture, 40);
	get_init(fixture->slow, fixture->origin, "slow/a");
	assert_int_equal(wait_get(fixture->slow), 0);
	expect_right(fixture->slow);
	origin_stats(fixture->origin, &stats);
	assert_int_equal(atomic_load(&fixture->server->slow), 2);
	assert_int_equal(stats.hedges, 1);
	assert_int_equal(stats.moves, 0);
	assert_int_equal(stats.retries, 0);
	assert_int_equal(stats.in_flight, 0);
	assert_in_range(stats.hedge_bytes, 0, SIZE);
}

/* Too little was read for a second request of a whole part. */
static void no_hedge_beyond_the_budget(void **state)
{
	struct fixture *fixture = *state;
	struct origin_stats stats;

	others(fixture, 17);
	get_init(fixture->slow, fixture->origin, "slow/a");
	wait_get_start(fixture->slow);
	for (int i = 0; i < 20; i++) {
		struct timespec pause = {.tv_nsec = 100000000};

		nanosleep(&pause, NULL);
	}
	origin_get_cancel(&fixture->slow->get);
	assert_int_equal(wait_get_done(fixture->slow), -ECANCELED);
	origin_stats(fixture->origin, &stats);
	assert_int_equal(stats.hedges, 0);
	assert_int_equal(atomic_load(&fixture->server->slow), 1);
}

static void both_can_be_cancelled(void **state)
{
	struct fixture *fixture = *state;
	struct origin_stats stats;

	others(fixture, 40);
	get_init(fixture->slow, fixture->origin, "slow/a");
	/* The caller stops taking bytes: the hedge must not get past that either. */
	fixture->slow->pause_at = 100000;
	wait_get_start(fixture->slow);
	while (sem_wait(&fixture->slow->paused) < 0)
		;
	origin_stats(fixture->origin, &stats);
	assert_int_equal(stats.hedges, 1);
	assert_int_equal(fixture->slow->size, 100000);
	origin_get_cancel(&fixture->slow->get);
	assert_int_equal(wait_get_done(fixture->slow), -ECANCELED);
	origin_stats(fixture->origin, &stats);
	assert_int_equal(stats.in_flight, 0);
}

static void a_paused_hedge_goes_on(void **state)
{
	struct fixture *fixture = *state;
	struct origin_stats stats;

	others(fixture, 40);
	get_init(fixture->slow, fixture->origin, "slow/a");
	fixture->slow->pause_at = 100000;
	wait_get_start(fixture->slow);
	while (sem_wait(&fixture->slow->paused) < 0)
		;
	origin_get_resume(&fixture->slow->get);
	assert_int_equal(wait_get_done(fixture->slow), 0);
	expect_right(fixture->slow);
	origin_stats(fixture->origin, &stats);
	assert_int_equal(stats.hedges, 1);
}

static void a_silent_one_is_moved_while_others_go_on(void **state)
{
	struct fixture *fixture = *state;
	struct origin_stats stats;

	others(fixture, 20);
	get_init(fixture->slow, fixture->origin, "silent/a");
	wait_get_start(fixture->slow);
	do {
		others(fixture, 1);
		origin_stats(fixture->origin, &stats);
	} while (!stats.moves && !stats.hedges);
	assert_int_equal(wait_get_done(fixture->slow), 0);
	expect_right(fixture->slow);
	assert_int_equal(atomic_load(&fixture->server->silent), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(one_that_trickles_is_hedged, setup, teardown),
		cmocka_unit_test_setup_teardown(no_hedge_beyond_the_budget, setup, teardown),
		cmocka_unit_test_setup_teardown(both_can_be_cancelled, setup, teardown),
		cmocka_unit_test_setup_teardown(a_paused_hedge_goes_on, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_silent_one_is_moved_while_others_go_on, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
