/* A damaged index is never thrown away: it goes beside the store's, for whoever wants to look. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "index/index.h"

static int name_aside(const char *dir, unsigned number, char name[PATH_MAX])
{
	int n = number == 1 ? snprintf(name, PATH_MAX, "%s" INDEX_ASIDE, dir)
			    : snprintf(name, PATH_MAX, "%s" INDEX_ASIDE "-%u", dir, number);

	return n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int sync_parent(const char *dir)
{
	_cleanup_(closep) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_(closep) int parent = -1;

	if (fd >= 0)
		parent = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return parent < 0 || fsync(parent) < 0 ? -errno : 0;
}

/* The first name that is free. */
static int find_name(const char *dir, char name[PATH_MAX])
{
	struct stat st;

	for (unsigned i = 1; i <= INDEX_ASIDE_MAX; i++) {
		int r = name_aside(dir, i, name);

		if (r)
			return r;
		if (lstat(name, &st) < 0)
			return errno == ENOENT ? 0 : -errno;
	}
	return -EEXIST;
}

unsigned index_count_aside(const char *dir)
{
	char name[PATH_MAX];
	struct stat st;
	unsigned count = 0;

	for (unsigned i = 1; i <= INDEX_ASIDE_MAX; i++)
		count += !name_aside(dir, i, name) && lstat(name, &st) == 0;
	return count;
}

int index_set_aside(const char *dir, char ret_name[PATH_MAX], struct why *why)
{
	int r = find_name(dir, ret_name);

	if (r == -EEXIST)
		return why_set(why, r,
			"index %s: is damaged, and so were %u before it, which lie beside it as "
			"%s" INDEX_ASIDE "…: check the disk and the machine's memory, then remove "
			"those",
			dir, INDEX_ASIDE_MAX, dir);
	/* Killed after the first step, the next daemon finds none, and makes one. */
	if (!r && (rename(dir, ret_name) < 0 || mkdir(dir, 0700) < 0))
		r = -errno;
	if (!r)
		r = sync_parent(dir);
	return r ? why_set(why, r, "index %s: is damaged, and can't be set aside as %s: %s", dir,
			   ret_name, strerror(-r))
		 : 0;
}
