#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/percent.h"
#include "base/units.h"
#include "client/client.h"
#include "colour.h"
#include "command.h"
#include "paths.h"

const char status_help[] = "Usage: cachefs status [--json] [--control SOCK] [MOUNTPOINT|PATH]\n"
			   "The daemon, its store and its volumes; of a mountpoint that volume "
			   "only; of a path below one\n"
			   "its version, its size and how much of it is cached; of a directory the "
			   "sum.\n"
			   "Exit status 1 if no daemon runs.\n"
			   "\n"
			   "      --json         for programs; all that is known\n"
			   "      --control SOCK\n"
			   "  -h, --help\n"
			   "      --version\n"
			   "\n"
			   "Example:\n"
			   "  cachefs status /mnt/llama/model-00001-of-00004.safetensors\n";

static void print_name(const char *name)
{
	printf("%s%-9s%s", colour_bold(), name, colour_plain());
}

static const char *size_of(const json_t *value, const char *name, char text[16])
{
	return format_size(json_number(value, name), text, 16);
}

static void print_uptime(double seconds)
{
	unsigned long minutes = (unsigned long)(seconds / 60);

	if (minutes >= 24 * 60)
		printf("%lu d %lu h", minutes / 1440, minutes / 60 % 24);
	else if (minutes >= 60)
		printf("%lu h %lu min", minutes / 60, minutes % 60);
	else if (minutes)
		printf("%lu min", minutes);
	else
		printf("%.0f s", seconds);
}

static double share_of(const json_t *stalled, const char *name)
{
	return 100 * json_number_value(json_object_get(stalled, name));
}

/* The number that cards are paid for: above everything else. */
static void print_stalled(const json_t *volume)
{
	const json_t *stalled = json_object_get(volume, "stalled");
	unsigned long long now = json_number(stalled, "now");

	print_name("stalled");
	printf("%.2f %% of the last minute, %.2f %% of 5 minutes, %.2f %% since the mount, "
	       "%s%llu reads now%s: %s\n",
		share_of(stalled, "share_1m"), share_of(stalled, "share_5m"),
		share_of(stalled, "share"), now ? colour_red() : "", now, now ? colour_plain() : "",
		json_text(volume, "source"));
}

static void print_daemon(const json_t *daemon)
{
	char memory[16];

	print_name("daemon");
	printf("pid %llu, version %s, up ", json_number(daemon, "pid"),
		json_text(daemon, "version"));
	print_uptime(json_real_value(json_object_get(daemon, "uptime_s")));
	printf(", memory %s, %llu threads, %llu descriptors\n",
		size_of(daemon, "rss_bytes", memory), json_number(daemon, "threads"),
		json_number(daemon, "fds"));
}

static void print_keeper(const json_t *keeper)
{
	const char *exit = json_text(keeper, "last_exit");

	print_name("keeper");
	if (!json_is_object(keeper)) {
		printf("none: mounts end with the daemon\n");
		return;
	}
	if (json_is_false(json_object_get(keeper, "alive"))) {
		printf("%sdead: mounts end with the daemon%s\n", colour_red(), colour_plain());
		return;
	}
	printf("pid %llu, %llu restarts of the daemon", json_number(keeper, "pid"),
		json_number(keeper, "restarts"));
	if (*exit)
		printf(", the one before ended by %s", exit);
	putchar('\n');
}

static void print_store(const json_t *store)
{
	char used[16], capacity[16];

	print_name("store");
	printf("%s, %s of %s used, %llu objects", json_text(store, "path"),
		size_of(store, "used_bytes", used), size_of(store, "capacity_bytes", capacity),
		json_number(store, "objects"));
	if (!json_is_true(json_object_get(store, "direct_io")))
		printf(", buffered IO");
	if (json_is_true(json_object_get(store, "full")))
		printf(", %sfull%s", colour_red(), colour_plain());
	putchar('\n');
	if (json_number(store, "damaged_indexes")) {
		print_name("");
		printf("%s%llu damaged%s set aside as %s/index.damaged…: check the disk, then "
		       "remove it\n",
			colour_red(), json_number(store, "damaged_indexes"), colour_plain(),
			json_text(store, "path"));
	}
}

