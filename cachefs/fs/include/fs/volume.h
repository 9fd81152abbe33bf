/*
 * volume: an origin's prefix as a directory. One FUSE superblock for each (source, identity,
 * options); every further mount is a bind mount of it.
 *
 * These calls block (mount(2), origin checks); call them from a thread that may. All are safe from
 * any thread.
 */
#ifndef FS_VOLUME_H
#define FS_VOLUME_H

#include "cache/cache.h"
#include "cache/object.h"
#include "cache/tree.h"
#include "fs/options.h"
#include "origin/origin.h"
#include "origin/probe.h"

struct volumes; /* all of the daemon's */
struct volume;

/* Probes the kernel's features once. idle: called (any thread) when the last volume has ended; may
 * be NULL. */
int volumes_new(struct cache *cache, struct origin_engine *engine, void (*idle)(void *arg),
	void *arg, struct volumes **ret, struct why *why);
/* Unmounts what is left (detached when busy) and waits for the sessions' end. */
void volumes_free(struct volumes *volumes);

/*
 * Mounts source on mountpoint (absolute). Refused with why, nothing changed: unknown scheme,
 * missing bucket, credentials that the origin denies, an origin out of reach, a mountpoint that is
 * missing, no directory, not empty, or a mount already, no /dev/fuse, no privilege, or a
 * source that is a file. ret_found: whether names are there, which if not may be a typo; not asked
 * when another mount of the volume is there.
 */
int volumes_mount(struct volumes *volumes, const char *source, const char *mountpoint,
	const char *options, enum origin_finding *ret_found, struct why *why);
/* force: detaches (MNT_DETACH) a busy one. -EINVAL: not a mount of ours; -EBUSY: names what to do.
 * Returns when the mount is gone from this namespace. */
int volumes_umount(struct volumes *volumes, const char *mountpoint, bool force, struct why *why);

/* The volume and the path in it (malloc'ed, "" for its root) of an absolute path below one of its
 * mountpoints, found by mountinfo and text, never by stat. Takes a reference. -ENOENT with why. */
int volumes_find(struct volumes *volumes, const char *path, struct volume **ret, char **ret_inner,
	struct why *why);
void volume_unref(struct volume *volume);
/* Visits all; the callback gets no reference to keep and must not call volumes_*. */
void volumes_each(
	struct volumes *volumes, void (*each)(void *arg, struct volume *volume), void *arg);
/* What the origins of volumes that have ended counted: counters of the daemon never fall. */
void volumes_ended_stats(struct volumes *volumes, struct origin_stats *ret);

/*
 * Who keeps descriptors beyond this process's life, for a successor; all NULL: nobody. Called
 * without locks, each call for one volume after the other.
 */
struct volumes_keeper {
	/* device -1: another description of what it has. 0 or -errno, which refuses the mount. */
	int (*put)(void *arg, uint64_t id, const char *description, int device, int table);
	void (*drop)(void *arg, uint64_t id);
	void *arg;
};
/* Before the first volume. */
void volumes_set_keeper(struct volumes *volumes, const struct volumes_keeper *keeper);
/*
 * Takes over a volume that another daemon served, who has ended or stopped: text is the description
 * as given to put. Owns the descriptors, also on failure. Asks the origin nothing. 0 also if the volume has ended
 * meanwhile (it is dropped). -errno with why: the connection and what the keeper has are as before,
 * and its requests wait.
 */
int volumes_resume(struct volumes *volumes, uint64_t id, const char *text, int device, int table,
	struct why *why);
/* 0 if volumes_resume would understand this session table; right while a daemon uses it. Else -errno
 * with why. */
int volumes_check_table(int table, struct why *why);
/*
 * A planned hand-over: no request is read any more, what is parked is left to the successor, new
 * mounts are refused. Returns when no thread answers requests and no session table changes any more.
 * volumes_free leaves the mounts alone after it.
 */
void volumes_stop(struct volumes *volumes);

struct volume_info {
	uint64_t id;                             /* unique in the daemon's life */
	const char *source, *identity, *options; /* the volume's */
	char mountpoint[4096]; /* the first one of mountinfo, "" when none is left */
	unsigned mounts;       /* how many */
	bool read_only, passthrough;
	struct cache_account *account;
	uint64_t requests, lookups, reads, opens, estale_opens;
	uint64_t nodes, handles, parked; /* now */
};
void volume_info(struct volume *volume, struct volume_info *ret);
struct origin *volume_origin(struct volume *volume);
struct tree *volume_tree(struct volume *volume);
struct cache *volume_cache(struct volume *volume);

struct kernel_features {
	bool passthrough, resend, big_requests, handle_killpriv_v2, io_uring, io_uring_fuse;
	unsigned max_request_bytes;
	unsigned default_request_timeout_s,
		max_request_timeout_s; /* sysctls; 0: none, or not there */
	char passthrough_reason[128];  /* why not, "" */
};
/* What the kernel has (by version and probing), and what the store allows. Any time. */
void kernel_features(const struct volumes *volumes, struct kernel_features *ret);

#endif
