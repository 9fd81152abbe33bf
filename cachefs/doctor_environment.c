#include "doctor.h"

#include <fcntl.h>
#include <stdio.h>
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

static bool has(const char *environment, const char *variable)
{
	for (; *environment; environment += strlen(environment) + 1) {
		if (!strcmp(environment, variable))
			return true;
	}
	return false;
}

/* Values are not shown: some are secret. */
void doctor_environment(struct doctor *doctor, unsigned long long pid)
{
	_cleanup_(buf_free) struct buf theirs;
	char names[256] = "";

	buf_init(&theirs, ENVIRONMENT_MAX);
	if (!read_environment(pid, &theirs))
		return;
	for (char **variable = environ; *variable; variable++) {
		size_t used = strlen(names);

		if (!strncmp(*variable, "AWS_", 4) && !has(buf_string(&theirs), *variable))
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
