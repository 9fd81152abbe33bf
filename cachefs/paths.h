/* paths: arguments made absolute without touching a mount, which may be dead. Results are
 * malloc'ed; NULL with errno set. */
#ifndef PATHS_H
#define PATHS_H

#include <stdbool.h>

/* Absolute, without empty, "." and ".." components; by text alone. */
char *path_absolute(const char *path);
/* Of a mountpoint: symlinks are followed, the mountpoint itself is not looked at. */
char *path_of_mountpoint(const char *path);
/* Of something that is or lies below one of our mounts; symlinks on the way there are followed. */
char *path_below_mounts(const char *path);
/* True if what is seen at this absolute path is a mount of ours: by mountinfo, never by stat, which
 * hangs or fails when the daemon is dead. */
bool path_is_mount(const char *path);
/* Of a file or directory that need not exist yet: symlinks are followed as far as it does. */
char *path_resolved(const char *path);

#endif
