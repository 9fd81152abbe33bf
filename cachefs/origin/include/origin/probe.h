/* probe: is the origin there, and does it let us in? */
#ifndef ORIGIN_PROBE_H
#define ORIGIN_PROBE_H

#include <stdbool.h>

#include "base/why.h"
#include "origin/origin.h"

enum origin_finding {
	ORIGIN_HAS_NAMES,
	ORIGIN_EMPTY,
	ORIGIN_UNLISTED, /* a web server that has no index there: known paths may be opened */
};

/*
 * Lists one name of the directory at path ("" is the root). Errors are those of a listing; why says
 * of the origin what it does and what to do about it ("denies access to …: check …"), without naming
 * it. Blocks for at most the origin's time-out; not on a thread of the engine.
 */
int origin_probe(
	struct origin *origin, const char *path, enum origin_finding *ret, struct why *why);

/*
 * For a source in which no names were found: -ENOTDIR with why when it is a file, by asking for its
 * last component where the rest of it is the root. 0 otherwise, also when that can't be asked. Blocks
 * as origin_probe.
 */
int origin_probe_file(
	struct origin_engine *engine, const struct origin_config *config, struct why *why);

/*
 * Whether a web server answers a range with the whole file, found out by one byte of the first file in
 * the directory. False also where none tells. Blocks for at most three times the origin's time-out; not
 * on a thread of the engine.
 */
bool origin_ignores_ranges(struct origin *origin, const char *path);

#endif
