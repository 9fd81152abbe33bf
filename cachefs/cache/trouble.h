/*
 * trouble: a store whose disk fails, or is gone. For a while after an error nothing is written to
 * it; and when it was one of the medium, nothing is passed through, so that every byte comes by the
 * daemon, which checks it and asks the origin for what can't be read. Then the disk is tried again.
 * Any thread.
 */
#ifndef CACHE_TROUBLE_H
#define CACHE_TROUBLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct cache;

struct trouble {
	_Atomic uint64_t unwritable_until_ns, unreadable_until_ns;
	_Atomic uint64_t short_until_ns; /* the log was told of a shortage */
};

/* Counts the error; one line of log for all of a while. object: "" for none. */
void trouble_note(struct cache *cache, const char *event, const char *object, int error);
bool trouble_forbids_writes(struct cache *cache);
bool trouble_forbids_passthrough(struct cache *cache);

#endif
