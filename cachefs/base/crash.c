#include "base/crash.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool crash_armed;
static char point[64];
static _Atomic unsigned long passes_left;

void crash_arm(const char *spec)
{
	char *colon;

	crash_armed = spec && *spec;
	if (!crash_armed)
		return;
	snprintf(point, sizeof point, "%s", spec);
	colon = strchr(point, ':');
	passes_left = colon ? strtoul(colon + 1, NULL, 10) : 1;
	if (colon)
		*colon = '\0';
}

void crash_passed(const char *name)
{
	if (!strcmp(name, point) && atomic_fetch_sub(&passes_left, 1) == 1)
		kill(getpid(), SIGKILL);
}

/* Before main: every program that has such points obeys, without having to think of it. */
__attribute__((constructor)) static void arm_from_environment(void)
{
	crash_arm(getenv("CACHEFS_CRASH_AT"));
}
