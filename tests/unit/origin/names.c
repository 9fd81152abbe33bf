/*
 * Host names that don't resolve, and name servers that are silent: the program's own getaddrinfo
 * takes the place of libc's, in libcurl too.
 */
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"

#include "script.h"
#include "wait.h"

#define OK                                                                                         \
	"HTTP/1.1 206 P\r\nETag: \"v\"\r\nContent-Length: 4\r\nContent-Range: bytes "              \
	"0-3/4\r\n\r\nabcd"

/* The names here are looked up only by what is under test. */
static _Atomic bool missing, silent;
static _Atomic unsigned lookups;
static sem_t asked, answer, answered;

/* The header's names of its parameters are libc's own. */
/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
int getaddrinfo(const char *restrict name, const char *restrict service,
	const struct addrinfo *restrict hints, struct addrinfo **restrict ret)
{
	int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = NULL;
	int r;

	*(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
	check(real);
	if (!name || strcmp(name, "origin.test") != 0)
		return real(name, service, hints, ret);
	atomic_fetch_add(&lookups, 1);
	if (atomic_load(&missing))
		return EAI_NONAME;
	if (!atomic_load(&silent))
		return real("127.0.0.1", service, hints, ret);
	sem_post(&asked);
	while (sem_wait(&answer) < 0)
		;
	r = real("127.0.0.1", service, hints, ret);
	sem_post(&answered);
	return r;
}

struct fixture {
	struct origin_engine *engine;
	struct script *script;
	struct origin *origin, *other; /* by name, by address */
	struct wait_get *wait, *waits;
};

static struct origin *open_origin(struct fixture *fixture, const char *host, uint64_t timeout_ms)
{
	char source[64];
	struct origin_config config = {.source = source, .timeout_ms = timeout_ms};
	struct origin *origin;

	snprintf(source, sizeof source, "http://%s:%u/", host, script_port(fixture->script));
	check(!origin_open(fixture->engine, &config, &origin, NULL));
	return origin;
}

static void get_init(struct wait_get *wait, struct origin *origin)
{
	wait->get = (struct origin_get){.origin = origin,
		.path = "f",
		.length = 4,
		.size_bytes = 4,
		.version = {.text = "\"v\"", .strong = true}};
}

static int setup(void **state)
{
	static const struct script_step steps[] = {{"GET", OK, .again = 1}};
	struct fixture *fixture = calloc(1, sizeof *fixture);

	check(!sem_init(&asked, 0, 0) && !sem_init(&answer, 0, 0) && !sem_init(&answered, 0, 0));
	atomic_store(&missing, false);
	atomic_store(&silent, false);
	atomic_store(&lookups, 0);
	fixture->script = script_start(steps, 1);
	check(!origin_engine_new(&fixture->engine));
	fixture->origin = open_origin(fixture, "origin.test", 1000);
	fixture->other = open_origin(fixture, "127.0.0.1", 60000);
	fixture->wait = calloc(1, sizeof *fixture->wait);
	fixture->waits = calloc(4, sizeof *fixture->waits);
	get_init(fixture->wait, fixture->origin);
	*state = fixture;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fixture = *state;

	origin_unref(fixture->origin);
	origin_unref(fixture->other);
	origin_engine_free(fixture->engine);
	script_stop(fixture->script);
	free(fixture->wait);
	free(fixture->waits);
	free(fixture);
	return 0;
}

/* As many at once as use every loop. */
static void the_other_is_read(struct fixture *fixture)
{
	for (int i = 0; i < 4; i++) {
		get_init(&fixture->waits[i], fixture->other);
		wait_get_start(&fixture->waits[i]);
	}
	for (int i = 0; i < 4; i++)
		assert_int_equal(wait_get_done(&fixture->waits[i]), 0);
}

static void a_name_that_does_not_resolve(void **state)
{
	struct fixture *fixture = *state;
	struct origin_stats stats;

	atomic_store(&missing, true);
	assert_int_equal(wait_get(fixture->wait), -EIO);
	assert_int_equal(script_requests(fixture->script), 0);
	/* It may be known a moment later, so it was asked for again. */
	assert_in_range(atomic_load(&lookups), 2, 10);
	origin_stats(fixture->origin, &stats);
	assert_non_null(strstr(stats.last_error, "origin.test"));
	assert_false(stats.reachable);
	atomic_store(&missing, false);
	assert_int_equal(wait_get(fixture->wait), 0);
	assert_memory_equal(fixture->wait->bytes, "abcd", 4);
	origin_stats(fixture->origin, &stats);
	assert_true(stats.reachable);
}

/* The budget ends the request though the lookup goes on, and no loop waits for it. */
static void a_name_server_that_is_silent(void **state)
{
	struct fixture *fixture = *state;

	atomic_store(&silent, true);
	wait_get_start(fixture->wait);
	while (sem_wait(&asked) < 0)
		;
	the_other_is_read(fixture);
	assert_int_equal(wait_get_done(fixture->wait), -EIO);
	the_other_is_read(fixture);
	atomic_store(&silent, false);
	assert_int_equal(wait_get(fixture->wait), 0);
	for (unsigned i = 0; i + 1 < atomic_load(&lookups); i++) {
		sem_post(&answer);
		while (sem_wait(&answered) < 0)
			;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_name_that_does_not_resolve, setup, teardown),
		cmocka_unit_test_setup_teardown(a_name_server_that_is_silent, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
