#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/client.h"
#include "control/control.h"
#include "fakes.h"

struct bed {
	char directory[64], socket[96];
	struct control *control;
	struct client client;
	_Atomic int mounted_calls;
};

static void count_mounted(void *arg)
{
	struct bed *bed = arg;

	bed->mounted_calls++;
}

static int set_up(void **state)
{
	struct bed *bed = calloc(1, sizeof *bed);
	struct control_config config = {
		.store = "/", .size = "50%", .mounted = count_mounted, .arg = bed};
	struct why why = {""};
	int fd;

	fake = (struct fake){.mounted = true};
	strcpy(bed->directory, "/tmp/cachefs-control-XXXXXX");
	assert_non_null(mkdtemp(bed->directory));
	snprintf(bed->socket, sizeof bed->socket, "%s/run/c.sock", bed->directory);
	config.socket = bed->socket;
	assert_int_equal(control_listen(bed->socket, &fd, &why), 0);
	assert_int_equal(control_start(&config, fd, &bed->control, &why), 0);
	bed->client.socket = bed->socket;
	*state = bed;
	return 0;
}

static int tear_down(void **state)
{
	struct bed *bed = *state;
	char path[128];

	control_end(bed->control);
	control_stop(bed->control);
	assert_int_equal(access(bed->socket, F_OK), -1);
	assert_int_equal(fake.references, 0);
	snprintf(path, sizeof path, "%s.lock", bed->socket);
	unlink(path);
	snprintf(path, sizeof path, "%s/run", bed->directory);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(rmdir(bed->directory), 0);
	free(bed);
	return 0;
}

static json_t *ask(struct bed *bed, const char *method, const char *path, const char *body)
{
	struct why why = {""};
	json_t *answer = NULL, *json = body ? json_loads(body, 0, NULL) : NULL;

	assert_true(!body || json);
	assert_int_equal(client_call(&bed->client, method, path, json, &answer, &why), 0);
	return answer;
}

static void refused(struct bed *bed, const char *method, const char *path, const char *body,
	int error, const char *part)
{
	struct why why = {""};
	json_t *json = body ? json_loads(body, JSON_DECODE_ANY, NULL) : NULL;

	assert_int_equal(client_call(&bed->client, method, path, json, NULL, &why), error);
	if (!strstr(why.text, part))
		fail_msg("'%s' does not name '%s'", why.text, part);
}

static long long number(const json_t *value, const char *name)
{
	assert_true(json_is_integer(json_object_get(value, name)));
	return json_integer_value(json_object_get(value, name));
}

static const json_t *first_target(const json_t *answer)
{
	return json_array_get(json_object_get(answer, "targets"), 0);
}

/* A counter that falls when a volume ends looks like a restart to whoever takes rates of it. */
static void counters_keep_what_ended_volumes_had(void **state)
{
	json_t *answer;

	fake.ended_gets = 10;
	answer = ask(*state, "GET", "/v1/status", NULL);
	fake.ended_gets = 0;
	assert_int_equal(number(json_object_get(answer, "counters"), "origin_gets"), 15);
	json_decref(answer);
}

static void status(void **state)
{
	static const char *const shares[] = {"share", "share_1m", "share_5m"};
	json_t *answer = ask(*state, "GET", "/v1/status", NULL), *volume, *stalled;

	assert_int_equal(number(json_object_get(answer, "daemon"), "pid"), getpid());
	assert_true(number(json_object_get(answer, "daemon"), "rss_bytes") > 0);
	assert_true(json_is_true(json_object_get(
		json_object_get(json_object_get(answer, "daemon"), "features"), "passthrough")));
	assert_int_equal(number(json_object_get(answer, "store"), "used_bytes"), 4096);
	assert_int_equal(number(json_object_get(answer, "counters"), "origin_gets"), 5);
	assert_int_equal(number(json_object_get(answer, "uploads"), "pending"), 0);
	volume = json_array_get(json_object_get(answer, "volumes"), 0);
	assert_string_equal(json_string_value(json_object_get(volume, "source")), FAKE_SOURCE);
	assert_string_equal(json_string_value(json_object_get(volume, "mode")), "ro");
	assert_int_equal(number(volume, "hit_bytes"), 7);
	assert_int_equal(number(volume, "hidden_keys"), 5);
	stalled = json_object_get(volume, "stalled");
	assert_int_equal(number(stalled, "now"), 2);
	for (size_t i = 0; i < 3; i++)
		assert_true(json_real_value(json_object_get(stalled, shares[i])) == 1);
	stalled = json_object_get(volume, "stalled_names");
	assert_int_equal(number(stalled, "now"), 0);
	assert_true(json_real_value(json_object_get(stalled, "seconds")) == 0);
	assert_true(json_real_value(json_object_get(volume, "stall_seconds")) == 3.5);
	assert_int_equal(number(volume, "cached_bytes"), 77);
	json_decref(answer);
}

