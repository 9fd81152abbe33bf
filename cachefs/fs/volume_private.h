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
	struct cond changed;       /* a state, or the end of a reaper */
	struct list list;          /* lock */
	struct list busy;          /* lock; mountpoints that are being mounted on */
	uint64_t next_id;          /* lock */
	unsigned reapers;          /* lock */
	struct origin_stats ended; /* lock; sums of volumes that are gone */
	/* lock; calls under way. They keep each other out: a mount that is being copied is in use,
	 * and its umount would fail. */
	unsigned binds, umounts;
	unsigned starts;              /* lock; superblocks being made: a hand-over waits for them */
	bool stopping;                /* lock; for a hand-over */
	struct volumes_keeper keeper; /* constant */
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
	char *source, *identity, *normal;   /* constant, and what tells two volumes apart */
	char *given_source, *given_options; /* constant; as they were asked for */
	struct volume_options options;
	struct origin *origin;
	struct tree *tree;
	struct cache_account account;
	enum state state;        /* lock */
	bool hidden;             /* lock; no mount of the whole is left here: nobody joins it */
	struct mount_id mounted; /* lock */
	struct fs *fs;           /* lock; NULL before and after */
	bool being_stopped;      /* lock; the reaper waits with the fs */
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
/* A volume that is in no list yet; ret_source is the source with its subdir, malloc'ed. */
int volume_new(struct volumes *volumes, const char *source, const char *options,
	struct volume **ret, char **ret_source, struct why *why);
/* What the fs needs, but for its device; makes the tree. */
int volume_fs_config(struct volume *volume, struct fs_config *ret, struct why *why);
/* The fs is started: from here on the reaper owns it and the list's reference. */
int volume_start_reaper(struct volume *volume, struct fs *fs, struct mount_id id);
/* Ends an fs that was never given to a reaper. */
void volume_end_fs(struct volume *volume, struct fs *fs);
/* True: a superblock may be made or taken over; then volume_end_start. */
bool volume_begin_start(struct volume *volume);
void volume_end_start(struct volume *volume);
/* Tells the keeper, if there is one. device -1: again. */
int volume_keep(struct volume *volume, const char *mountpoint, struct mount_id id, int device,
	int table, struct why *why);
void volume_unkeep(struct volume *volume);
/* A superblock for a volume in the list; its reaper owns the list's reference after success. */
int volume_mount_new(struct volume *volume, const char *mountpoint, struct why *why);

#endif
