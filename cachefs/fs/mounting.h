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
 * never stat'ed then).
 */
int mounting_check(
	const char *mountpoint, char **ret, struct mount_id *ret_mounted, struct why *why);
/* A new superblock, read-only, over device. */
int mounting_new(int device, const char *source, const char *mountpoint, bool allow_other,
	struct mount_id *ret, struct why *why);
/* One more mount of it. -ENOENT, why untouched: none of the whole is left in this namespace. */
int mounting_bind(struct mount_id id, const char *mountpoint, struct why *why);
/* -EINVAL: no mount of this type; -EBUSY. */
int mounting_remove(const char *mountpoint, bool force, struct why *why);
/* All mounts of the superblock in this namespace, detached when busy. */
void mounting_remove_all(struct mount_id id);
/* Ends a connection that detached mounts or other namespaces keep alive: its readers get errors. */
void mounting_abort(struct mount_id id);
/* The kernel's readahead of this superblock. A failure is logged and costs speed only. */
void mounting_set_readahead(struct mount_id id, uint64_t bytes);

#endif
