#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "command.h"
#include "defaults.h"
#include "doctor.h"
#include "paths.h"

const char doctor_help[] =
	"Usage: cachefs doctor [--json] [--store DIR] [--control SOCK] [-o OPT,…] [SOURCE…]\n"
	"Looks for what is missing on this machine, and changes nothing: kernel features, limits, "
	"the\n"
	"store's file system, the daemon, dead mounts, and whether each SOURCE answers with these "
	"credentials.\n"
	"One line each: ok, warn or fail, what, and the remedy. Exit status 1 if one is fail.\n"
	"\n"
	"  -o, --options OPT,…  as for `cachefs mount`: endpoint=, credentials=, …\n"
	"      --store DIR\n"
	"      --json\n"
	"      --control SOCK\n"
	"  -h, --help\n"
	"      --version\n"
	"\n"
	"Example:\n"
	"  cachefs doctor -o endpoint=http://minio:9000 s3://models/llama\n";

static const char *const levels[] = {"ok", "warn", "fail"};

void doctor_say(
	struct doctor *doctor, enum finding level, const char *what, const char *format, ...)
{
	char says[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(says, sizeof says, format, args);
	va_end(args);
	json_array_append_new(doctor->findings,
		json_pack("{s:s, s:s, s:s}", "level", levels[level], "what", what, "says", says));
	doctor->failed |= level == FINDING_FAIL;
}

static void say_passthrough(struct doctor *doctor, const json_t *features)
{
	const char *reason = json_text(features, "passthrough_reason");

	if (json_is_true(json_object_get(features, "passthrough")))
		doctor_say(doctor, FINDING_OK, "daemon's passthrough", "works on its store");
	else
		doctor_say(doctor, FINDING_WARN, "daemon's passthrough", "is off: %s",
			*reason ? reason : "the kernel or the store can't");
}

static void say_keeper(struct doctor *doctor, const json_t *keeper)
{
	if (json_is_false(json_object_get(keeper, "alive")))
		doctor_say(doctor, FINDING_WARN, "keeper",
			"is dead: mounts end with the daemon; restart the service when they may");
}

/* Somebody may have removed it, or put another in its place. */
static void say_own_store(struct doctor *doctor, const char *store)
{
	if (*store && !doctor_store_is_held(store))
		doctor_say(doctor, FINDING_FAIL, "daemon's store",
			"%s was removed while the daemon runs, which keeps nothing any more: end "
			"its mounts, or restart the service",
			store);
}

void doctor_daemon(struct doctor *doctor, const struct client *client)
{
	json_t *status;
	struct why why;
	int r = client_call(client, "GET", "/v1/status", NULL, &status, &why);

	if (client_no_daemon(r)) {
		doctor_say(doctor, FINDING_OK, "daemon", "none runs: `cachefs mount` starts it");
	} else if (r) {
		doctor_say(doctor, FINDING_FAIL, "daemon", "%s", why.text);
	} else {
		const json_t *daemon = json_object_get(status, "daemon");

		doctor_say(doctor, FINDING_OK, "daemon", "pid %llu, version %s, on %s",
			json_number(daemon, "pid"), json_text(daemon, "version"), client->socket);
		say_passthrough(doctor, json_object_get(daemon, "features"));
		say_keeper(doctor, json_object_get(daemon, "keeper"));
		say_own_store(doctor, json_text(json_object_get(status, "store"), "path"));
		doctor_environment(doctor, json_number(daemon, "pid"));
		json_decref(status);
	}
}

static const char *colour(const char *level)
{
	const char *no = getenv("NO_COLOR");

	if (!isatty(STDOUT_FILENO) || (no && *no))
		return "";
	return !strcmp(level, "ok") ? "\033[32m" : !strcmp(level, "warn") ? "\033[33m" : "\033[31m";
}

static void print_findings(const json_t *findings)
{
	json_t *finding;
	size_t i;

	json_array_foreach(findings, i, finding)
	{
		const char *level = json_text(finding, "level"), *on = colour(level);

		printf("%s%-4s%s %s: %s\n", on, level, *on ? "\033[0m" : "",
			json_text(finding, "what"), json_text(finding, "says"));
	}
}

static void look(struct doctor *doctor, const struct client *client, const char *store,
	const struct volume_options *options, char **sources)
{
	doctor_kernel(doctor);
	doctor_store(doctor, store);
	doctor_daemon(doctor, client);
	doctor_mounts(doctor);
	for (; *sources; sources++)
		doctor_origin(doctor, *sources, options);
	doctor_free_environment(doctor);
}

static int report(struct doctor *doctor, bool json)
{
	if (json)
		command_print_json(json_pack(
			"{s:b, s:o}", "ok", !doctor->failed, "findings", doctor->findings));
	else
		print_findings(doctor->findings);
	if (!json)
		json_decref(doctor->findings);
	return doctor->failed ? STATUS_FAILED : STATUS_DONE;
}

int cmd_doctor(const struct command *command, int argc, char **argv)
{
	enum { STORE = OPTION_OWN };
	static const struct option long_options[] = {{"store", required_argument, NULL, STORE},
		{"options", required_argument, NULL, 'o'}, {"json", no_argument, NULL, OPTION_JSON},
		COMMON_OPTIONS};
	struct client client = {client_socket(NULL)};
	const char *store_name = NULL;
	_cleanup_(buf_free) struct buf text;
	_cleanup_(freep) char *store = NULL;
	struct volume_options options;
	struct doctor doctor = {0};
	bool json = false;
	struct why why;
	int c;

	buf_init(&text, 1 << 20);
	while ((c = getopt_long(argc, argv, "ho:", long_options, NULL)) != -1) {
		if (c == STORE)
			store_name = optarg;
		else if (c == 'o')
			command_add_options(&text, optarg);
		else if (c == OPTION_JSON)
			json = true;
		else if (c == OPTION_CONTROL)
			client.socket = optarg;
		else
			return command_other_option(command, c);
	}
	if (volume_options_parse(buf_string(&text), &options, &why)) {
		command_failed(&why);
		return STATUS_USAGE;
	}
	if (!store_name)
		store_name = options.store ? options.store : default_store();
	store = path_resolved(store_name);
	if (!store) {
		why_set(&why, -errno, "can't make %s an absolute path: %s", store_name,
			strerror(errno));
		volume_options_free(&options);
		return command_failed(&why);
	}
	doctor.findings = json_array();
	look(&doctor, &client, store, &options, argv + optind);
	volume_options_free(&options);
	return report(&doctor, json);
}