static void status_of_path(void **state)
{
	json_t *answer = ask(*state, "GET", "/v1/status?path=/mnt/fake/d1/f%20%23", NULL);

	assert_int_equal(number(answer, "size"), 1000);
	assert_int_equal(number(answer, "cached_bytes"), 10);
	assert_string_equal(json_string_value(json_object_get(answer, "version")), "\"v1\"");
	assert_string_equal(
		json_string_value(json_object_get(answer, "object")), "s3://aws/bucket/d1/f #");
	json_decref(answer);
	answer = ask(*state, "GET", "/v1/status?path=/mnt/fake/d1", NULL);
	assert_int_equal(number(answer, "files"), FAKE_FILES);
	json_decref(answer);
	answer = ask(*state, "GET", "/v1/status?path=/mnt/fake", NULL);
	assert_int_equal(json_array_size(json_object_get(answer, "volumes")), 1);
	json_decref(answer);
	refused(*state, "GET", "/v1/status?path=/mnt/fake/missing", NULL, -ENODATA, "missing");
	refused(*state, "GET", "/v1/status?path=/mnt/fakes", NULL, -ENODATA, "/mnt/fakes");
}

static void wrong_requests(void **state)
{
	refused(*state, "GET", "/v1/nothing", NULL, -ENODATA, "/v1/nothing");
	refused(*state, "POST", "/v1/status", "{}", -EOPNOTSUPP, "takes GET");
	refused(*state, "POST", "/v1/mount", "[]", -EINVAL, "object");
	refused(*state, "POST", "/v1/mount", NULL, -EINVAL, "JSON");
	refused(*state, "POST", "/v1/mount", "{\"source\": \"s3://b\"}", -EINVAL, "mountpoint");
	refused(*state, "POST", "/v1/umount", "{\"mountpoint\": \"/x\", \"forse\": true}", -EINVAL,
		"forse");
	refused(*state, "POST", "/v1/verify", "{}", -EINVAL, "targets");
	refused(*state, "POST", "/v1/evict", "{\"targets\": []}", -EINVAL, "targets");
	refused(*state, "POST", "/v1/evict", "{\"targets\": [\"a\"]}", -EINVAL, "target 1");
	refused(*state, "POST", "/v1/pin", "{\"targets\": [\"/a\"], \"ttl_ms\": -1}", -EINVAL,
		"ttl_ms");
}

static void long_body(void **state)
{
	struct bed *bed = *state;
	struct why why = {""};
	size_t size = 2 << 20;
	char *text = malloc(size);
	json_t *body;

	memset(text, 'x', size - 1);
	text[size - 1] = '\0';
	body = json_pack("{s:s}", "source", text);
	free(text);
	assert_int_equal(client_call(&bed->client, "POST", "/v1/mount", body, NULL, &why), -EFBIG);
}

static void mount(void **state)
{
	struct bed *bed = *state;
	json_t *answer;

	json_decref(ask(bed, "POST", "/v1/mount",
		"{\"source\": \"s3://b\", \"mountpoint\": \"/m\", \"options\": \"ro,ttl=5s\", "
		"\"store\": \"/\", \"size\": \"50%\"}"));
	assert_string_equal(fake.source, "s3://b");
	assert_string_equal(fake.mountpoint, "/m");
	assert_string_equal(fake.options, "ro,ttl=5s");
	assert_int_equal(bed->mounted_calls, 1);
	fake.found = ORIGIN_EMPTY;
	answer = ask(bed, "POST", "/v1/mount", "{\"source\": \"s3://b\", \"mountpoint\": \"/m\"}");
	assert_true(json_is_true(json_object_get(answer, "empty")));
	assert_true(json_is_false(json_object_get(answer, "unlisted")));
	json_decref(answer);
	fake.mount_error = -ENOTEMPTY;
	refused(bed, "POST", "/v1/mount", "{\"source\": \"s3://b\", \"mountpoint\": \"/m\"}",
		-ENOTEMPTY, "not empty");
	assert_int_equal(bed->mounted_calls, 3);
}

