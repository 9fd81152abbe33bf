/* connection: whether anybody serves a FUSE superblock, found out without asking it. */
#ifndef FS_CONNECTION_H
#define FS_CONNECTION_H

#include <stdbool.h>

/*
 * True when surely nobody does: no process has the device that the superblock of this st_dev (0:minor)
 * belongs to. Goes through /proc, so it blocks and costs a moment. False when that can't be known: in
 * a pid namespace that doesn't show all processes, or on a kernel that doesn't say whose a device is
 * (before 6.9).
 */
bool connection_is_dead(unsigned minor);

#endif
