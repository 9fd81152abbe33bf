/* A daemon dies in every way, and the keeper does what is due. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stage.h"

#define GOOD "hello take ready serve\n"

static void a_killed_daemon_is_followed_by_one_with_its_mounts(void **state)
{
	struct stage *stage = *state;
	pid_t daemon;

	stage_begin(stage, "hello take put=7 put=8 put=7 again=8 again=9 drop=1 ready serve\n",
		"30s", "10s");
	daemon = stage_wait_start(stage);
	assert_string_equal(stage_wait(stage, "taken"), "taken 0 restarts=0 last=0");
	assert_string_equal(stage_wait(stage, "put 7"), "put 7 ok");
	assert_string_equal(stage_wait(stage, "put 8"), "put 8 ok");
	assert_string_equal(stage_wait(stage, "put 7"), "put 7 File exists");
	assert_string_equal(stage_wait(stage, "again 8"), "again 8 ok");
	assert_string_equal(stage_wait(stage, "again 9"), "again 9 No such file or directory");
	stage_wait(stage, "ready");
	kill(daemon, SIGKILL);
	assert_true(stage_wait_start(stage) != daemon);
	assert_string_equal(stage_wait(stage, "took 7"), "took 7 mount 7, table 7");
	stage_device_reads(stage, "7\n");
	assert_string_equal(stage_wait(stage, "took 8"), "took 8 changed, table 8");
	stage_device_reads(stage, "8\n");
	assert_string_equal(stage_wait(stage, "taken"), "taken 2 restarts=1 last=9");
	stage_wait(stage, "ready");
	kill(stage->keeper, SIGTERM);
	stage_wait(stage, "asked to end");
	assert_int_equal(stage_wait_end(stage), 0);
}

/* Both signals are there when the keeper looks. */
static void a_daemon_that_died_is_replaced_even_to_end(void **state)
{
	struct stage *stage = *state;
	pid_t daemon;

	stage_begin(stage, "hello take put=1 ready serve\n" GOOD, "30s", "10s");
	daemon = stage_wait_start(stage);
	stage_wait(stage, "ready");
	kill(stage->keeper, SIGSTOP);
	kill(daemon, SIGKILL);
	kill(stage->keeper, SIGTERM);
	kill(stage->keeper, SIGCONT);
	assert_string_equal(stage_wait(stage, "took"), "took 1 mount 1, table 1");
	stage_wait(stage, "asked to end");
	assert_int_equal(stage_wait_end(stage), 0);
	stage_device_ends(stage);
}

static void one_that_dies_while_it_unmounts_is_replaced(void **state)
{
	struct stage *stage = *state;
	pid_t daemon;

	stage_begin(stage, "hello take put=1 ready freeze\n" GOOD, "30s", "10s");
	daemon = stage_wait_start(stage);
	stage_wait(stage, "ready");
	kill(stage->keeper, SIGTERM);
	usleep(20000); /* the keeper tells the daemon, most likely; the other order is no error either */
	kill(daemon, SIGKILL);
	assert_string_equal(stage_wait(stage, "took"), "took 1 mount 1, table 1");
	stage_wait(stage, "asked to end");
	assert_int_equal(stage_wait_end(stage), 0);
}

static void every_early_death_is_followed_by_another_try(void **state)
{
	struct stage *stage = *state;

	stage_begin(stage,
		"hello take put=1 ready die\n"
		"die\n"
		"hello die\n"
		"hello take die\n"
		"exit=1\n"
		"hello take drop=1 put=2 exit=3\n" GOOD,
		"30s", "10s");
	assert_string_equal(stage_wait(stage, "put"), "put 1 ok");
	assert_string_equal(stage_wait(stage, "took"), "took 1 mount 1, table 1");
	assert_string_equal(stage_wait(stage, "took"), "took 1 mount 1, table 1");
	assert_string_equal(stage_wait(stage, "put"), "put 2 ok");
	assert_string_equal(stage_wait(stage, "took"), "took 2 mount 2, table 2");
	assert_string_equal(stage_wait(stage, "taken"), "taken 1 restarts=6 last=768");
	stage_wait(stage, "ready");
}