static void contradictions(void **state)
{
	fake.source[0] = '\0';
	refused(*state, "POST", "/v1/mount",
		"{\"source\": \"s3://b\", \"mountpoint\": \"/m\", \"environment\": \"another\"}",
		-EINVAL, "environment differs");
	refused(*state, "POST", "/v1/mount",
		"{\"source\": \"s3://b\", \"mountpoint\": \"/m\", \"store\": \"/other\"}", -EINVAL,
		"store=/other contradicts the running daemon, whose store is /:");
	refused(*state, "POST", "/v1/mount",
		"{\"source\": \"s3://b\", \"mountpoint\": \"/m\", \"size\": \"51%\"}", -EINVAL,
		"size=51% contradicts the running daemon, whose size is 50%");
	refused(*state, "POST", "/v1/mount",
		"{\"source\": \"s3://b\", \"mountpoint\": \"/m\", \"options\": \"store=/x\"}",
		-EINVAL, "store=/x");
	refused(*state, "POST", "/v1/mount",
		"{\"source\": \"s3://b\", \"mountpoint\": \"/m\", \"options\": \"nonsense\"}",
		-EINVAL, "nonsense");
	refused(*state, "POST", "/v1/mount", "{\"source\": \"s3://b\", \"mountpoint\": \"m\"}",
		-EINVAL, "absolute");
	assert_string_equal(fake.source, "");
}

static void umount(void **state)
{
	refused(*state, "POST", "/v1/umount", "{\"mountpoint\": \"/x\"}", -EINVAL, "not a mount");
	json_decref(ask(*state, "POST", "/v1/umount",
		"{\"mountpoint\": \"" FAKE_MOUNTPOINT "\", \"force\": true}"));
	assert_true(fake.forced);
	assert_false(fake.mounted);
}

static void evict(void **state)
{
	json_t *answer = ask(*state, "POST", "/v1/evict",
		"{\"targets\": [\"/mnt/fake\", \"/mnt/fake/missing\"]}");
	const json_t *result = first_target(answer);

	assert_int_equal(number(result, "objects"), FAKE_DIRS * FAKE_FILES + 1);
	assert_int_equal(number(result, "bytes"), (FAKE_DIRS * FAKE_FILES + 1) * 4096);
	assert_int_equal(number(result, "in_use"), 1);
	assert_int_equal(number(result, "pinned"), 1);
	assert_null(json_object_get(result, "error"));
	result = json_array_get(json_object_get(answer, "targets"), 1);
	assert_non_null(json_object_get(result, "error"));
	json_decref(answer);
	assert_int_equal(fake.lists, FAKE_DIRS + 1);
	assert_in_range(fake.most_lists_at_once, 1, 8);
	/* A store that refuses is named. */
	fake.evict_error = -EROFS;
	answer = ask(*state, "POST", "/v1/evict", "{\"targets\": [\"/mnt/fake/top\"]}");
	assert_non_null(strstr(json_string_value(json_object_get(first_target(answer), "error")),
		"the store / is on a read-only file system"));
	json_decref(answer);
}

static void pin(void **state)
{
	json_t *answer = ask(*state, "POST", "/v1/pin", "{\"targets\": [\"/mnt/fake/d1\"]}");

	assert_int_equal(number(answer, "pinned_bytes"), 12345);
	assert_int_equal(number(answer, "capacity_bytes"), 1 << 30);
	json_decref(answer);
	assert_int_equal(fake.pins, FAKE_FILES);
	assert_true(fake.until_ns == INT64_MAX);
	json_decref(ask(*state, "POST", "/v1/pin",
		"{\"targets\": [\"/mnt/fake/top\"], \"ttl_ms\": 60000}"));
	assert_true(fake.until_ns > 0 && fake.until_ns < INT64_MAX);
	json_decref(ask(*state, "POST", "/v1/unpin", "{\"targets\": [\"/mnt/fake\"]}"));
	assert_int_equal(fake.unpins, 1);
}

