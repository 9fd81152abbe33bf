/* mountinfo: /proc/self/mountinfo (proc_pid_mountinfo(5)), from which everything about mounts is
 * decided: a stat of a mountpoint whose daemon is dead hangs or fails. */
#ifndef FS_MOUNTINFO_H
#define FS_MOUNTINFO_H

#include <stdbool.h>
#include <stddef.h>

#define MOUNT_TYPE "fuse.cachefs"

struct mount {
	unsigned major, minor; /* of st_dev: the superblock */
	char *root;            /* what of the superblock is mounted, "/" for all */
	char *mountpoint;
	char *type, *source;
};

struct mountinfo {
	struct mount *mounts; /* in the order they were made */
	size_t count;
	char *text; /* that the strings lie in */
};

/* This process's. 0 or -errno. */
int mountinfo_load(struct mountinfo *ret);
/* text is malloc'ed, and owned by ret after success. Lines that make no sense are left out. */
int mountinfo_parse(char *text, struct mountinfo *ret);
void mountinfo_free(struct mountinfo *info);

bool mount_is_ours(const struct mount *mount);
/*
 * True when surely nobody serves it: no process has the device that its superblock (0:minor) belongs
 * to. Goes through /proc, so it blocks and costs a moment. False when that can't be known: in a pid
 * namespace that doesn't show all processes, or on a kernel that doesn't say whose a device is
 * (before 6.9).
 */
bool mount_is_dead(const struct mount *mount);
/* What is seen at exactly this path; NULL: no mount. Paths are absolute and normal. */
const struct mount *mountinfo_at(const struct mountinfo *info, const char *path);
/* The mount that holds this path. */
const struct mount *mountinfo_above(const struct mountinfo *info, const char *path);
/* The first mount of the superblock; whole: of all of it. NULL: none. */
const struct mount *mountinfo_of(
	const struct mountinfo *info, unsigned major, unsigned minor, bool whole);

/* "/a//b/./c/" to "/a/b/c", in place. -EINVAL: not absolute, or with "..". */
int path_normalize(char *path);

#endif