static void print_features(json_t *features)
{
	const char *name, *reason = json_text(features, "passthrough_reason");
	bool first = true;
	json_t *value;

	print_name("kernel");
	json_object_foreach(features, name, value)
	{
		if (!json_is_true(value))
			continue;
		printf("%s%s", first ? "" : ", ", name);
		first = false;
	}
	first = true;
	json_object_foreach(features, name, value)
	{
		if (!json_is_false(value))
			continue;
		printf("%s%s", first ? "; without " : ", ", name);
		first = false;
	}
	if (*reason)
		printf(" (passthrough: %s)", reason);
	putchar('\n');
}

static void print_counters(const json_t *counters)
{
	char hit[16], miss[16], bytes[16];

	print_name("reads");
	printf("%s from the cache, %s after a wait; origin: %s in %llu requests, %llu retries\n",
		size_of(counters, "hit_bytes", hit), size_of(counters, "miss_bytes", miss),
		size_of(counters, "origin_bytes", bytes),
		json_number(counters, "origin_gets") + json_number(counters, "origin_heads") +
			json_number(counters, "origin_lists"),
		json_number(counters, "retries"));
	print_name("store IO");
	printf("%llu checksum failures, %llu errors, %llu evictions\n",
		json_number(counters, "checksum_failures"), json_number(counters, "store_errors"),
		json_number(counters, "evictions"));
}

static void print_wait(const json_t *waits, const char *name, const char *text)
{
	const json_t *wait = json_object_get(waits, name);

	printf("%llu %s (%.3f s)", json_number(wait, "count"), text,
		json_number_value(json_object_get(wait, "seconds")));
}

static void print_waits(const json_t *volume)
{
	const json_t *waits = json_object_get(volume, "waits");

	printf("  waits    ");
	print_wait(waits, "origin", "for the origin");
	printf(", ");
	print_wait(waits, "store", "for the store");
	printf(", %llu for nothing; ", json_number(json_object_get(waits, "none"), "count"));
	print_wait(waits, "names", "for names");
	putchar('\n');
}

/* It stays when it is over, so its time tells whether it is. */
static void print_last_error(const json_t *origin)
{
	time_t at = (time_t)(json_number(origin, "last_error_at_ns") / NS_PER_SEC);
	const char *error = json_text(origin, "last_error");
	struct tm local;
	char when[32];

	if (!*error || !localtime_r(&at, &local) || !strftime(when, sizeof when, "%F %T", &local))
		return;
	printf(", last error at %s: %s", when, error);
}

static void print_volume(const json_t *volume)
{
	const json_t *origin = json_object_get(volume, "origin");
	const char *state = json_text(origin, "state");
	bool away = strcmp(state, "reachable") != 0;
	bool is_directory = !strncmp(json_text(volume, "source"), "file:", 5);
	char hit[16], miss[16], cached[16];
	json_t *mountpoint;
	size_t i;

	printf("\n%s%s%s (%s, volume %llu%s%s)\n", colour_bold(), json_text(volume, "source"),
		colour_plain(), json_text(volume, "mode"), json_number(volume, "id"),
		*json_text(volume, "options") ? ", " : "", json_text(volume, "options"));
	json_array_foreach(json_object_get(volume, "mountpoints"), i, mountpoint)
		printf("  on       %s\n", json_string_value(mountpoint));
	if (!json_array_size(json_object_get(volume, "mountpoints")))
		printf("  on       nothing: unmounted, and goes when its last file is closed\n");
	printf("  origin   %s%s%s", away ? colour_red() : "", state, away ? colour_plain() : "");
	print_last_error(origin);
	putchar('\n');
	printf("  cached   %s\n", size_of(volume, "cached_bytes", cached));
	printf("  reads    hits %s, misses %s\n", size_of(volume, "hit_bytes", hit),
		size_of(volume, "miss_bytes", miss));
	print_waits(volume);
	printf("  opens    %llu, %llu of them passthrough\n", json_number(volume, "opens"),
		json_number(volume, "passthrough_opens"));
	printf("  now      %llu nodes, %llu handles, %llu parked requests\n",
		json_number(volume, "nodes"), json_number(volume, "handles"),
		json_number(volume, "parked"));
	if (json_number(volume, "listings_refused"))
		printf("  refused  %llu listings of more names than memory has room for\n",
			json_number(volume, "listings_refused"));
	if (json_number(volume, "hidden_keys"))
		printf("  hidden   %llu %s\n", json_number(volume, "hidden_keys"),
			is_directory ? "links out, to nowhere or back, and special files"
				     : "keys that can't be names");
	if (json_number(volume, "stale"))
		printf("  stale    %llu answers older than their ttl\n",
			json_number(volume, "stale"));
}

