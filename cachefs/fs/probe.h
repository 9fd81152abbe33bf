/* probe: is the origin there, and does it let us in, before anything is mounted. */
#ifndef FS_PROBE_H
#define FS_PROBE_H

#include "base/why.h"
#include "origin/origin.h"

/* Lists one entry of the root. Blocks for at most the origin's time-out. 0, -EACCES, -ENOENT,
 * -EIO, … with why. */
int probe_origin(struct origin *origin, struct why *why);

#endif
