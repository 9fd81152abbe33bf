/* clock: the two clocks of the daemon. Any thread. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

#define NS_PER_MS  1000000ull
#define NS_PER_SEC 1000000000ull

/* CLOCK_MONOTONIC: intervals, deadlines, freshness in this life of the daemon. */
uint64_t clock_now_ns(void);
/* CLOCK_REALTIME: what is written to disk or shown to people. */
int64_t clock_wall_ns(void);

#endif