static void a_first_daemon_that_is_killed_is_tried_again(void **state)
{
	struct stage *stage = *state;

	stage_begin(stage, "die\nhello die\n" GOOD, "30s", "10s");
	stage_wait(stage, "ready");
}

static void a_first_daemon_that_refuses_ends_the_keeper(void **state)
{
	struct stage *stage = *state;

	stage_begin(stage, "hello take exit=4\n", "30s", "10s");
	assert_int_equal(stage_wait_end(stage), 4);
}

static void a_daemon_that_ends_by_itself_ends_the_keeper(void **state)
{
	struct stage *stage = *state;

	stage_begin(stage, GOOD "hello take put=3 ready exit=0\n", "30s", "10s");
	kill(stage_wait_start(stage), SIGKILL);
	assert_int_equal(stage_wait_end(stage), 0);
	stage_device_ends(stage);
	assert_int_equal(access(stage->socket, F_OK), -1);
}

static void a_stopped_and_a_silent_daemon_are_replaced(void **state)
{
	struct stage *stage = *state;

	stage_begin(stage,
		"hello take put=1 ready freeze\n"
		"hello take ready silent\n"
		"hello take freeze\n" GOOD,
		"4s", "500ms");
	for (int i = 0; i < 3; i++)
		assert_string_equal(stage_wait(stage, "took"), "took 1 mount 1, table 1");
	stage_wait(stage, "ready");
}

static void without_a_daemon_the_devices_are_closed(void **state)
{
	struct stage *stage = *state;

	/* One that hangs in its start has copies of the devices too. */
	stage_begin(stage,
		"hello take put=1 ready die\n"
		"exit=1\nexit=1\n"
		"hello take silent\n" GOOD,
		"500ms", "0");
	stage_wait(stage, "ready");
	stage_device_ends(stage);
	assert_string_equal(stage_wait(stage, "taken 0"), "taken 0 restarts=4 last=9");
	stage_wait(stage, "ready");
}

static void garbage_does_no_harm(void **state)
{
	struct stage *stage = *state;

	stage_begin(stage, "hello take put=1 garbage put=2 ready die\n" GOOD, "30s", "10s");
	assert_string_equal(stage_wait(stage, "put 2"), "put 2 ok");
	stage_wait(stage, "took 1");
	stage_wait(stage, "took 2");
	assert_string_equal(stage_wait(stage, "taken"), "taken 2 restarts=1 last=9");
}

static void daemons_of_other_versions_are_served(void **state)
{
	struct stage *stage = *state;

	stage_begin(stage, "version=1\nversion=7\n", "30s", "10s");
	for (int i = 0; i < 2; i++) {
		pid_t daemon = stage_wait_start(stage);

		assert_string_equal(stage_wait(stage, "answer"), "answer 1 version 1");
		if (i)
			assert_string_equal(stage_wait(stage, "took"), "took 3 mount 3, table 3");
		assert_string_equal(stage_wait(stage, "end"), "end 8");
		assert_string_equal(stage_wait(stage, "answer"), i ? "answer 10" : "answer 9");
		stage_wait(stage, "ready");
		kill(daemon, SIGKILL);
	}
	assert_string_equal(stage_wait(stage, "took"), "took 3 mount 3, table 3");
}

static void a_version_before_the_first_is_refused(void **state)
{
	struct stage *stage = *state;

	stage_begin(stage, "version=0\n", "30s", "10s");
	assert_string_equal(stage_wait(stage, "answer"), "answer 10 version 1");
	assert_int_equal(stage_wait_end(stage), 1);
}

static void a_binary_that_was_removed_starts_again(void **state)
{
	struct stage *stage = *state;
	pid_t daemon;

	stage_begin(stage, GOOD, "30s", "10s");
	daemon = stage_wait_start(stage);
	stage_wait(stage, "ready");
	assert_int_equal(unlink(stage->binary), 0);
	kill(daemon, SIGKILL);
	stage_wait(stage, "ready");
}

static long proc_number(pid_t pid, const char *file, const char *key)
{
	char path[64], line[128];
	long number = -1;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
	f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof line, f)) {
		if (!strncmp(line, key, strlen(key)))
			number = strtol(line + strlen(key), NULL, 10);
	}
	fclose(f);
	return number;
}

