/* Listings that are asked for ahead: what goes before them, until somebody waits, and their clock. */
#include <errno.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/list.h"

#include "impl.h"
#include "script.h"
#include "wait.h"

#define COMMIT "0123456789012345678901234567890123456789"
#define XML    "HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\n\r\n"
#define HTML   "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html><a href=\"x\">x</a></html>"
#define KEYS   XML "<ListBucketResult><KeyCount>1</KeyCount></ListBucketResult>"
#define JSON   "HTTP/1.1 200 OK\r\n\r\n[]"
#define BYTES                                                                                      \
	"HTTP/1.1 206 P\r\nETag: \"v\"\r\nContent-Length: 10\r\n"                                  \
	"Content-Range: bytes 0-9/10\r\n\r\n0123456789"

struct fixture {
	struct origin_engine *engine;
	struct script *script;
	struct origin *origin;
};

/* One connection, so that requests go one after the other. */
static void open_script(struct fixture *fixture, const char *source, uint64_t timeout_ms,
	const struct script_step *steps, size_t n)
{
	char server[64], full[128];
	struct origin_config config = {
		.source = full, .anonymous = true, .timeout_ms = timeout_ms, .connections = 1};

	fixture->script = script_start(steps, n);
	snprintf(server, sizeof server, "http://127.0.0.1:%u", script_port(fixture->script));
	if (*source)
		config.endpoint = server;
	snprintf(full, sizeof full, "%s", *source ? source : server);
	if (!*source)
		strcat(full, "/");
	assert_int_equal(origin_engine_new(&fixture->engine), 0);
	assert_int_equal(origin_open(fixture->engine, &config, &fixture->origin, NULL), 0);
}

static void close_script(struct fixture *fixture)
{
	origin_unref(fixture->origin);
	origin_engine_free(fixture->engine);
	script_stop(fixture->script);
}

struct own_list {
	struct origin_list list;
	sem_t done;
	int error;
	struct own_list *then; /* started by done, all of them */
	size_t n_then;
};

static void entry(struct origin_list *list, const struct origin_entry *found)
{
	(void)list;
	(void)found;
}

static void start(struct own_list *own)
{
	sem_init(&own->done, 0, 0);
	origin_list_start(&own->list);
}

/* The engine's thread takes in together what is asked for here. */
static void done(struct origin_list *list, int error)
{
	struct own_list *own = container_of(list, struct own_list, list);

	for (size_t i = 0; i < own->n_then; i++)
		start(&own->then[i]);
	if (own->n_then)
		origin_list_promote(&own->then[own->n_then - 1].list);
	own->error = error;
	sem_post(&own->done);
}

static int wait_done(struct own_list *own)
{
	while (sem_wait(&own->done) < 0)
		;
	sem_destroy(&own->done);
	return own->error;
}

static void own_init(struct own_list *own, struct origin *origin, const char *path,
	enum origin_priority priority)
{
	*own = (struct own_list){.list = {.origin = origin,
					 .path = path,
					 .priority = priority,
					 .entry = entry,
					 .done = done}};
}

static void demand_goes_before(const char *source, const char *answer)
{
	static const char *const in_order[] = {"begin", "first", "promoted", "demand", "ahead"};
	struct script_step steps[5];
	struct own_list begin, then[4];
	struct fixture fixture;

	for (size_t i = 0; i < 5; i++)
		steps[i] = (struct script_step){in_order[i], answer};
	open_script(&fixture, source, 20000, steps, 5);
	own_init(&begin, fixture.origin, "begin", ORIGIN_DEMAND);
	begin.then = then;
	begin.n_then = 4;
	own_init(&then[0], fixture.origin, "first", ORIGIN_DEMAND);
	own_init(&then[1], fixture.origin, "ahead", ORIGIN_READAHEAD);
	own_init(&then[2], fixture.origin, "demand", ORIGIN_DEMAND);
	own_init(&then[3], fixture.origin, "promoted", ORIGIN_READAHEAD);
	start(&begin);
	wait_done(&begin);
	for (size_t i = 0; i < 4; i++)
		wait_done(&then[i]);
	assert_int_equal(script_requests(fixture.script), 5);
	for (size_t i = 0; i < 5; i++)
		assert_non_null(strstr(script_request(fixture.script, i), in_order[i]));
	close_script(&fixture);
}

static void demand_goes_before_at_a_bucket(void **state)
{
	(void)state;
	demand_goes_before("s3://bucket", KEYS);
}

static void demand_goes_before_at_a_hub(void **state)
{
	(void)state;
	demand_goes_before("hf://org/model@" COMMIT, JSON);
}

static void demand_goes_before_at_a_web_server(void **state)
{
	(void)state;
	demand_goes_before("", HTML);
}

/* The only connection is taken by a GET that nobody goes on reading. What somebody waits for has its
 * time; what is asked for ahead has none before it begins, and doesn't count as a GET that waits. */
static void the_queue_takes_none_of_the_time(void **state)
{
	static const struct script_step steps[] = {{"GET /f ", BYTES}, {"GET /ahead/ ", HTML}};
	struct wait_get *get = calloc(1, sizeof *get);
	struct own_list ahead, waited_for;
	struct fixture fixture;
	struct origin_attr attr;
	struct origin_stats stats;

	(void)state;
	open_script(&fixture, "", 300, steps, 2);
	get->get = (struct origin_get){.origin = fixture.origin,
		.path = "f",
		.length = 10,
		.version = {.text = "\"v\"", .strong = true},
		.size_bytes = 10};
	get->pause_at = 4;
	wait_get_start(get);
	while (sem_wait(&get->paused) < 0)
		;
	own_init(&ahead, fixture.origin, "ahead", ORIGIN_READAHEAD);
	start(&ahead);
	own_init(&waited_for, fixture.origin, "waited-for", ORIGIN_READAHEAD);
	start(&waited_for);
	assert_int_equal(wait_stat(fixture.origin, "f", &attr), -EIO);
	assert_int_equal(sem_trywait(&ahead.done), -1);
	assert_int_equal(sem_trywait(&waited_for.done), -1);
	assert_false(atomic_load(&fixture.origin->lanes[0].held));
	/* From when somebody waits it has. */
	origin_list_promote(&waited_for.list);
	assert_int_equal(wait_done(&waited_for), -EIO);
	assert_int_equal(sem_trywait(&ahead.done), -1);
	origin_get_resume(&get->get);
	assert_int_equal(wait_get_done(get), 0);
	assert_int_equal(wait_done(&ahead), 0);
	origin_stats(fixture.origin, &stats);
	assert_int_equal(stats.lists[ORIGIN_NETWORK_ERROR], 1);
	free(get);
	close_script(&fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(demand_goes_before_at_a_bucket),
		cmocka_unit_test(demand_goes_before_at_a_hub),
		cmocka_unit_test(demand_goes_before_at_a_web_server),
		cmocka_unit_test(the_queue_takes_none_of_the_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
