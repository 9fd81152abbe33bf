/*
 * volume_private: what the files about volumes share: volume.c has their life, volume_mount.c how they
 * are asked for and mounted, volume_find.c how they are looked at.
 *
 * A volume's life: MOUNTING (in the list so that nobody mounts the same beside it), MOUNTED, and
 * gone from the list when its device has ended. The reaper, one thread a volume, waits for that,
 * frees the fs, and drops the list's reference. The fs may be looked at under the volumes' lock
 * only.
 */
#ifndef FS_VOLUME_PRIVATE_H
#define FS_VOLUME_PRIVATE_H

#include "base/list.h"
#include "base/lock.h"
#include "fs/volume.h"
#include "fs.h"
#include "mounting.h"

enum state { MOUNTING, MOUNTED };

struct volumes {
	struct lock lock;
	struct cond changed; /* a state, or the end of a reaper */
	struct list list;    /* lock */
	struct list busy;    /* lock; mountpoints that are being mounted on */
	uint64_t next_id;    /* lock */
	unsigned reapers;    /* lock */
	/* lock; calls under way. They keep each other out: a mount that is being copied is in use,
	 * and its umount would fail. */
	unsigned binds, umounts;
	struct cache *cache;
	struct origin_engine *engine;
	void (*idle)(void *arg);
	void *arg;
	struct kernel_features features; /* constant */
};

struct volume {
	struct list link; /* lock */
	struct volumes *volumes;
	_Atomic unsigned refs;
	uint64_t id;
	char *source, *identity, *normal; /* constant, and what tells two volumes apart */
	struct volume_options options;
	struct origin *origin;
	struct tree *tree;
	struct cache_account account;
	enum state state;        /* lock */
	bool hidden;             /* lock; no mount of the whole is left here: nobody joins it */
	struct mount_id mounted; /* lock */
	struct fs *fs;           /* lock; NULL before and after */
};

struct volume *volume_ref(struct volume *volume);
/* The caller holds the lock. */
bool volume_is_at(const struct volume *volume, struct mount_id id);
/* Its st_dev is its own: the superblock lives. The caller holds the lock; the look at the device
 * doesn't wait. */
bool volume_is_alive(const struct volume *volume);
/* The same for a caller who doesn't hold the lock. */
bool volume_look_alive(struct volume *volume);
/* Takes it out of the list; returns with the list's reference. The caller holds the lock. True: it
 * was the last. */
bool volume_leave_list(struct volume *volume);
/* A superblock for a volume in the list; its reaper owns the list's reference after success. */
int volume_mount_new(struct volume *volume, const char *mountpoint, struct why *why);

#endif
