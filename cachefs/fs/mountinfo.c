#include "fs/mountinfo.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"

#define TEXT_MAX (64u << 20)

static bool is_octal(const char *at)
{
	return at[0] >= '0' && at[0] <= '3' && at[1] >= '0' && at[1] <= '7' && at[2] >= '0' &&
	       at[2] <= '7';
}

/* Space, tab, newline and backslash are written as \ooo. In place. */
static void unescape(char *text)
{
	char *to = text;

	for (const char *from = text; *from; to++) {
		if (from[0] == '\\' && is_octal(from + 1)) {
			*to = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0'));
			from += 4;
		} else {
			*to = *from++;
		}
	}
	*to = '\0';
}

/* "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw": the optional fields before "-"
 * may be none or several. */
static bool parse_line(char *line, struct mount *ret)
{
	char *rest = line, *fields[5], *type, *source;

	for (int i = 0; i < 5; i++) {
		fields[i] = strsep(&rest, " ");
		if (!rest)
			return false;
	}
	if (sscanf(fields[2], "%u:%u", &ret->major, &ret->minor) != 2)
		return false;
	rest = strstr(rest, " - ");
	if (!rest)
		return false;
	rest += 3;
	type = strsep(&rest, " ");
	source = strsep(&rest, " ");
	if (!source)
		return false;
	ret->root = fields[3];
	ret->mountpoint = fields[4];
	ret->type = type;
	ret->source = source;
	unescape(ret->root);
	unescape(ret->mountpoint);
	unescape(ret->type);
	unescape(ret->source);
	return true;
}

static size_t count_lines(const char *text)
{
	size_t n = 1;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

int mountinfo_parse(char *text, struct mountinfo *ret)
{
	struct mountinfo info = {.text = text};
	char *rest = text;

	info.mounts = calloc(count_lines(text), sizeof *info.mounts);
	if (!info.mounts)
		return -ENOMEM;
	while (rest) {
		char *line = strsep(&rest, "\n");

		if (parse_line(line, &info.mounts[info.count]))
			info.count++;
	}
	*ret = info;
	return 0;
}

int mountinfo_load(struct mountinfo *ret)
{
	_cleanup_(closep) int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	char bytes[8192];
	struct buf buf;
	ssize_t n;
	int r;

	if (fd < 0)
		return -errno;
	buf_init(&buf, TEXT_MAX);
	buf_add_string(&buf, "");
	while ((n = read(fd, bytes, sizeof bytes)) > 0)
		buf_add(&buf, bytes, (size_t)n);
	r = n < 0 ? -errno : buf.error;
	if (!r) {
		char *text = buf_steal(&buf);

		r = text ? mountinfo_parse(text, ret) : -ENOMEM;
		if (r)
			free(text);
	}
	buf_free(&buf);
	return r;
}

void mountinfo_free(struct mountinfo *info)
{
	free(info->mounts);
	free(info->text);
	*info = (struct mountinfo){0};
}

bool mount_is_ours(const struct mount *mount)
{
	return !strcmp(mount->type, MOUNT_TYPE);
}

const struct mount *mountinfo_at(const struct mountinfo *info, const char *path)
{
	for (size_t i = info->count; i-- > 0;) {
		if (!strcmp(info->mounts[i].mountpoint, path))
			return &info->mounts[i];
	}
	return NULL;
}

static bool is_below(const char *path, const char *mountpoint)
{
	size_t n = strlen(mountpoint);

	if (!strcmp(mountpoint, "/"))
		return true;
	return !strncmp(path, mountpoint, n) && (!path[n] || path[n] == '/');
}

const struct mount *mountinfo_above(const struct mountinfo *info, const char *path)
{
	const struct mount *best = NULL;

	for (size_t i = 0; i < info->count; i++) {
		const struct mount *mount = &info->mounts[i];

		if (is_below(path, mount->mountpoint) &&
			(!best || strlen(mount->mountpoint) >= strlen(best->mountpoint)))
			best = mount;
	}
	return best;
}

const struct mount *mountinfo_of(
	const struct mountinfo *info, unsigned major, unsigned minor, bool whole)
{
	for (size_t i = 0; i < info->count; i++) {
		const struct mount *mount = &info->mounts[i];

		if (mount->major == major && mount->minor == minor &&
			(!whole || !strcmp(mount->root, "/")))
			return mount;
	}
	return NULL;
}

int path_normalize(char *path)
{
	char *to = path;
	const char *from = path;

	if (*from != '/')
		return -EINVAL;
	while (*from) {
		size_t n;

		from += strspn(from, "/");
		n = strcspn(from, "/");
		if (n == 2 && !strncmp(from, "..", 2))
			return -EINVAL;
		if (n && !(n == 1 && *from == '.')) {
			*to++ = '/';
			memmove(to, from, n);
			to += n;
		}
		from += n;
	}
	if (to == path)
		*to++ = '/';
	*to = '\0';
	return 0;
}
