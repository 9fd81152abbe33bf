/*
 * mountinfo: our mounts as the kernel lists them (proc_pid_mountinfo(5)). Commands decide by this
 * and never by stat of a mountpoint, which hangs or fails when the daemon is dead.
 */
#ifndef MOUNTINFO_H
#define MOUNTINFO_H

#include <stdbool.h>

#define MOUNT_TYPE "fuse.cachefs"

/* True if the topmost mount on this path is of our type. */
bool mountinfo_is_mount(const char *path);
/* True if path, an absolute one in normal form, lies at or below a mount of our type. */
bool mountinfo_is_below(const char *path);

#endif
