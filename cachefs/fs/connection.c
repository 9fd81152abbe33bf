/* connection: whether anybody serves a mount, found out without asking it. */
#include "fs/mountinfo.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEVICE "/dev/fuse"
/* Of the first pid namespace (namespaces(7)), in which all processes are seen. */
#define INITIAL_PID_NAMESPACE 0xEFFFFFFCu

static bool sees_all_processes(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) == 0 && st.st_ino == INITIAL_PID_NAMESPACE;
}

/* Is this descriptor the superblock's device, or may it be? */
static bool may_serve(const char *pid, const char *fd, unsigned minor)
{
	char path[600], line[128], target[sizeof DEVICE + 1];
	unsigned connection;
	bool known = false, mine = false;
	ssize_t n;
	FILE *file;

	snprintf(path, sizeof path, "/proc/%.255s/fd/%.255s", pid, fd);
	n = readlink(path, target, sizeof target);
	if (n != sizeof DEVICE - 1 || memcmp(target, DEVICE, sizeof DEVICE - 1))
		return false;
	snprintf(path, sizeof path, "/proc/%.255s/fdinfo/%.255s", pid, fd);
	file = fopen(path, "re");
	if (!file)
		return errno != ENOENT;
	while (fgets(line, sizeof line, file)) {
		if (sscanf(line, "fuse_connection: %u", &connection) == 1) {
			known = true;
			mine = connection == minor;
		}
	}
	fclose(file);
	return mine || !known;
}

static bool process_may_serve(const char *pid, unsigned minor)
{
	char path[300];
	struct dirent *entry;
	bool may = false;
	DIR *dir;

	snprintf(path, sizeof path, "/proc/%.255s/fd", pid);
	dir = opendir(path);
	if (!dir)
		return errno != ENOENT;
	while (!may && (entry = readdir(dir)))
		may = isdigit((unsigned char)entry->d_name[0]) &&
		      may_serve(pid, entry->d_name, minor);
	closedir(dir);
	return may;
}

bool mount_is_dead(const struct mount *mount)
{
	DIR *dir = sees_all_processes() ? opendir("/proc") : NULL;
	struct dirent *entry;
	bool served = !dir;

	while (!served && (entry = readdir(dir)))
		served = isdigit((unsigned char)entry->d_name[0]) &&
			 process_may_serve(entry->d_name, mount->minor);
	if (dir)
		closedir(dir);
	return !served;
}
