#include "mountinfo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Undoes the kernel's \040 and the like, in place. */
static void unescape(char *text)
{
	char *to = text;

	for (const char *from = text; *from; from++) {
		if (from[0] == '\\' && strspn(from + 1, "01234567") >= 3) {
			*to++ = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + from[3] - '0');
			from += 3;
		} else {
			*to++ = *from;
		}
	}
	*to = '\0';
}

/* "36 35 98:0 /root /mnt/point options… - type source options" */
static bool parse_line(char *line, char **ret_mountpoint, char **ret_type)
{
	char *field = line, *dash = strstr(line, " - ");

	if (!dash)
		return false;
	for (int i = 0; i < 4 && field; i++) {
		field = strchr(field, ' ');
		field = field ? field + 1 : NULL;
	}
	if (!field)
		return false;
	*ret_type = dash + 3;
	(*ret_type)[strcspn(*ret_type, " \n")] = '\0';
	*dash = '\0';
	field[strcspn(field, " ")] = '\0';
	unescape(field);
	*ret_mountpoint = field;
	return true;
}

static void each_mount(void (*each)(void *arg, const char *mountpoint, const char *type), void *arg)
{
	FILE *file = fopen("/proc/self/mountinfo", "re");
	char *line = NULL, *mountpoint, *type;
	size_t size = 0;

	if (!file)
		return;
	while (getline(&line, &size, file) > 0) {
		if (parse_line(line, &mountpoint, &type))
			each(arg, mountpoint, type);
	}
	free(line);
	fclose(file);
}

struct search {
	const char *path;
	bool found;
};

/* Later lines are mounted over earlier ones. */
static void see_mount(void *arg, const char *mountpoint, const char *type)
{
	struct search *search = arg;

	if (!strcmp(mountpoint, search->path))
		search->found = !strcmp(type, MOUNT_TYPE);
}

bool mountinfo_is_mount(const char *path)
{
	struct search search = {.path = path};

	each_mount(see_mount, &search);
	return search.found;
}

static void see_above(void *arg, const char *mountpoint, const char *type)
{
	struct search *search = arg;
	size_t size = strlen(mountpoint);

	if (!strcmp(type, MOUNT_TYPE) && !strncmp(search->path, mountpoint, size) &&
		(search->path[size] == '\0' || search->path[size] == '/'))
		search->found = true;
}

bool mountinfo_is_below(const char *path)
{
	struct search search = {.path = path};

	each_mount(see_above, &search);
	return search.found;
}
