/* What each volume does, again and again. Rates are those of the time between two answers, by the
 * daemon's clock. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/percent.h"
#include "base/units.h"
#include "client/client.h"
#include "colour.h"
#include "command.h"
#include "paths.h"

const char top_help[] =
	"Usage: cachefs top [--interval TIME] [--count N] [--control SOCK] [MOUNTPOINT]\n"
	"Live, a line for each volume: for what part of the time a read waited for the origin,\n"
	"and what came from where.\n"
	"\n"
	"  STALLED   part of the interval in which at least one read waited for the origin\n"
	"  1 MIN     the same of the last minute\n"
	"  NOW       reads that wait for it now\n"
	"  NAMES     as STALLED, of lookups, opens and listings\n"
	"  HIT       bytes of reads that the cache had; the kernel's own, of passthrough\n"
	"            files, are not seen\n"
	"  MISS      bytes of reads that waited for the origin\n"
	"  ORIGIN    bytes that came from the origin\n"
	"  GETS      requests for them that were answered\n"
	"  PASS      opens whose reads the kernel does by itself\n"
	"\n"
	"      --interval TIME  between two looks (1s)\n"
	"      --count N        ends after so many (never)\n"
	"      --control SOCK\n"
	"  -h, --help\n"
	"      --version\n"
	"\n"
	"Example:\n"
	"  cachefs top --interval 5s /mnt/llama\n";

enum { OPTION_INTERVAL = OPTION_OWN, OPTION_COUNT };

#define INTERVAL_MIN_MS 100
#define INTERVAL_MAX_MS (24ull * 3600 * 1000)

struct top {
	struct client client;
	char *url;
	uint64_t interval_ms;
	unsigned long long count; /* looks that are left; 0: for ever */
	json_t *before;           /* the last answer, NULL: none of this daemon */
};

static double real(const json_t *value, const char *name)
{
	return json_number_value(json_object_get(value, name));
}

/* How much a number of one volume has grown a second. before: the volume then. */
static double rate(
	const json_t *now, const json_t *before, const char *part, const char *name, double s)
{
	if (part) {
		now = json_object_get(now, part);
		before = json_object_get(before, part);
	}
	return (real(now, name) - real(before, name)) / s;
}

static const char *size_rate(double bytes, char text[16])
{
	return format_size(bytes > 0 ? (uint64_t)bytes : 0, text, 16);
}

static json_t *volume_of(const json_t *answer, unsigned long long id)
{
	json_t *volume;
	size_t i;

	json_array_foreach(json_object_get(answer, "volumes"), i, volume)
	{
		if (json_number(volume, "id") == id)
			return volume;
	}
	return NULL;
}

static void print_head(void)
{
	printf("%s%8s %8s %5s %8s %10s %10s %10s %8s %8s  %s%s\n", colour_bold(), "STALLED",
		"1 MIN", "NOW", "NAMES", "HIT/s", "MISS/s", "ORIGIN/s", "GETS/s", "PASS/s",
		"VOLUME", colour_plain());
}

/* Percent of the time; the daemon looks at the clock for each number by itself. */
static double share(const json_t *now, const json_t *before, const char *part, double s)
{
	return fmin(100 * rate(now, before, part, "seconds", s), 100);
}

/* before: NULL for a volume that wasn't there then. */
static void print_volume(const json_t *now, const json_t *before, double s)
{
	const json_t *stalled = json_object_get(now, "stalled");
	const json_t *origin = json_object_get(now, "origin");
	bool away = strcmp(json_text(origin, "state"), "reachable") != 0;
	char hit[16], miss[16], received[16];
	double stalled_share;

	if (!before || s <= 0)
		return;
	stalled_share = share(now, before, "stalled", s);
	printf("%s%6.1f %%%s %6.1f %% %5llu %6.1f %% %10s %10s %10s %8.1f %8.1f  %s%s%s%s\n",
		stalled_share >= 0.05 ? colour_red() : "", stalled_share, colour_plain(),
		100 * real(stalled, "share_1m"), json_number(stalled, "now"),
		share(now, before, "stalled_names", s),
		size_rate(rate(now, before, NULL, "hit_bytes", s), hit),
		size_rate(rate(now, before, NULL, "miss_bytes", s), miss),
		size_rate(rate(now, before, "origin", "bytes", s), received),
		rate(now, before, "origin", "gets", s),
		rate(now, before, NULL, "passthrough_opens", s), json_text(now, "source"),
		away ? colour_red() : "", away ? " (origin unreachable)" : "",
		away ? colour_plain() : "");
}

