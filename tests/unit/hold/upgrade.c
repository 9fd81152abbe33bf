/* A newer binary takes over, or fails to at each step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "hold/upgrade.h"
#include "stage.h"

#define GOOD "hello take ready serve\n"
#define LOAD "hello take put=5 ready serve\n"

static int upgrade(struct stage *stage, struct why *result)
{
	_cleanup_(freep) char *socket = hold_socket(stage->socket);

	assert_true(hold_alive(socket));
	return hold_upgrade(socket, stage->newer, result);
}

static void assert_runs(pid_t pid, const char *binary)
{
	char link[64], path[256] = "";

	snprintf(link, sizeof link, "/proc/%d/exe", (int)pid);
	assert_true(readlink(link, path, sizeof path - 1) > 0);
	assert_string_equal(path, binary);
}

static void set_check(const struct stage *stage, const char *text)
{
	char path[128];
	int fd;

	snprintf(path, sizeof path, "%s/check", stage->dir);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

/* The keeper listens once it has read READY, which the daemon has said by now. */
static void wait_listening(struct stage *stage)
{
	_cleanup_(freep) char *socket = hold_socket(stage->socket);

	for (int i = 0; i < 3000 && !hold_alive(socket); i++)
		usleep(10000);
}

static pid_t begin(struct stage *stage, const char *plan)
{
	pid_t daemon;

	stage_begin(stage, plan, "30s", "10s");
	daemon = stage_wait_start(stage);
	stage_wait(stage, "ready");
	wait_listening(stage);
	return daemon;
}

static void assert_took_over(struct stage *stage, const char *binary)
{
	pid_t daemon = stage_wait_start(stage);

	assert_string_equal(stage_wait(stage, "took"), "took 5 mount 5, table 5");
	stage_wait(stage, "ready");
	stage_device_reads(stage, "5\n");
	assert_runs(daemon, binary);
}

static void daemon_and_keeper_become_the_newer_ones(void **state)
{
	struct stage *stage = *state;
	struct why result;
	pid_t daemon;

	begin(stage, LOAD);
	assert_int_equal(upgrade(stage, &result), 0);
	assert_non_null(strstr(result.text, "daemon and keeper are version"));
	daemon = stage_wait_start(stage);
	stage_wait(stage, "asked to stop");
	assert_string_equal(stage_wait(stage, "took"), "took 5 mount 5, table 5");
	assert_string_equal(stage_wait(stage, "taken"), "taken 1 restarts=0 last=19200");
	stage_wait(stage, "ready");
	assert_runs(daemon, stage->newer);
	assert_runs(stage->keeper, stage->newer);
	/* What the keeper was given it still has, and its child is still its own. */
	kill(daemon, SIGKILL);
	stage_device_reads(stage, "5\n");
	assert_took_over(stage, stage->newer);
	/* And again, from the new one. */
	assert_int_equal(upgrade(stage, &result), 0);
	stage_device_reads(stage, "5\n");
	kill(stage->keeper, SIGTERM);
	stage_wait(stage, "asked to end");
	assert_int_equal(stage_wait_end(stage), 0);
}

static void a_hangup_upgrades_to_the_installed_binary(void **state)
{
	struct stage *stage = *state;

	begin(stage, LOAD);
	assert_int_equal(rename(stage->newer, stage->binary), 0);
	kill(stage->keeper, SIGHUP);
	assert_took_over(stage, stage->binary);
}

static void a_keeper_that_the_newer_one_cant_continue_stays(void **state)
{
	struct stage *stage = *state;
	struct why result;

	begin(stage, LOAD);
	set_check(stage, "0 actor keeper 0");
	assert_int_equal(upgrade(stage, &result), 0);
	assert_non_null(strstr(result.text, "the keeper stays the old one"));
	assert_took_over(stage, stage->newer);
	assert_runs(stage->keeper, stage->binary);
}

static void a_daemon_that_does_not_stop_is_killed(void **state)
{
	struct stage *stage = *state;
	struct why result;

	begin(stage, "hello take put=5 ready stubborn\n");
	assert_int_equal(upgrade(stage, &result), 0);
	assert_took_over(stage, stage->newer);
}

