/* probe: is the origin there, and does it let us in? */
#ifndef ORIGIN_PROBE_H
#define ORIGIN_PROBE_H

#include <stdbool.h>

#include "base/why.h"
#include "origin/origin.h"

/*
 * Lists one name of the directory at path ("" is the root). ret_found (NULL is allowed) tells
 * whether there was one: of a web server's root that has no index there need not be. Errors are
 * those of a listing; why says of the origin what it does and what to do about it ("denies access
 * to …: check …"), without naming it. Blocks for at most the origin's time-out; not on a thread of
 * the engine.
 */
int origin_probe(struct origin *origin, const char *path, bool *ret_found, struct why *why);

/*
 * Whether a web server answers a range with the whole file, found out by one byte of the first file in
 * the directory. False also where none tells. Blocks for at most three times the origin's time-out; not
 * on a thread of the engine.
 */
bool origin_ignores_ranges(struct origin *origin, const char *path);

#endif
