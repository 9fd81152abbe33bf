#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "client/client.h"
#include "command.h"
#include "daemon.h"
#include "defaults.h"
#include "paths.h"

const char serve_help[] =
	"Usage: cachefs serve [--store DIR] [--size 500G] [--control SOCK] [--metrics ADDR:PORT]\n"
	"                     [--config FILE] [--exit-when-idle]\n"
	"The node's daemon in the foreground, its log on standard error. `cachefs mount` starts "
	"one by\n"
	"itself; this is for service managers. SIGTERM ends it and its mounts.\n"
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

/* As said by one source: the command line, or a file. NULL: not said. */
struct settings {
	char *store, *size, *control, *metrics;
};

static void free_settings(struct settings *settings)
{
	free(settings->store);
	free(settings->size);
	free(settings->control);
	free(settings->metrics);
}

static char **find_setting(struct settings *settings, const char *name)
{
	const struct {
		const char *name;
		char **value;
	} names[] = {
		{"store", &settings->store},
		{"size", &settings->size},
		{"control", &settings->control},
		{"metrics", &settings->metrics},
	};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		if (!strcmp(names[i].name, name))
			return names[i].value;
	}
	return NULL;
}

static char *strip(char *text)
{
	char *end = text + strlen(text);

	while (end > text && isspace((unsigned char)end[-1]))
		*--end = '\0';
	while (isspace((unsigned char)*text))
		text++;
	return text;
}

/* "name = value"; empty lines and those that begin with # say nothing. */
static int take_line(
	struct settings *settings, char *line, const char *file, int number, struct why *why)
{
	char *name = strip(line), *equal, *value, **setting;

	if (!*name || *name == '#')
		return 0;
	equal = strchr(name, '=');
	if (!equal)
		return why_set(why, -EINVAL, "%s, line %d: write name = value", file, number);
	*equal = '\0';
	value = strip(equal + 1);
	name = strip(name);
	setting = find_setting(settings, name);
	if (!setting)
		return why_set(why, -EINVAL,
			"%s, line %d: '%s' is no setting; there are store, size, control and "
			"metrics",
			file, number, name);
	if (!*value || *setting)
		return why_set(
			why, -EINVAL, "%s, line %d: '%s' needs one value", file, number, name);
	*setting = strdup(value);
	return *setting ? 0 : why_set(why, -ENOMEM, "no memory");
}

static int read_file(struct settings *settings, const char *name, struct why *why)
{
	FILE *file = fopen(name, "re");
	char *line = NULL;
	size_t size = 0;
	int r = 0;

	if (!file)
		return why_set(why, -errno, "can't read %s: %s", name, strerror(errno));
	for (int number = 1; !r && getline(&line, &size, file) > 0; number++)
		r = take_line(settings, line, name, number, why);
	if (!r && ferror(file))
		r = why_set(why, -EIO, "can't read %s", name);
	free(line);
	fclose(file);
	return r;
}

static int serve(const struct settings *typed, const struct settings *file,
	struct daemon_config *config, struct why *why)
{
	_cleanup_(freep) char *store = NULL, *socket = NULL;
	const char *store_name = typed->store ?: file->store ?: default_store();
	const char *socket_name = client_socket(typed->control ?: file->control);

	store = path_resolved(store_name);
	socket = path_resolved(socket_name);
	if (!store || !socket)
		return why_set(why, -errno, "can't make %s an absolute path: %s",
			store ? socket_name : store_name, strerror(errno));
	config->store = store;
	config->socket = socket;
	config->size = typed->size ?: file->size ?: default_size();
	config->metrics = typed->metrics ?: file->metrics;
	return daemon_run(config, why);
}

static int set(char **setting, const char *value)
{
	free(*setting);
	*setting = strdup(value);
	return *setting ? 0 : -ENOMEM;
}

static bool parse_fd(const char *text, int *ret)
{
	char *end;
	long fd = strtol(text, &end, 10);

	if (!*text || *end || fd < 0 || fd > 1 << 20 || fcntl((int)fd, F_SETFD, FD_CLOEXEC) < 0)
		return false;
	*ret = (int)fd;
	return true;
}

int cmd_serve(const struct command *command, int argc, char **argv)
{
	enum { STORE = OPTION_OWN, SIZE, METRICS, CONFIG, IDLE, READY };
	static const struct option long_options[] = {{"store", required_argument, NULL, STORE},
		{"size", required_argument, NULL, SIZE},
		{"metrics", required_argument, NULL, METRICS},
		{"config", required_argument, NULL, CONFIG},
		{"exit-when-idle", no_argument, NULL, IDLE},
		/* Between `cachefs mount` and the daemon that it starts. */
		{"ready-fd", required_argument, NULL, READY}, COMMON_OPTIONS};
	_cleanup_(free_settings) struct settings typed = {0}, file = {0};
	struct daemon_config config = {.ready_fd = -1};
	struct why why;
	int c, r = 0;

	while (!r && (c = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
		switch (c) {
		case STORE:
			r = set(&typed.store, optarg);
			break;
		case SIZE:
			r = set(&typed.size, optarg);
			break;
		case METRICS:
			r = set(&typed.metrics, optarg);
			break;
		case OPTION_CONTROL:
			r = set(&typed.control, optarg);
			break;
		case CONFIG:
			if (read_file(&file, optarg, &why)) {
				command_failed(&why);
				return STATUS_USAGE;
			}
			break;
		case IDLE:
			config.exit_when_idle = true;
			break;
		case READY:
			if (!parse_fd(optarg, &config.ready_fd))
				return command_misused(
					command, "--ready-fd %s is no open descriptor", optarg);
			break;
		default:
			return command_other_option(command, c);
		}
	}
	if (r)
		return command_failed(&(struct why){"no memory"});
	if (optind != argc)
		return command_misused(command, "serve takes no argument '%s'", argv[optind]);
	log_setup(LOG_LEVEL_INFO);
	return serve(&typed, &file, &config, &why) ? command_failed(&why) : STATUS_DONE;
}
