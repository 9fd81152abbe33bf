#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/units.h"
#include "command.h"
#include "hold/keeper.h"
#include "hold/upgrade.h"
#include "settings.h"

const char hold_help[] =
	"Usage: cachefs hold [--store DIR] [--size 500G] [--control SOCK] [--metrics ADDR:PORT]\n"
	"                    [--config FILE] [--exit-when-idle] [--abort-after 30s] [--watchdog "
	"10s]\n"
	"The node's daemon with a keeper, in the foreground: when the daemon dies or is upgraded, "
	"mounts\n"
	"wait for the next one and applications see a pause. `cachefs mount` starts one by "
	"itself; this\n"
	"is for service managers. SIGTERM ends it and its mounts, SIGHUP upgrades to the installed "
	"binary.\n"
	"\n"
	"      --abort-after TIME   without a daemon for so long, requests fail rather than wait; "
	"0: never\n"
	"      --watchdog TIME      a daemon that is silent for so long is killed; 0: never\n"
	"  The other options are those of `cachefs serve`.\n"
	"  -h, --help\n"
	"      --version\n"
	"\n"
	"Example:\n"
	"  cachefs hold --store /nvme/cachefs --size 80% --metrics 127.0.0.1:9464\n";

#define ABORT_AFTER_MS 30000
#define WATCHDOG_MS    10000

static void add(const char **args, size_t *n, const char *name, const char *value)
{
	if (!value)
		return;
	args[(*n)++] = name;
	args[(*n)++] = value;
}

static int hold(struct keeper_config config, const struct settings_sources *sources, bool idle,
	struct why *why)
{
	_cleanup_(settings_result_free) struct settings_result settings = {0};
	_cleanup_(freep) char *socket = NULL;
	const char *args[KEEPER_ARGS_MAX + 1] = {NULL};
	size_t n = 0;
	int r = settings_resolve(sources, &settings, why);

	if (r)
		return r;
	socket = hold_socket(settings.socket);
	if (!socket)
		return why_set(why, -ENOMEM, "no memory");
	/* Every daemon gets the same, whatever file or environment say by then. */
	add(args, &n, "--store", settings.store);
	add(args, &n, "--control", settings.socket);
	add(args, &n, "--size", settings.size);
	add(args, &n, "--metrics", settings.metrics);
	if (idle)
		args[n] = "--exit-when-idle";
	config.serve_args = args;
	config.socket = socket;
	prctl(PR_SET_NAME, "cachefs");
	return keeper_run(&config, why);
}

int cmd_hold(const struct command *command, int argc, char **argv)
{
	enum { IDLE = SETTINGS_OWN, READY, RESUME, ABORT_AFTER, WATCHDOG };
	static const struct option long_options[] = {SETTINGS_OPTIONS,
		{"exit-when-idle", no_argument, NULL, IDLE},
		{"abort-after", required_argument, NULL, ABORT_AFTER},
		{"watchdog", required_argument, NULL, WATCHDOG},
		/* From `cachefs mount`, and from the keeper that this process was before. */
		{"ready-fd", required_argument, NULL, READY},
		{"resume-fd", required_argument, NULL, RESUME}, COMMON_OPTIONS};
	_cleanup_(settings_free) struct settings_sources sources = {0};
	struct keeper_config config = {.abort_after_ms = ABORT_AFTER_MS,
		.watchdog_ms = WATCHDOG_MS,
		.ready_fd = -1,
		.resume_fd = -1};
	bool idle = false;
	struct why why;
	int c, r = 0;

	while (!r && (c = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
		if (c == IDLE) {
			idle = true;
		} else if (c == READY || c == RESUME) {
			if (!command_fd(optarg, c == READY ? &config.ready_fd : &config.resume_fd))
				return command_misused(
					command, "descriptor %s is not open", optarg);
		} else if (c == ABORT_AFTER || c == WATCHDOG) {
			if (parse_duration(optarg,
				    c == WATCHDOG ? &config.watchdog_ms : &config.abort_after_ms))
				return command_misused(
					command, "'%s' is no time; write 30s or 2m", optarg);
		} else if ((r = settings_take(&sources, c, optarg, &why)) > 0) {
			return command_other_option(command, c);
		}
	}
	if (r) {
		command_failed(&why);
		return STATUS_USAGE;
	}
	if (optind != argc)
		return command_misused(command, "hold takes no argument '%s'", argv[optind]);
	log_setup(LOG_LEVEL_INFO);
	r = hold(config, &sources, idle, &why);
	return r < 0 ? command_failed(&why) : r;
}
