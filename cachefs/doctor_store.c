#include "doctor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/units.h"

#define SPACE_MIN_BYTES (10ull << 30)
#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif
#ifndef FUSE_SUPER_MAGIC
#define FUSE_SUPER_MAGIC 0x65735546
#endif

static const struct file_system {
	long magic;
	const char *name;
	enum finding level;
	const char *says;
} file_systems[] = {
	{EXT4_SUPER_MAGIC, "ext4", FINDING_OK, "good for passthrough"},
	{XFS_SUPER_MAGIC, "xfs", FINDING_OK, "good for passthrough"},
	{BTRFS_SUPER_MAGIC, "btrfs", FINDING_WARN,
		"works; copy-on-write costs speed: ext4 or xfs are faster"},
	{TMPFS_MAGIC, "tmpfs", FINDING_WARN,
		"is memory, and gone after a restart: use a directory on NVMe"},
	{OVERLAYFS_SUPER_MAGIC, "overlayfs", FINDING_WARN,
		"is a container's root: passthrough needs a deeper stack; use a volume on the "
		"host's "
		"disk"},
	{NFS_SUPER_MAGIC, "nfs", FINDING_FAIL, "is a network file system: use a local disk"},
	{FUSE_SUPER_MAGIC, "FUSE", FINDING_FAIL, "can't back passthrough: use a local disk"},
};

static void say_type(struct doctor *doctor, long magic)
{
	for (size_t i = 0; i < sizeof file_systems / sizeof file_systems[0]; i++) {
		if (file_systems[i].magic != magic)
			continue;
		doctor_say(doctor, file_systems[i].level, "store file system", "%s: %s",
			file_systems[i].name, file_systems[i].says);
		return;
	}
	doctor_say(doctor, FINDING_WARN, "store file system",
		"of a type that was not tried (0x%lx): ext4 or xfs are known to work", magic);
}

static void say_space(struct doctor *doctor, const struct statfs *fs)
{
	uint64_t free_bytes = (uint64_t)fs->f_bavail * (uint64_t)fs->f_bsize;
	char text[16];

	format_size(free_bytes, text, sizeof text);
	if (free_bytes >= SPACE_MIN_BYTES)
		doctor_say(doctor, FINDING_OK, "store space", "%s free", text);
	else
		doctor_say(doctor, FINDING_WARN, "store space",
			"%s free: little for weights; choose another directory with --store", text);
}

/* An unnamed file: it leaves nothing behind. */
static void say_direct_io(struct doctor *doctor, const char *dir)
{
	_cleanup_(closep) int fd = open(dir, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);

	if (fd >= 0)
		doctor_say(doctor, FINDING_OK, "store O_DIRECT", "works");
	else if (errno == EACCES || errno == EPERM || errno == EROFS)
		doctor_say(doctor, FINDING_FAIL, "store",
			"%s can't be written (%s): run as its owner, or choose another with "
			"--store",
			dir, strerror(errno));
	else
		doctor_say(doctor, FINDING_WARN, "store O_DIRECT",
			"not to be had here (%s): the store's IO is buffered", strerror(errno));
}

/* The lock file of the store, and in lock who has it. -errno: nothing is seen of it. */
static int open_lock(const char *store, struct flock *lock)
{
	_cleanup_(freep) char *name = NULL;
	_cleanup_(closep) int fd = -1;

	*lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
	if (asprintf(&name, "%s/lock", store) < 0) {
		name = NULL;
		return -ENOMEM;
	}
	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fcntl(fd, F_OFD_GETLK, lock) < 0)
		return -errno;
	return steal_fd(&fd);
}

bool doctor_store_is_held(const char *store)
{
	struct flock lock;
	_cleanup_(closep) int fd = open_lock(store, &lock);

	return fd < 0 ? fd != -ENOENT && fd != -ENOTDIR : lock.l_type != F_UNLCK;
}

static void say_holder(struct doctor *doctor, const char *store)
{
	struct flock lock;
	_cleanup_(closep) int fd = open_lock(store, &lock);
	char pid[32] = "";
	ssize_t n;

	if (fd < 0)
		return;
	n = read(fd, pid, sizeof pid - 1);
	pid[n > 0 ? n : 0] = '\0';
	pid[strspn(pid, "0123456789")] = '\0';
	if (lock.l_type == F_UNLCK)
		doctor_say(doctor, FINDING_OK, "store lock", "free");
	else
		doctor_say(doctor, FINDING_OK, "store lock", "held by the daemon with pid %s", pid);
}

/* The directory itself, or the nearest one above it that exists. */
static char *existing(const char *path)
{
	char *dir = strdup(path), *slash;

	while (dir && access(dir, F_OK) < 0 && (slash = strrchr(dir, '/'))) {
		if (slash == dir)
			slash++;
		if (!*slash)
			break;
		*slash = '\0';
	}
	return dir;
}

/* As the store tells it when it is opened: with FORMAT, empty, or half made. */
static bool may_be_store(const char *dir, char name[256])
{
	static const char *const own[] = {
		".", "..", "lost+found", "lock", "FORMAT", "FORMAT.new", "index", "raw"};
	_cleanup_(freep) char *format = NULL;
	struct dirent *entry;
	DIR *stream;

	name[0] = '\0';
	if (asprintf(&format, "%s/FORMAT", dir) < 0) {
		format = NULL;
		return true;
	}
	if (access(format, F_OK) == 0)
		return true;
	stream = opendir(dir);
	while (stream && !name[0] && (entry = readdir(stream))) {
		bool ours = false;

		for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
			ours |= !strcmp(entry->d_name, own[i]);
		if (!ours)
			snprintf(name, 256, "%s", entry->d_name);
	}
	if (stream)
		closedir(stream);
	return !name[0];
}

static void say_place(struct doctor *doctor, const char *store, const char *nearest)
{
	const char *rest = store + strlen(nearest);
	char name[256];
	struct stat st;

	if (stat(nearest, &st) < 0 || !S_ISDIR(st.st_mode))
		doctor_say(doctor, FINDING_FAIL, "store",
			"%s is no directory: choose another with --store", nearest);
	else if (*rest && strchr(rest + strspn(rest, "/"), '/'))
		doctor_say(doctor, FINDING_FAIL, "store",
			"the daemon can't make %s: make the directory above it, or choose another "
			"with --store",
			store);
	else if (*rest)
		doctor_say(doctor, FINDING_OK, "store", "%s will be made by the daemon", store);
	else if (!may_be_store(store, name))
		doctor_say(doctor, FINDING_FAIL, "store",
			"%s is no store and not empty (it has %s): choose an empty or a new "
			"directory with --store",
			store, name);
	else
		doctor_say(doctor, FINDING_OK, "store", "%s", store);
}

void doctor_store(struct doctor *doctor, const char *store)
{
	_cleanup_(freep) char *dir = existing(store);
	struct statfs fs;

	if (!dir || statfs(dir, &fs) < 0) {
		doctor_say(doctor, FINDING_FAIL, "store", "can't look at %s: %s", store,
			strerror(errno));
		return;
	}
	say_place(doctor, store, dir);
	say_type(doctor, fs.f_type);
	say_space(doctor, &fs);
	say_direct_io(doctor, dir);
	say_holder(doctor, store);
}
