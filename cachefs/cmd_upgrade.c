#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/client.h"
#include "command.h"
#include "hold/upgrade.h"
#include "paths.h"

const char upgrade_help[] =
	"Usage: cachefs upgrade [--binary FILE] [--control SOCK]\n"
	"This version of cachefs, or that of FILE, takes over from the running daemon; mounts and "
	"open\n"
	"files go on. If it can't, the running version goes on, and the command fails and says "
	"why.\n"
	"\n"
	"      --binary FILE    default: the program that you run\n"
	"      --control SOCK   the daemon's control socket\n"
	"  -h, --help\n"
	"      --version\n"
	"\n"
	"Example:\n"
	"  /opt/cachefs-2/bin/cachefs upgrade\n";

static int upgrade(const char *binary, const char *control, struct why *result)
{
	_cleanup_(freep) char *path = path_resolved(binary);
	_cleanup_(freep) char *socket = hold_socket(client_socket(control));

	if (!path || !socket)
		return why_set(result, -errno, "can't make %s an absolute path: %s", binary,
			strerror(errno));
	return hold_upgrade(socket, path, result);
}

int cmd_upgrade(const struct command *command, int argc, char **argv)
{
	enum { BINARY = OPTION_OWN };
	static const struct option long_options[] = {
		{"binary", required_argument, NULL, BINARY}, COMMON_OPTIONS};
	const char *binary = "/proc/self/exe", *control = NULL;
	struct why result;
	int c;

	while ((c = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
		if (c == BINARY)
			binary = optarg;
		else if (c == OPTION_CONTROL)
			control = optarg;
		else
			return command_other_option(command, c);
	}
	if (optind != argc)
		return command_misused(command, "upgrade takes no argument '%s'", argv[optind]);
	if (upgrade(binary, control, &result))
		return command_failed(&result);
	puts(result.text);
	return STATUS_DONE;
}
