#include "doctor.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "origin/environment.h"
#include "origin/probe.h"

/* Long enough for a slow origin, short enough for a person. */
#define TIMEOUT_MS 20000u

static void ask_for_ranges(struct doctor *doctor, struct origin *origin, const char *path)
{
	if (origin_ignores_ranges(origin, path))
		doctor_say(doctor, FINDING_WARN, origin_source(origin),
			"gives no ranges of files: those of more than 64 MiB can't be read (EIO), "
			"and smaller ones are fetched from their beginning; use a server that "
			"does, such as nginx");
}

/* True: the daemon's environment would count, and is another. */
static bool differs(
	const struct doctor *doctor, const struct origin_config *config, struct why *why)
{
	_cleanup_(freep) char *said = NULL;

	return doctor->daemon_environ && !origin_environment_say(config, &said) &&
	       origin_environment_check(said, doctor->daemon_environ, why);
}

static void say_found(
	struct doctor *doctor, const struct origin *origin, enum origin_finding found, bool others)
{
	static const char *const says[] = {[ORIGIN_HAS_NAMES] = "",
		[ORIGIN_EMPTY] = ", and lists nothing: check the prefix, or the path",
		[ORIGIN_UNLISTED] =
			", and shows no names there: check the path, or open names that you know"};
	const char *identity = origin_identity(origin);

	doctor_say(doctor, found == ORIGIN_HAS_NAMES ? FINDING_OK : FINDING_WARN,
		origin_source(origin), "answers to %s%s%s", *identity ? identity : "anybody",
		others ? " with this shell's environment; the running daemon has another" : "",
		says[found]);
}

void doctor_origin(struct doctor *doctor, const char *source, const struct volume_options *options)
{
	const char *path = options->subdir ? options->subdir : "";
	struct origin_engine *engine = NULL;
	struct origin_config config;
	struct origin *origin;
	struct why why;
	enum origin_finding found;
	bool others;
	int r = origin_engine_new(&engine);

	if (r) {
		doctor_say(doctor, FINDING_FAIL, source, "can't start the origins' threads: %s",
			strerror(-r));
		return;
	}
	volume_options_origin(options, source, &config);
	config.timeout_ms = TIMEOUT_MS;
	others = differs(doctor, &config, &why);
	if (others)
		doctor_say(
			doctor, FINDING_WARN, source, "can't be mounted from here: %s", why.text);
	if (origin_open(engine, &config, &origin, &why)) {
		doctor_say(doctor, FINDING_FAIL, source, "%s", why.text);
	} else {
		r = origin_probe(origin, path, &found, &why);
		if (!r && found != ORIGIN_HAS_NAMES && !options->subdir)
			r = origin_probe_file(engine, &config, &why);
		if (r)
			doctor_say(doctor, FINDING_FAIL, origin_source(origin), "%s", why.text);
		else
			say_found(doctor, origin, found, others);
		if (!r)
			ask_for_ranges(doctor, origin, path);
		origin_unref(origin);
	}
	origin_engine_free(engine);
}