/* It takes a capability that root in a container may lack. */
static bool can_be_spared(void)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

		_exit(write(fd, "-1000", 5) == 5 ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return !status;
}

static void the_keeper_is_small_and_spared(void **state)
{
	struct stage *stage = *state;
	long ours = proc_number(getpid(), "oom_score_adj", "");
	pid_t daemon;

	stage_begin(stage, "hello take put=1 put=2 put=3 ready serve\n", "30s", "10s");
	daemon = stage_wait_start(stage);
	stage_wait(stage, "ready");
	assert_int_equal(proc_number(daemon, "oom_score_adj", ""), ours);
	assert_int_equal(
		proc_number(stage->keeper, "oom_score_adj", ""), can_be_spared() ? -1000 : ours);
/* A sanitizer's memory and threads are its own. */
#ifndef SANITIZED
	assert_in_range(proc_number(stage->keeper, "status", "VmRSS:"), 1, 3 << 10);
	assert_int_equal(proc_number(stage->keeper, "status", "Threads:"), 1);
#endif
}

static void is_told(int manager, const char *state)
{
	struct pollfd fd = {.fd = manager, .events = POLLIN};
	char got[64];

	do {
		ssize_t n;

		assert_int_equal(poll(&fd, 1, 30000), 1);
		n = recv(manager, got, sizeof got - 1, 0);
		assert_true(n > 0);
		got[n] = '\0';
	} while (strcmp(got, state) != 0);
}

static void the_service_manager_is_told(void **state)
{
	struct stage *stage = *state;
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	pid_t daemon;

	snprintf(address.sun_path, sizeof address.sun_path, "%s/notify", stage->dir);
	assert_int_equal(bind(manager, (struct sockaddr *)&address, sizeof address), 0);
	setenv("NOTIFY_SOCKET", address.sun_path, 1);
	setenv("WATCHDOG_USEC", "100000", 1);
	stage_begin(stage, GOOD, "30s", "10s");
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	daemon = stage_wait_start(stage);
	is_told(manager, "READY=1");
	is_told(manager, "WATCHDOG=1");
	/* The manager's watchdog is the keeper's: a daemon that is down is no reason to end it. */
	kill(daemon, SIGSTOP);
	for (int i = 0; i < 3; i++)
		is_told(manager, "WATCHDOG=1");
	kill(daemon, SIGCONT);
	assert_int_equal(rename(stage->newer, stage->binary), 0);
	kill(stage->keeper, SIGHUP);
	is_told(manager, "RELOADING=1");
	is_told(manager, "READY=1");
	kill(stage->keeper, SIGTERM);
	is_told(manager, "STOPPING=1");
	assert_int_equal(stage_wait_end(stage), 0);
	close(manager);
}

#define ON_STAGE(test) cmocka_unit_test_setup_teardown(test, stage_make, stage_remove)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		ON_STAGE(a_killed_daemon_is_followed_by_one_with_its_mounts),
		ON_STAGE(a_daemon_that_died_is_replaced_even_to_end),
		ON_STAGE(one_that_dies_while_it_unmounts_is_replaced),
		ON_STAGE(every_early_death_is_followed_by_another_try),
		ON_STAGE(a_first_daemon_that_is_killed_is_tried_again),
		ON_STAGE(a_first_daemon_that_refuses_ends_the_keeper),
		ON_STAGE(a_daemon_that_ends_by_itself_ends_the_keeper),
		ON_STAGE(a_stopped_and_a_silent_daemon_are_replaced),
		ON_STAGE(without_a_daemon_the_devices_are_closed),
		ON_STAGE(garbage_does_no_harm),
		ON_STAGE(daemons_of_other_versions_are_served),
		ON_STAGE(a_version_before_the_first_is_refused),
		ON_STAGE(a_binary_that_was_removed_starts_again),
		ON_STAGE(the_keeper_is_small_and_spared),
		ON_STAGE(the_service_manager_is_told),
	};

	if (argc != 2)
		return 2;
	stage_set_actor(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