/* Takes answer, which is the one before from now on. */
static void show(struct top *top, json_t *answer)
{
	json_t *before = steal_pointer(&top->before), *volume;
	size_t i;
	double s;

	/* Another daemon counts anew. */
	if (before && json_number(answer, "pid") != json_number(before, "pid")) {
		json_decref(before);
		before = NULL;
	}
	if (isatty(STDOUT_FILENO))
		fputs("\033[H\033[J", stdout);
	print_head();
	s = real(answer, "uptime_s") - real(before, "uptime_s");
	json_array_foreach(json_object_get(answer, "volumes"), i, volume)
		print_volume(volume, volume_of(before, json_number(volume, "id")), s);
	fflush(stdout);
	json_decref(before);
	top->before = answer;
}

static void pause_for(uint64_t ms)
{
	struct timespec left = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};

	while (nanosleep(&left, &left) && errno == EINTR) {
	}
}

/* A daemon that is away is waited for, once there was one. */
static int run(struct top *top)
{
	struct why why;
	int r = client_call(&top->client, "GET", top->url, NULL, &top->before, &why);

	if (r)
		return command_failed(&why);
	while (!ferror(stdout)) {
		json_t *answer;

		pause_for(top->interval_ms);
		r = client_call(&top->client, "GET", top->url, NULL, &answer, &why);
		if (r) {
			printf("%s\n", why.text);
			fflush(stdout);
		} else {
			show(top, answer);
		}
		if (top->count && --top->count == 0)
			break;
	}
	json_decref(top->before);
	return r ? STATUS_FAILED : STATUS_DONE;
}

static int make_url(const char *mountpoint, char **ret, struct why *why)
{
	_cleanup_(freep) char *path = mountpoint ? path_of_mountpoint(mountpoint) : NULL;
	_cleanup_(buf_free) struct buf url;

	buf_init(&url, 1 << 20);
	if (mountpoint && !path)
		return why_set(why, -EINVAL, "can't make '%s' an absolute path", mountpoint);
	buf_add_string(&url, "/v1/volumes");
	if (path) {
		buf_add_string(&url, "?path=");
		percent_encode(&url, path, strlen(path), true);
	}
	*ret = buf_steal(&url);
	return *ret ? 0 : why_set(why, -ENOMEM, "no memory");
}

static bool parse_interval(const char *text, uint64_t *ret_ms)
{
	return !parse_duration(text, ret_ms) && *ret_ms >= INTERVAL_MIN_MS &&
	       *ret_ms <= INTERVAL_MAX_MS;
}

static bool parse_count(const char *text, unsigned long long *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	return *text >= '1' && *text <= '9' && !*end && !errno;
}

int cmd_top(const struct command *command, int argc, char **argv)
{
	static const struct option long_options[] = {
		{"interval", required_argument, NULL, OPTION_INTERVAL},
		{"count", required_argument, NULL, OPTION_COUNT}, COMMON_OPTIONS};
	struct top top = {.client = {client_socket(NULL)}, .interval_ms = 1000};
	struct why why;
	int c, status;

	while ((c = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
		if (c == OPTION_INTERVAL) {
			if (!parse_interval(optarg, &top.interval_ms))
				return command_misused(command,
					"--interval %s is no time from 100ms to 24h, as in 5s",
					optarg);
		} else if (c == OPTION_COUNT) {
			if (!parse_count(optarg, &top.count))
				return command_misused(
					command, "--count %s is no number from 1 on", optarg);
		} else if (c == OPTION_CONTROL) {
			top.client.socket = optarg;
		} else {
			return command_other_option(command, c);
		}
	}
	if (argc - optind > 1)
		return command_misused(command, "top takes at most one MOUNTPOINT");
	if (make_url(argv[optind], &top.url, &why))
		return command_failed(&why);
	status = run(&top);
	free(top.url);
	return status;
}
