/* making: how a directory becomes a store, and how a store is known. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "internal.h"

#define FORMAT_TEXT   "cachefs-store 1\n"
#define FORMAT_PREFIX "cachefs-store "
#define FORMAT_NEW    "FORMAT.new"

static bool is_dots(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* What making leaves behind when it is interrupted before FORMAT, and what mkfs puts there. */
static bool is_ours_before_format(const char *name)
{
	static const char *const ours[] = {
		"lost+found", "lock", FORMAT_NEW, STORE_INDEX_DIR, STORE_RAW_DIR};

	for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
		if (strcmp(name, ours[i]) == 0)
			return true;
	}
	return false;
}

/* The first name in a directory that allowed() refuses, or "" in name. at/sub is missing: "". */
static int find_foreign(int at, const char *sub, bool (*allowed)(const char *name), char name[256])
{
	struct dirent *entry;
	int fd = openat(at, sub, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *stream;
	int e;

	name[0] = '\0';
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	stream = fdopendir(fd);
	if (!stream) {
		close(fd);
		return -ENOMEM;
	}
	errno = 0;
	while ((entry = readdir(stream))) {
		if (is_dots(entry->d_name) || allowed(entry->d_name))
			continue;
		snprintf(name, 256, "%s", entry->d_name);
		break;
	}
	e = entry ? 0 : errno;
	closedir(stream);
	return -e;
}

static bool nothing_allowed(const char *name)
{
	(void)name;
	return false;
}

/* Without FORMAT only an empty directory, or one in which making was interrupted, is ours to use.
 */
static int inspect_unmade(int dir_fd, const char *dir, struct why *why)
{
	static const struct {
		const char *sub;
		bool (*allowed)(const char *name);
	} places[] = {
		{".", is_ours_before_format},
		{STORE_INDEX_DIR, nothing_allowed},
		{STORE_RAW_DIR, nothing_allowed},
	};
	char name[256];

	for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
		int r = find_foreign(dir_fd, places[i].sub, places[i].allowed, name);

		if (r < 0)
			return why_set(why, r,
				"store %s: can't read %s in it: %s; give a directory of its own",
				dir, places[i].sub, strerror(-r));
		if (name[0])
			return why_set(why, -ENOTEMPTY,
				"store %s: the directory is no store, since it has no FORMAT, and "
				"not empty (it has %s/%s); give an empty or a new directory",
				dir, places[i].sub, name);
	}
	return 0;
}

static int compare_format(const char *text, const char *dir, struct why *why)
{
	if (strcmp(text, FORMAT_TEXT) == 0)
		return 0;
	if (strncmp(text, FORMAT_PREFIX, strlen(FORMAT_PREFIX)) == 0)
		return why_set(why, -EPROTONOSUPPORT,
			"store %s: was made in format %.*s by another version of cachefs, this one "
			"knows 1; use that version or give another directory",
			dir, (int)strcspn(text + strlen(FORMAT_PREFIX), "\n"),
			text + strlen(FORMAT_PREFIX));
	return why_set(why, -EPROTONOSUPPORT,
		"store %s: %s/FORMAT is not a store's; give another directory", dir, dir);
}

int making_inspect(int dir_fd, const char *dir, bool *ret_made, struct why *why)
{
	/* Not to be blocked by a FIFO of that name. */
	_cleanup_(closep) int fd =
		openat(dir_fd, "FORMAT", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	char text[64];
	ssize_t n;
	int r;

	if (fd < 0 && errno == ENOENT) {
		r = inspect_unmade(dir_fd, dir, why);
		if (r == 0)
			*ret_made = false;
		return r;
	}
	n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (n < 0) {
		r = -errno;
		return why_set(why, r,
			"store %s: can't read %s/FORMAT: %s; make it readable to the daemon or "
			"give "
			"another directory",
			dir, dir, strerror(-r));
	}
	text[n] = '\0';
	r = compare_format(text, dir, why);
	if (r == 0)
		*ret_made = true;
	return r;
}

int making_dirs(int dir_fd, const char *dir, struct why *why)
{
	static const char *const subs[] = {STORE_INDEX_DIR, STORE_RAW_DIR};

	for (size_t i = 0; i < sizeof subs / sizeof subs[0]; i++) {
		if (mkdirat(dir_fd, subs[i], 0700) < 0 && errno != EEXIST) {
			int r = -errno;

			return why_set(why, r,
				"store %s: can't make %s/%s: %s; give a directory that the daemon "
				"may write to",
				dir, dir, subs[i], strerror(-r));
		}
	}
	return 0;
}

static int write_format(int dir_fd)
{
	_cleanup_(closep) int fd = openat(
		dir_fd, FORMAT_NEW, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = write(fd, FORMAT_TEXT, strlen(FORMAT_TEXT));
	if (n < 0 || fsync(fd) < 0)
		return -errno;
	if ((size_t)n != strlen(FORMAT_TEXT))
		return -ENOSPC;
	/* The sub-directories first, then the name that says that they are there. */
	if (fsync(dir_fd) < 0 || renameat(dir_fd, FORMAT_NEW, dir_fd, "FORMAT") < 0 ||
		fsync(dir_fd) < 0)
		return -errno;
	return 0;
}

int making_finish(int dir_fd, const char *dir, struct why *why)
{
	int r = write_format(dir_fd);

	if (r < 0)
		return why_set(why, r,
			"store %s: can't write %s/FORMAT: %s; give a directory on a disk with room "
			"that the daemon may write to",
			dir, dir, strerror(-r));
	return 0;
}
