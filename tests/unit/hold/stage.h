/*
 * stage: a keeper that runs the actor's plan, in a directory of its own, and what it and its
 * daemons say.
 */
#ifndef TEST_HOLD_STAGE_H
#define TEST_HOLD_STAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct stage {
	char dir[64], socket[128], line[256];
	char binary[128], newer[128]; /* two copies of the actor */
	int log, device;              /* read ends */
	pid_t keeper;
	size_t buffered;
	char buffer[4096];
};

/* The program that the tests' own arguments name. */
void stage_set_actor(const char *path);
/* cmocka's set-up and tear-down; the latter ends the keeper and its daemon if they still run. */
int stage_make(void **state);
int stage_remove(void **state);
/* Runs the keeper. plan: a line for each daemon; those after it serve. */
void stage_begin(
	struct stage *stage, const char *plan, const char *abort_after, const char *watchdog);
void stage_plan(struct stage *stage, const char *plan);
/* The next line that begins so; others before it are passed over. Fails when none comes. */
const char *stage_wait(struct stage *stage, const char *begin);
/* The pid of the next daemon to start. */
pid_t stage_wait_start(struct stage *stage);
/* The next line of what was written to the device. */
void stage_device_reads(struct stage *stage, const char *text);
/* Returns when nobody has the device open any more. */
void stage_device_ends(struct stage *stage);
/* The keeper's exit status; it must end by itself. */
int stage_wait_end(struct stage *stage);

#endif
