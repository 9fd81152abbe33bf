#include "doctor.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"

/* Larger than an environment that execve(2) takes by default. */
#define ENVIRONMENT_MAX (4u << 20)

/* NUL-ended strings, and an empty one behind them. False: the daemon is another user's, or gone. */
static bool read_environment(unsigned long long pid, struct buf *ret)
{
	_cleanup_(closep) int fd = -1;
	char name[64], block[4096];
	ssize_t n;

	snprintf(name, sizeof name, "/proc/%llu/environ", pid);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	while ((n = read(fd, block, sizeof block)) > 0) {
		if (buf_add(ret, block, (size_t)n))
			return false;
	}
	return n == 0 && !buf_add(ret, "", 1) && !buf_add(ret, "", 1);
}

/* Pointers into a copy of text, ended by NULL: one block. */
static char **split_environment(const struct buf *text)
{
	size_t count = 0, n = 0;
	char **all, *at, *end;

	for (size_t i = 0; i < text->size; i++)
		count += !text->bytes[i];
	all = malloc((count + 1) * sizeof *all + text->size);
	if (!all)
		return NULL;
	at = memcpy(all + count + 1, text->bytes, text->size);
	for (end = at + text->size; at < end && *at; at += strlen(at) + 1)
		all[n++] = at;
	all[n] = NULL;
	return all;
}

static bool has(char *const *environment, const char *variable)
{
	for (; *environment; environment++) {
		if (!strcmp(*environment, variable))
			return true;
	}
	return false;
}

/* Values are not shown: some are secret. */
static void compare(struct doctor *doctor)
{
	char names[256] = "";

	for (char **variable = environ; *variable; variable++) {
		size_t used = strlen(names);

		if ((strncmp(*variable, "AWS_", 4) != 0 && strncmp(*variable, "HF_", 3) != 0) ||
			has(doctor->daemon_environ, *variable))
			continue;
		snprintf(names + used, sizeof names - used, "%s%.*s", used ? ", " : "",
			(int)strcspn(*variable, "="), *variable);
	}
	if (names[0])
		doctor_say(doctor, FINDING_WARN, "daemon's environment",
			"has not this shell's %s, and mounts use the daemon's: unmount all and "
			"mount again from here, restart the service with them, or say it with "
			"mount options (credentials=, aws_profile=, endpoint=, region=)",
			names);
}

void doctor_environment(struct doctor *doctor, unsigned long long pid)
{
	_cleanup_(buf_free) struct buf theirs;

	buf_init(&theirs, ENVIRONMENT_MAX);
	if (!read_environment(pid, &theirs))
		return;
	doctor->daemon_environ = split_environment(&theirs);
	if (doctor->daemon_environ)
		compare(doctor);
}

void doctor_free_environment(struct doctor *doctor)
{
	free(doctor->daemon_environ);
	doctor->daemon_environ = NULL;
}