static void sources(void **state)
{
	json_t *answer =
		ask(*state, "POST", "/v1/evict", "{\"targets\": [\"s3://bucket/pre\\\"fix/d3/\"]}");

	assert_int_equal(number(first_target(answer), "objects"), FAKE_FILES);
	json_decref(answer);
	answer = ask(*state, "POST", "/v1/evict", "{\"targets\": [\"s3://bucket\"]}");
	assert_int_equal(number(first_target(answer), "objects"), FAKE_DIRS * FAKE_FILES + 1);
	json_decref(answer);
	answer = ask(*state, "POST", "/v1/evict", "{\"targets\": [\"s3://bucket/pre\"]}");
	assert_non_null(json_object_get(first_target(answer), "error"));
	json_decref(answer);
}

/* A path that is no UTF-8 goes through, and is shown with question marks. */
static void other_bytes(void **state)
{
	struct bed *bed = *state;
	struct why why = {""};
	json_t *answer, *body = json_pack("{s:[o]}", "targets", client_target("/mnt/fake/\xff%"));

	assert_int_equal(client_call(&bed->client, "POST", "/v1/evict", body, &answer, &why), 0);
	assert_int_equal(number(first_target(answer), "objects"), 1);
	assert_string_equal(
		json_string_value(json_object_get(first_target(answer), "target")), "/mnt/fake/?%");
	json_decref(answer);
	answer = ask(bed, "GET", "/v1/status?path=/mnt/fake/%ff", NULL);
	assert_string_equal(
		json_string_value(json_object_get(answer, "object")), "s3://aws/bucket/?");
	json_decref(answer);
	refused(bed, "POST", "/v1/evict", "{\"targets\": [{\"encoded\": \"/a%0\"}]}", -EINVAL,
		"target 1");
	refused(bed, "POST", "/v1/evict", "{\"targets\": [{\"encoded\": \"/a%00\"}]}", -EINVAL,
		"target 1");
}

static void verify(void **state)
{
	json_t *answer = ask(*state, "POST", "/v1/verify",
		"{\"targets\": [\"/mnt/fake/d0\"], \"repair\": true}");
	const json_t *result = json_array_get(json_object_get(answer, "results"), 0);

	assert_int_equal(number(result, "objects"), FAKE_FILES);
	assert_int_equal(number(result, "bad_chunks"), 0);
	assert_true(fake.repaired);
	json_decref(answer);
	answer = ask(*state, "POST", "/v1/verify", "{\"all\": true}");
	result = json_array_get(json_object_get(answer, "results"), 0);
	assert_int_equal(number(result, "objects"), 9);
	assert_int_equal(number(result, "bad_chunks"), 1);
	json_decref(answer);
	fake.verifies = 0;
	json_decref(ask(*state, "POST", "/v1/verify", "{\"all\": true, \"repair\": true}"));
	assert_int_equal(fake.verifies, FAKE_DIRS * FAKE_FILES + 3);
}

/* The whole answer to one request, headers and all. */
static void raw(const char *socket_path, const char *request, char *answer, size_t size)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	size_t used = 0;
	ssize_t n;

	snprintf(address.sun_path, sizeof address.sun_path, "%s", socket_path);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
	assert_int_equal(write(fd, request, strlen(request)), strlen(request));
	while ((n = read(fd, answer + used, size - 1 - used)) > 0)
		used += (size_t)n;
	answer[used] = '\0';
	close(fd);
}

static bool is_named(const char *line)
{
	return !strncmp(line, "cachefs_", 8) || !strncmp(line, "process_", 8);
}

static void metrics(void **state)
{
	struct bed *bed = *state;
	char answer[1 << 16], *line;

	raw(bed->socket, "GET /metrics HTTP/1.0\r\n\r\n", answer, sizeof answer);
	assert_non_null(strstr(answer, "text/plain; version=0.0.4"));
	assert_non_null(strstr(answer,
		"\ncachefs_hit_bytes_total{volume=\"1\",source=\"s3://bucket/pre\\\"fix\"} 7\n"));
	assert_non_null(strstr(answer,
		"source=\"s3://bucket/pre\\\"fix\",kind=\"get\",outcome=\"throttled\"} 2\n"));
	/* Buckets add up. */
	assert_non_null(strstr(answer, ",waited_for=\"origin\",le=\"0.3\"} 0\n"));
	assert_non_null(strstr(answer, ",waited_for=\"origin\",le=\"1\"} 1\n"));
	assert_non_null(strstr(answer, ",waited_for=\"origin\",le=\"3\"} 2\n"));
	assert_non_null(strstr(answer, ",waited_for=\"origin\",le=\"+Inf\"} 2\n"));
	assert_non_null(strstr(answer, ",waited_for=\"origin\"} 3.5\n"));
	assert_non_null(strstr(answer, ",waited_for=\"origin\"} 2\n"));
	assert_non_null(strstr(answer, ",request=\"read\"} 2\n"));
	assert_non_null(strstr(answer, "\ncachefs_store_capacity_bytes 1073741824\n"));
	/* Every sample's family was announced. */
	line = strstr(answer, "\r\n\r\n") + 4;
	for (line = strtok(line, "\n"); line; line = strtok(NULL, "\n"))
		assert_true(is_named(line) || is_named(line + strlen("# HELP ")));
}

