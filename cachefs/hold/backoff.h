/*
 * backoff: how long a dead daemon's successor waits.
 *
 * Readers wait for it, so a daemon that was ready is followed at once, however soon it died: who
 * kills it is not it. Only one that dies within two seconds of READY again and again, as at a
 * request that kills each in turn, is slowed down, from the ninth time on, to one start a second.
 * One that dies before READY fails at its start: the second try waits 50 ms, then twice as long each
 * time, up to 5 s. A life of two seconds or more makes all forgotten.
 */
#ifndef HOLD_BACKOFF_H
#define HOLD_BACKOFF_H

#include <stdbool.h>
#include <stdint.h>

struct backoff {
	unsigned failed_starts, short_lives; /* in a row */
};

/* A daemon is dead, or was not to be started. ready_ns: how long it was ready; 0: it never was.
 * Returns the delay in ms. */
uint64_t backoff_after(struct backoff *backoff, uint64_t ready_ns);

#endif
