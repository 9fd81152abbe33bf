#include "mounting.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/fs.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "fs/mountinfo.h"

#define REMOVE_ROUNDS 1024
#define CONNECTIONS   "/sys/fs/fuse/connections"

static int load(struct mountinfo *ret, struct why *why)
{
	int r = mountinfo_load(ret);

	return r ? why_set(why, r, "/proc/self/mountinfo: %s", strerror(-r)) : 0;
}

/* A leftover of a daemon that is no more. Nothing of it can be asked, and nothing is lost. */
static bool remove_dead(const struct mount *mount)
{
	if (!mount_is_ours(mount) || !mount_is_dead(mount))
		return false;
	if (umount2(mount->mountpoint, UMOUNT_NOFOLLOW | MNT_DETACH) < 0)
		return false;
	log_warn("dead_mount_removed", "mountpoint=%s source=%s", mount->mountpoint, mount->source);
	return true;
}

static int check_no_mount(const char *path, struct mount_id *ret_mounted, struct why *why)
{
	struct mountinfo info;
	const struct mount *mount;
	bool again;
	int r;

	do {
		r = load(&info, why);
		if (r)
			return r;
		mount = mountinfo_at(&info, path);
		again = mount && remove_dead(mount);
		if (mount && !again) {
			*ret_mounted = (struct mount_id){mount->major, mount->minor};
			r = why_set(why, -EBUSY,
				"%s is a mount already (%s of %s); unmount it first, or give "
				"another directory",
				path, mount->type, mount->source);
		}
		mountinfo_free(&info);
	} while (again);
	return r;
}

static int check_empty(const char *path, struct why *why)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	bool empty = true;

	if (!dir && errno == ENOTDIR)
		return why_set(why, -ENOTDIR, "%s is no directory; give an empty one", path);
	if (!dir)
		return why_set(why, -errno, "%s: %s", path, strerror(errno));
	while (empty && (entry = readdir(dir)))
		empty = !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..");
	closedir(dir);
	return empty ? 0
		     : why_set(why, -ENOTEMPTY,
			       "%s is not empty, and a mount would hide what is in it; give an "
			       "empty directory",
			       path);
}

int mounting_check(
	const char *mountpoint, char **ret, struct mount_id *ret_mounted, struct why *why)
{
	_cleanup_(freep) char *path = strdup(mountpoint), *real = NULL;
	int r;

	*ret_mounted = (struct mount_id){0};
	if (!path)
		return why_set(why, -ENOMEM, "out of memory");
	if (path_normalize(path))
		return why_set(why, -EINVAL, "mountpoint %s: give an absolute path without ..",
			mountpoint);
	r = check_no_mount(path, ret_mounted, why);
	if (r)
		return r;
	real = realpath(path, NULL);
	if (!real && errno == ENOENT)
		return why_set(
			why, -ENOENT, "mountpoint %s does not exist; make the directory", path);
	if (!real)
		return why_set(why, -errno, "mountpoint %s: %s", path, strerror(errno));
	r = check_no_mount(real, ret_mounted, why);
	if (!r)
		r = check_empty(real, why);
	if (!r)
		*ret = steal_pointer(&real);
	return r;
}

int mounting_protect(const char *mountpoint, struct why *why)
{
	_cleanup_(closep) int fd = open(mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	long flags;

	if (fd < 0 || ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0)
		return why_set(why, -errno, "option protect: %s: %s", mountpoint, strerror(errno));
	if (flags & FS_IMMUTABLE_FL)
		return 0;
	flags |= FS_IMMUTABLE_FL;
	if (ioctl(fd, FS_IOC_SETFLAGS, &flags) == 0)
		return 0;
	if (errno == EPERM)
		return why_set(why, -EPERM,
			"option protect: %s can't be made immutable: the daemon lacks "
			"CAP_LINUX_IMMUTABLE; give it that, or leave the option out",
			mountpoint);
	return why_set(why, -errno,
		"option protect: %s can't be made immutable (%s); leave the option out, or "
		"give a directory of ext4, XFS or Btrfs",
		mountpoint, strerror(errno));
}

static int find_mount(const char *mountpoint, struct mount_id *ret, struct why *why)
{
	struct mountinfo info;
	const struct mount *mount;
	int r = load(&info, why);

	if (r)
		return r;
	mount = mountinfo_at(&info, mountpoint);
	if (mount && mount_is_ours(mount))
		*ret = (struct mount_id){mount->major, mount->minor};
	else
		r = why_set(why, -EIO, "%s was mounted, and is no mount of ours now", mountpoint);
	mountinfo_free(&info);
	return r;
}

int mounting_new(int device, const char *source, const char *mountpoint, bool allow_other,
	struct mount_id *ret, struct why *why)
{
	char data[256];
	int r;

	snprintf(data, sizeof data,
		"fd=%d,rootmode=40000,user_id=%u,group_id=%u,default_permissions%s", device,
		geteuid(), getegid(), allow_other ? ",allow_other" : "");
	if (mount(source, mountpoint, MOUNT_TYPE, MS_RDONLY | MS_NOSUID | MS_NODEV, data) < 0) {
		r = -errno;
		return why_set(why, r, "mounting on %s: %s%s", mountpoint, strerror(-r),
			r == -EPERM ? "; the daemon needs CAP_SYS_ADMIN, run it as root" : "");
	}
	r = find_mount(mountpoint, ret, why);
	if (r)
		umount2(mountpoint, UMOUNT_NOFOLLOW | MNT_DETACH);
	return r;
}

/*
 * A copy of the mount at path, attached nowhere yet, if it is one of this superblock: by now another
 * thread may have unmounted it, and a bind mount of the path would show what lies below, writable.
 * The descriptor, -ENOENT, or -errno.
 */
static int clone_mount(const char *path, struct mount_id id)
{
	_cleanup_(closep) int fd = (int)syscall(SYS_open_tree, AT_FDCWD, path,
		OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_NO_AUTOMOUNT | AT_SYMLINK_NOFOLLOW);
	struct statx st;

	/* Without asking the file system: it may be dead. */
	if (fd < 0 || statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) < 0)
		return -errno;
	if (st.stx_dev_major != id.major || st.stx_dev_minor != id.minor)
		return -ENOENT;
	return steal_fd(&fd);
}