static void assert_goes_on(struct stage *stage, pid_t daemon, const char *reason)
{
	struct why result;

	assert_int_equal(upgrade(stage, &result), -ECANCELED);
	if (!strstr(result.text, reason))
		fail_msg("'%s' does not say '%s'", result.text, reason);
	assert_int_equal(kill(daemon, 0), 0);
	/* The old one is whole: it takes part in a second try. */
	stage_plan(stage, "");
	set_check(stage, "0 actor keeper 1");
	assert_int_equal(upgrade(stage, &result), 0);
	stage_wait(stage, "asked to stop");
	stage_wait(stage, "took 5");
}

static void a_refused_check_changes_nothing(void **state)
{
	struct stage *stage = *state;
	pid_t daemon = begin(stage, LOAD);

	set_check(stage, "1 the store has format 9");
	assert_goes_on(stage, daemon, "status 1: the store has format 9");
}

static void one_that_dies_at_start_changes_nothing(void **state)
{
	struct stage *stage = *state;
	pid_t daemon = begin(stage, LOAD "die\n");

	assert_goes_on(stage, daemon, "killed by signal 9");
}

static void one_that_refuses_at_start_changes_nothing(void **state)
{
	struct stage *stage = *state;
	pid_t daemon = begin(stage, LOAD "exit=1\n");

	assert_goes_on(stage, daemon, "ended with status 1");
}

static void a_file_that_is_no_program_changes_nothing(void **state)
{
	struct stage *stage = *state;
	pid_t daemon = begin(stage, LOAD);
	struct why result;

	assert_int_equal(truncate(stage->newer, 0), 0);
	assert_int_equal(upgrade(stage, &result), -ECANCELED);
	assert_int_equal(kill(daemon, 0), 0);
}

static void assert_goes_back(struct stage *stage, const char *reason)
{
	struct why result;

	assert_int_equal(upgrade(stage, &result), -ECANCELED);
	assert_non_null(strstr(result.text, "the previous version was started again"));
	if (!strstr(result.text, reason))
		fail_msg("'%s' does not say '%s'", result.text, reason);
	stage_wait(stage, "asked to stop");
	stage_wait(stage, "took 5");
	assert_took_over(stage, stage->binary);
	assert_runs(stage->keeper, stage->binary);
}

static void one_that_dies_before_it_is_ready_is_undone(void **state)
{
	struct stage *stage = *state;

	begin(stage, LOAD "hello take die\n");
	assert_goes_back(stage, "killed by signal 9 before it was ready");
}

static void one_that_gives_up_before_it_is_ready_is_undone(void **state)
{
	struct stage *stage = *state;

	begin(stage, LOAD "hello take exit=0\n");
	assert_goes_back(stage, "ended with status 0 before it was ready");
}

static void one_that_is_never_ready_is_undone(void **state)
{
	struct stage *stage = *state;

	begin(stage, LOAD "hello take freeze\n");
	assert_goes_back(stage, "not ready within 10 s");
}

static void without_a_keeper_there_is_no_upgrade(void **state)
{
	struct stage *stage = *state;
	struct why result;

	assert_false(hold_alive(stage->socket));
	assert_int_equal(hold_upgrade(stage->socket, stage->newer, &result), -ENOENT);
	assert_non_null(strstr(result.text, "no keeper listens"));
}

#define ON_STAGE(test) cmocka_unit_test_setup_teardown(test, stage_make, stage_remove)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		ON_STAGE(daemon_and_keeper_become_the_newer_ones),
		ON_STAGE(a_hangup_upgrades_to_the_installed_binary),
		ON_STAGE(a_keeper_that_the_newer_one_cant_continue_stays),
		ON_STAGE(a_daemon_that_does_not_stop_is_killed),
		ON_STAGE(a_refused_check_changes_nothing),
		ON_STAGE(one_that_dies_at_start_changes_nothing),
		ON_STAGE(one_that_refuses_at_start_changes_nothing),
		ON_STAGE(a_file_that_is_no_program_changes_nothing),
		ON_STAGE(one_that_dies_before_it_is_ready_is_undone),
		ON_STAGE(one_that_gives_up_before_it_is_ready_is_undone),
		ON_STAGE(one_that_is_never_ready_is_undone),
		ON_STAGE(without_a_keeper_there_is_no_upgrade),
	};

	if (argc != 2)
		return 2;
	stage_set_actor(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
