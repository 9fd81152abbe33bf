/*
 * waiting: one thread that waits for the one answer which another gives, as of a request with a
 * done callback:
 *
 *     waiting_begin(&waiting);
 *     start a request whose done calls waiting_end(&waiting, error);
 *     error = waiting_wait(&waiting);
 */
#ifndef BASE_WAITING_H
#define BASE_WAITING_H

#include <stdbool.h>

#include "base/lock.h"

struct waiting {
	struct lock lock;
	struct cond ended;
	bool done; /* lock */
	int error; /* lock */
};

void waiting_begin(struct waiting *waiting);
/* Once; any thread. What it points to may be gone when it returns. Doesn't block. */
void waiting_end(struct waiting *waiting, int error);
/* The error. The struct can be begun anew after it. Blocks without a time limit. */
int waiting_wait(struct waiting *waiting);

#endif