int mounting_clone(struct mount_id id, int *ret_tree, struct why *why)
{
	struct mountinfo info;
	const struct mount *from;
	int tree, r = load(&info, why);

	if (r)
		return r;
	from = mountinfo_of(&info, id.major, id.minor, true);
	tree = from ? clone_mount(from->mountpoint, id) : -ENOENT;
	if (tree >= 0)
		*ret_tree = tree;
	else if (tree == -ENOENT)
		r = tree;
	else
		r = why_set(
			why, tree, "copying the mount %s: %s", from->mountpoint, strerror(-tree));
	mountinfo_free(&info);
	return r;
}

int mounting_attach(int tree, const char *mountpoint, struct why *why)
{
	if (!syscall(SYS_move_mount, tree, "", AT_FDCWD, mountpoint, MOVE_MOUNT_F_EMPTY_PATH))
		return 0;
	return why_set(why, errno == ENOENT ? -EIO : -errno, "mounting on %s: %s", mountpoint,
		strerror(errno));
}

/* The mount at path, or where its symbolic links lead; the text that was found is ret_path. Resolving
 * links asks no mounted file system for anything. NULL: none. */
static const struct mount *find_ours(
	const struct mountinfo *info, const char *path, char **ret_path)
{
	const struct mount *mount = mountinfo_at(info, path);

	*ret_path = mount ? strdup(path) : realpath(path, NULL);
	if (!mount && *ret_path)
		mount = mountinfo_at(info, *ret_path);
	return mount && *ret_path && mount_is_ours(mount) ? mount : NULL;
}

static int explain_remove(const char *path, int error, struct why *why)
{
	switch (error) {
	case 0:
		return 0;
	case -EINVAL:
		return why_set(why, error, "%s is no mount of cachefs; see cachefs status", path);
	case -EBUSY:
		return why_set(why, error,
			"%s is in use: close the files and leave the directories below it, or "
			"detach it with --force",
			path);
	default:
		return why_set(why, error, "unmounting %s: %s", path, strerror(-error));
	}
}

int mounting_remove(const char *mountpoint, bool force, struct why *why)
{
	_cleanup_(freep) char *path = strdup(mountpoint), *found = NULL;
	struct mountinfo info;
	int r;

	if (!path)
		return why_set(why, -ENOMEM, "out of memory");
	if (path_normalize(path))
		return why_set(why, -EINVAL, "mountpoint %s: give an absolute path without ..",
			mountpoint);
	r = load(&info, why);
	if (r)
		return r;
	if (!find_ours(&info, path, &found))
		r = -EINVAL;
	else if (umount2(found, UMOUNT_NOFOLLOW | (force ? MNT_DETACH : 0)) < 0)
		r = -errno;
	mountinfo_free(&info);
	return explain_remove(path, r, why);
}

static bool remove_one(struct mount_id id)
{
	struct mountinfo info;
	const struct mount *mount;
	bool removed = false;

	if (mountinfo_load(&info))
		return false;
	mount = mountinfo_of(&info, id.major, id.minor, false);
	if (mount && mount_is_ours(mount))
		removed = !umount2(mount->mountpoint, UMOUNT_NOFOLLOW) ||
			  !umount2(mount->mountpoint, UMOUNT_NOFOLLOW | MNT_DETACH);
	mountinfo_free(&info);
	return removed;
}

void mounting_remove_all(struct mount_id id)
{
	for (int i = 0; i < REMOVE_ROUNDS && remove_one(id); i++)
		continue;
}

static int write_text(const char *path, const char *text)
{
	_cleanup_(closep) int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		return -errno;
	return 0;
}

void mounting_abort(struct mount_id id)
{
	char path[64];
	int r;

	/* The connection's name is its st_dev as the kernel has it: major 0, so the minor. */
	snprintf(path, sizeof path, CONNECTIONS "/%u/abort", id.minor);
	r = write_text(path, "1");
	/* In a container nobody may have mounted it. */
	if (r == -ENOENT &&
		!mount("fusectl", CONNECTIONS, "fusectl", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL))
		r = write_text(path, "1");
	if (r)
		log_warn("abort_failed", "connection=%u error=%s", id.minor, strerror(-r));
}

void mounting_set_readahead(struct mount_id id, uint64_t bytes)
{
	char path[64], text[32];
	int r;

	snprintf(path, sizeof path, "/sys/class/bdi/%u:%u/read_ahead_kb", id.major, id.minor);
	snprintf(text, sizeof text, "%llu", (unsigned long long)(bytes >> 10));
	r = write_text(path, text);
	if (r)
		log_warn("readahead_not_set", "path=%s error=%s", path, strerror(-r));
}
