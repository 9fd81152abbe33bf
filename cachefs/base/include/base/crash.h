/*
 * crash: named points at which a test may have the daemon killed.
 *
 * With CACHEFS_CRASH_AT=name or name:n in the environment the process ends by SIGKILL, as by the
 * kernel's out-of-memory killer, when it passes the point of that name for the n-th time. Otherwise
 * a point costs one branch. Any thread.
 */
#ifndef BASE_CRASH_H
#define BASE_CRASH_H

#include <stdbool.h>

extern bool crash_armed; /* constant once there are threads */

/* spec as in the environment, which is taken at the program's start; NULL or "" disarms. A test's
 * child calls it itself. */
void crash_arm(const char *spec);
void crash_passed(const char *name);

static inline void crash_point(const char *name)
{
	if (__builtin_expect(crash_armed, 0))
		crash_passed(name);
}

#endif
