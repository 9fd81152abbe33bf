/* verify: reads what is present, and compares. */
#ifndef CACHE_VERIFY_H
#define CACHE_VERIFY_H

struct object;

/* Checks all present chunks in a worker, once at a time, and lets passthrough be granted if they
 * are right. object.lock held. */
void verify_later(struct object *object);

#endif