static void print_whole(const json_t *status)
{
	const json_t *daemon = json_object_get(status, "daemon");
	const json_t *volumes = json_object_get(status, "volumes");
	json_t *volume;
	size_t i;

	json_array_foreach(volumes, i, volume) print_stalled(volume);
	print_daemon(daemon);
	print_keeper(json_object_get(daemon, "keeper"));
	print_store(json_object_get(status, "store"));
	print_features(json_object_get(daemon, "features"));
	print_counters(json_object_get(status, "counters"));
	json_array_foreach(volumes, i, volume) print_volume(volume);
}

static void print_path(const json_t *status)
{
	unsigned long long size = json_number(status, "size");
	unsigned long long cached = json_number(status, "cached_bytes");
	char text[16], cached_text[16];

	print_name("path");
	printf("%s\n", json_text(status, "path"));
	if (json_is_true(json_object_get(status, "directory"))) {
		print_name("files");
		printf("%llu, %llu warm, %llu pinned\n", json_number(status, "files"),
			json_number(status, "warm_files"), json_number(status, "pinned_files"));
	} else {
		print_name("object");
		printf("%s\n", json_text(status, "object"));
		print_name("version");
		printf("%s\n", json_text(status, "version"));
	}
	print_name("size");
	printf("%s (%llu bytes)\n", format_size(size, text, sizeof text), size);
	print_name("cached");
	printf("%s, %.1f %%%s\n", format_size(cached, cached_text, sizeof cached_text),
		size ? 100.0 * (double)cached / (double)size : 100.0,
		json_is_true(json_object_get(status, "warm")) ? ", warm" : "");
	print_name("pinned");
	printf("%s\n", json_is_true(json_object_get(status, "pinned")) ? "yes" : "no");
	print_name("upload");
	printf("%s\n", json_text(status, "upload"));
}

static int request_url(const char *argument, char **ret, struct why *why)
{
	_cleanup_(freep) char *path = NULL;
	_cleanup_(buf_free) struct buf url;

	buf_init(&url, 1 << 20);
	if (argument && strstr(argument, "://"))
		return why_set(why, -EINVAL,
			"'%s' is a source: give a MOUNTPOINT or a PATH below one; without one, "
			"`cachefs status` lists all",
			argument);
	buf_add_string(&url, "/v1/status");
	if (argument) {
		path = path_below_mounts(argument);
		if (!path)
			return why_set(why, -EINVAL, "can't make '%s' an absolute path", argument);
		buf_add_string(&url, "?path=");
		percent_encode(&url, path, strlen(path), true);
	}
	*ret = buf_steal(&url);
	return *ret ? 0 : why_set(why, -ENOMEM, "no memory");
}

int cmd_status(const struct command *command, int argc, char **argv)
{
	static const struct option long_options[] = {
		{"json", no_argument, NULL, OPTION_JSON}, COMMON_OPTIONS};
	struct client client = {client_socket(NULL)};
	_cleanup_(freep) char *url = NULL;
	bool json = false;
	json_t *status;
	struct why why;
	int c;

	while ((c = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
		if (c == OPTION_JSON)
			json = true;
		else if (c == OPTION_CONTROL)
			client.socket = optarg;
		else
			return command_other_option(command, c);
	}
	if (argc - optind > 1)
		return command_misused(command, "status takes at most one MOUNTPOINT or PATH");
	if (request_url(argv[optind], &url, &why) ||
		client_call(&client, "GET", url, NULL, &status, &why))
		return command_failed(&why);
	if (json) {
		command_print_json(status);
		return STATUS_DONE;
	}
	if (json_object_get(status, "daemon"))
		print_whole(status);
	else
		print_path(status);
	json_decref(status);
	return STATUS_DONE;
}
