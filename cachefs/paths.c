#include "paths.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fs/mountinfo.h"

#define SYMLINKS_MAX 16

/* In place, of an absolute path. */
static void normalize(char *path)
{
	char *to = path;

	for (const char *from = path; *from;) {
		size_t size;

		from += strspn(from, "/");
		size = strcspn(from, "/");
		if (size == 2 && !memcmp(from, "..", 2)) {
			while (to > path && *--to != '/')
				;
		} else if (size && !(size == 1 && *from == '.')) {
			*to++ = '/';
			memmove(to, from, size);
			to += size;
		}
		from += size;
	}
	if (to == path)
		*to++ = '/';
	*to = '\0';
}

char *path_absolute(const char *path)
{
	_cleanup_(freep) char *cwd = NULL;
	char *absolute;

	if (!*path) {
		errno = ENOENT;
		return NULL;
	}
	if (path[0] != '/') {
		cwd = getcwd(NULL, 0);
		if (!cwd)
			return NULL;
	}
	/* One byte more than needed: the normal form of "" is "/". */
	if (asprintf(&absolute, "%s/%s", cwd ? cwd : "", path) < 0) {
		errno = ENOMEM;
		return NULL;
	}
	normalize(absolute);
	return absolute;
}

/* find: mountinfo_at or mountinfo_above. */
static bool found_ours(const char *path,
	const struct mount *(*find)(const struct mountinfo *info, const char *path))
{
	struct mountinfo info;
	const struct mount *mount;
	bool ours;

	if (mountinfo_load(&info))
		return false;
	mount = find(&info, path);
	ours = mount && mount_is_ours(mount);
	mountinfo_free(&info);
	return ours;
}

bool path_is_mount(const char *path)
{
	return found_ours(path, mountinfo_at);
}

static bool is_below_mount(const char *path)
{
	return found_ours(path, mountinfo_above);
}

/* The parent by realpath, the last component as it is. */
static char *resolve_parent(const char *absolute)
{
	_cleanup_(freep) char *parent = strdup(absolute), *real = NULL;
	char *slash = parent ? strrchr(parent, '/') : NULL, *resolved;

	if (!slash || !slash[1])
		return steal_pointer(&parent);
	*slash = '\0';
	real = realpath(*parent ? parent : "/", NULL);
	if (!real)
		return NULL;
	if (asprintf(&resolved, "%s/%s", strcmp(real, "/") ? real : "", slash + 1) < 0) {
		errno = ENOMEM;
		return NULL;
	}
	return resolved;
}

/* readlink, unlike stat, asks no file system about the root of a mount. */
static char *read_link(const char *path)
{
	char target[PATH_MAX], *joined;
	ssize_t n = readlink(path, target, sizeof target - 1);
	int parent_size = (int)(strrchr(path, '/') - path);

	if (n < 0)
		return NULL;
	target[n] = '\0';
	if (target[0] == '/')
		return strdup(target);
	return asprintf(&joined, "%.*s/%s", parent_size, path, target) < 0 ? NULL : joined;
}

char *path_of_mountpoint(const char *path)
{
	char *current = path_absolute(path);

	for (int i = 0; current && i < SYMLINKS_MAX; i++) {
		_cleanup_(freep) char *before = current;
		_cleanup_(freep) char *target = NULL;

		if (path_is_mount(before))
			return steal_pointer(&before);
		current = resolve_parent(before);
		if (!current || path_is_mount(current))
			return current;
		target = read_link(current);
		if (!target)
			return current;
		free(current);
		current = path_absolute(target);
	}
	/* NULL: the path could not be made absolute, and errno says why. */
	if (current) {
		free(current);
		errno = ELOOP;
	}
	return NULL;
}

char *path_below_mounts(const char *path)
{
	_cleanup_(freep) char *absolute = path_absolute(path);
	char *real;

	if (!absolute || is_below_mount(absolute))
		return steal_pointer(&absolute);
	real = realpath(absolute, NULL);
	return real ? real : steal_pointer(&absolute);
}

char *path_resolved(const char *path)
{
	_cleanup_(freep) char *absolute = path_absolute(path);
	char *real;

	if (!absolute)
		return NULL;
	real = realpath(absolute, NULL);
	if (!real)
		real = resolve_parent(absolute);
	return real ? real : steal_pointer(&absolute);
}