static void ending(void **state)
{
	struct bed *bed = *state;

	assert_false(control_end_if_idle(bed->control));
	json_decref(ask(bed, "GET", "/v1/features", NULL));
	fake.mounted = false;
	assert_true(control_end_if_idle(bed->control));
	refused(bed, "GET", "/v1/features", NULL, -ESHUTDOWN, "ending");
	assert_int_equal(client_wait_end(&bed->client, 0), -ETIMEDOUT);
}

static void listening(void **state)
{
	struct bed *bed = *state;
	struct why why = {""};
	struct stat st;
	char path[200], long_path[200];
	int fd, other;

	assert_int_equal(stat(bed->socket, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(control_listen(bed->socket, &fd, &why), -EADDRINUSE);
	assert_non_null(strstr(why.text, bed->socket));
	/* A dead daemon's socket is replaced. */
	snprintf(path, sizeof path, "%s/stale", bed->directory);
	assert_int_equal(control_listen(path, &fd, &why), 0);
	close(fd);
	assert_int_equal(control_listen(path, &other, &why), 0);
	control_unlisten(path, other);
	assert_int_equal(access(path, F_OK), -1);
	/* Anything else is not. */
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(control_listen(path, &fd, &why), -EEXIST);
	assert_int_equal(rmdir(path), 0);
	strcat(path, ".lock");
	assert_int_equal(unlink(path), 0);
	memset(long_path, 'x', sizeof long_path - 1);
	long_path[0] = '/';
	long_path[sizeof long_path - 1] = '\0';
	assert_int_equal(control_listen(long_path, &fd, &why), -ENAMETOOLONG);
}

static void bad_metrics_address(void **state)
{
	static const char *const texts[] = {"9464", "localhost:9464", "127.0.0.1:x", "[::1:9464"};
	struct bed *bed = *state;
	char path[200];

	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		struct control_config config = {.store = "/", .metrics = texts[i]};
		struct control *control;
		struct why why = {""};
		int fd;

		snprintf(path, sizeof path, "%s/second", bed->directory);
		config.socket = path;
		assert_int_equal(control_listen(path, &fd, &why), 0);
		assert_int_equal(control_start(&config, fd, &control, &why), -EINVAL);
		assert_non_null(strstr(why.text, texts[i]));
		assert_int_equal(access(path, F_OK), -1);
	}
	strcat(path, ".lock");
	assert_int_equal(unlink(path), 0);
}

static void no_daemon(void **state)
{
	struct client client = {"/nonexistent/control.sock"};
	struct why why = {""};
	int r = client_call(&client, "GET", "/v1/status", NULL, NULL, &why);

	(void)state;
	assert_int_equal(r, -ENOENT);
	assert_true(client_no_daemon(r));
	assert_non_null(strstr(why.text, "cachefs mount"));
	assert_int_equal(client_wait_end(&client, 0), 0);
}

#define ON_BED(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_BED(status),
		ON_BED(counters_keep_what_ended_volumes_had),
		ON_BED(status_of_path),
		ON_BED(wrong_requests),
		ON_BED(long_body),
		ON_BED(mount),
		ON_BED(contradictions),
		ON_BED(umount),
		ON_BED(evict),
		ON_BED(pin),
		ON_BED(sources),
		ON_BED(other_bytes),
		ON_BED(verify),
		ON_BED(metrics),
		ON_BED(ending),
		ON_BED(listening),
		ON_BED(bad_metrics_address),
		cmocka_unit_test(no_daemon),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
