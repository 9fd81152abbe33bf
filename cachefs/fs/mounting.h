/* mounting: mount(2) and what surrounds it. Everything here blocks. */
#ifndef FS_MOUNTING_H
#define FS_MOUNTING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/why.h"
#include "fs/options.h"

struct mount_id {
	unsigned major, minor; /* of the superblock; 0:0 is none */
};

/*
 * mountpoint, absolute, in its normal form without symbolic links, malloc'ed. Refused with why: not
 * absolute, missing, no directory, not empty, or a mount already (ret_mounted says of what; it is
 * never stat'ed then). A mount of this type that nobody serves any more is detached first.
 */
int mounting_check(
	const char *mountpoint, char **ret, struct mount_id *ret_mounted, struct why *why);
/* The directory below the mount becomes immutable, and stays so after it: who comes before a mount
 * gets EPERM, and doesn't write to the host's disk. */
int mounting_protect(const char *mountpoint, struct why *why);
/* A new superblock, read-only, over device. */
int mounting_new(int device, const char *source, const char *mountpoint, bool allow_other,
	struct mount_id *ret, struct why *why);
/*
 * A copy of a mount of all of the superblock, attached nowhere yet. While the descriptor is open
 * the superblock lives; the caller has to see that it is the one that was meant, since an st_dev is
 * used again as soon as it is free. -ENOENT, why untouched: none is left in this namespace.
 */
int mounting_clone(struct mount_id id, int *ret_tree, struct why *why);
int mounting_attach(int tree, const char *mountpoint, struct why *why);
/* -EINVAL: no mount of this type; -EBUSY. */
int mounting_remove(const char *mountpoint, bool force, struct why *why);
/* All mounts of the superblock in this namespace, detached when busy. For this and what follows the
 * superblock must live. */
void mounting_remove_all(struct mount_id id);
/* Ends a connection that detached mounts or other namespaces keep alive: its readers get errors. */
void mounting_abort(struct mount_id id);
/* The kernel's readahead of this superblock. A failure is logged and costs speed only. */
void mounting_set_readahead(struct mount_id id, uint64_t bytes);

#endif
