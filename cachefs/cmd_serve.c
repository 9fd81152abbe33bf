#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "cache/cache.h"
#include "command.h"
#include "daemon.h"
#include "fs/volume.h"
#include "hold/client.h"
#include "hold/keeper.h"
#include "settings.h"

const char serve_help[] =
	"Usage: cachefs serve [--store DIR] [--size 500G] [--control SOCK] [--metrics ADDR:PORT]\n"
	"                     [--config FILE] [--exit-when-idle]\n"
	"The node's daemon in the foreground, its log on standard error, without a keeper: mounts "
	"end with\n"
	"it, however it ends. See `cachefs hold`, which is what `cachefs mount` starts.\n"
	"\n"
	"      --store DIR          default: CACHEFS_STORE or /var/cache/cachefs\n"
	"      --size SIZE          500G, 1.5TiB, 80% of the file system; default: CACHEFS_SIZE or "
	"80%\n"
	"      --control SOCK       default: CACHEFS_CONTROL or /run/cachefs/control.sock\n"
	"      --metrics ADDR:PORT  answers GET /metrics and /healthz there\n"
	"      --config FILE        lines 'store = DIR', 'size = …', 'control = …', 'metrics = "
	"…';\n"
	"                           the command line goes before it, the environment after\n"
	"      --exit-when-idle     ends when the last volume is unmounted\n"
	"  -h, --help\n"
	"      --version\n"
	"\n"
	"Example:\n"
	"  cachefs serve --store /nvme/cachefs --size 80% --metrics 127.0.0.1:9464\n";

/* The session tables of the mounts that would be taken over. */
static int check_tables(struct why *why)
{
	const char *list = getenv(KEEPER_TABLES);
	int r = 0;

	while (!r && list && *list) {
		char *end;
		long fd = strtol(list, &end, 10);

		if (end == list || fd < 0 || fd > INT_MAX)
			return why_set(why, -EINVAL, KEEPER_TABLES "=%s is no list of descriptors",
				getenv(KEEPER_TABLES));
		r = volumes_check_table((int)fd, why);
		list = *end == ',' ? end + 1 : end;
	}
	return r;
}

/* Asked before an upgrade, of the new binary: its reasons against it, or what it understands. */
static int check(const struct settings_result *settings, struct why *why)
{
	int r = cache_check(settings->store, why);

	if (!r)
		r = check_tables(why);
	if (!r)
		printf("cachefs %s keeper %d\n", CACHEFS_VERSION, KEEPER_STATE_VERSION);
	return r;
}

static int serve(struct daemon_config *config, const struct settings_sources *sources,
	bool only_check, struct why *why)
{
	_cleanup_(settings_result_free) struct settings_result settings = {0};
	int r = settings_resolve(sources, &settings, why);

	if (r)
		return r;
	if (only_check)
		return check(&settings, why);
	config->store = settings.store;
	config->socket = settings.socket;
	config->size = settings.size;
	config->metrics = settings.metrics;
	/* The keeper starts us by a descriptor, whose number would be our name. */
	prctl(PR_SET_NAME, "cachefs");
	return daemon_run(config, why);
}

int cmd_serve(const struct command *command, int argc, char **argv)
{
	enum { IDLE = SETTINGS_OWN, READY, HOLD, CHECK };
	static const struct option long_options[] = {SETTINGS_OPTIONS,
		{"exit-when-idle", no_argument, NULL, IDLE},
		/* Between `cachefs mount`, the keeper and the daemon that they start. */
		{"ready-fd", required_argument, NULL, READY},
		{"hold-fd", required_argument, NULL, HOLD}, {"check", no_argument, NULL, CHECK},
		COMMON_OPTIONS};
	_cleanup_(settings_free) struct settings_sources sources = {0};
	struct daemon_config config = {.ready_fd = -1, .hold_fd = -1};
	bool only_check = false;
	struct why why;
	int c, r = 0;

	while (!r && (c = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
		if (c == IDLE)
			config.exit_when_idle = true;
		else if (c == CHECK)
			only_check = true;
		else if (c == READY || c == HOLD) {
			if (!command_fd(optarg, c == HOLD ? &config.hold_fd : &config.ready_fd))
				return command_misused(
					command, "descriptor %s is not open", optarg);
		} else if ((r = settings_take(&sources, c, optarg, &why)) > 0)
			return command_other_option(command, c);
	}
	if (r) {
		command_failed(&why);
		return STATUS_USAGE;
	}
	if (optind != argc)
		return command_misused(command, "serve takes no argument '%s'", argv[optind]);
	log_setup(LOG_LEVEL_INFO);
	r = serve(&config, &sources, only_check, &why);
	if (r < 0)
		return command_failed(&why);
	return r == DAEMON_HANDED_OVER ? HOLD_EXIT_HANDED_OVER : STATUS_DONE;
}
