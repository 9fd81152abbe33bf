/* wait: requests to an origin, made and waited for. */
#ifndef TEST_WAIT_H
#define TEST_WAIT_H

#include <semaphore.h>

#include "origin/origin.h"

struct wait_get {
	struct origin_get get;
	sem_t done, paused;
	int error;
	char bytes[1 << 20];
	size_t size;
	size_t pause_at; /* data takes no more than up to here, once; 0: never pauses */
};
/* Starts it; everything but data and done is filled in by the caller. */
void wait_get_start(struct wait_get *own);
/* Waits for done, returns its error. */
int wait_get_done(struct wait_get *own);
int wait_get(struct wait_get *own);

int wait_stat(struct origin *origin, const char *path, struct origin_attr *ret);

struct wait_list {
	char names[65536]; /* "name\n", "name/\n", sorted by nobody */
	uint64_t hidden;
	unsigned pages;
};
/* All pages. */
int wait_list(struct origin *origin, const char *path, struct wait_list *ret);

#endif
