#include "doctor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/lock.h"
#include "origin/origin.h"

/* Long enough for a slow origin, short enough for a person. */
#define TIMEOUT_MS 20000u

struct question {
	struct origin_list list;
	struct lock lock;
	struct cond answered;
	bool found; /* an entry came; before done */
	bool done;  /* lock */
	int error;  /* lock */
};

static void take_entry(struct origin_list *list, const struct origin_entry *entry)
{
	(void)entry;
	container_of(list, struct question, list)->found = true;
}

static void answered(struct origin_list *list, int error)
{
	struct question *question = container_of(list, struct question, list);

	lock_take(&question->lock);
	question->done = true;
	question->error = error;
	cond_signal(&question->answered);
	lock_drop(&question->lock);
}

static int list_one(struct origin *origin, const char *path, bool *ret_found)
{
	struct question question = {.list = {.origin = origin,
					    .path = path,
					    .limit = 1,
					    .entry = take_entry,
					    .done = answered}};
	int error;

	lock_init(&question.lock);
	cond_init(&question.answered);
	origin_list_start(&question.list);
	lock_take(&question.lock);
	while (!question.done)
		cond_wait(&question.answered, &question.lock);
	error = question.error;
	*ret_found = question.found;
	lock_drop(&question.lock);
	free(question.list.next_token);
	cond_destroy(&question.answered);
	lock_destroy(&question.lock);
	return error;
}

static void say_answer(struct doctor *doctor, struct origin *origin, int error, bool found)
{
	const char *source = origin_source(origin);
	struct origin_stats stats;

	origin_stats(origin, &stats);
	switch (error) {
	case 0:
		doctor_say(doctor, found ? FINDING_OK : FINDING_WARN, source,
			found ? "answers to %s"
			      : "answers to %s, and lists nothing: check the prefix, or the path",
			*origin_identity(origin) ? origin_identity(origin) : "anybody");
		return;
	case -ENOENT:
		doctor_say(doctor, FINDING_FAIL, source,
			"answers, but there is nothing below this path: check the prefix");
		return;
	case -ENXIO:
		doctor_say(doctor, FINDING_FAIL, source,
			"answers, but there is no such bucket: check its name, region= and "
			"endpoint=");
		return;
	case -EACCES:
		doctor_say(doctor, FINDING_FAIL, source,
			"denies access to %s (%s): check credentials=, aws_profile= or the AWS_* "
			"environment, and the bucket's policy",
			*origin_identity(origin) ? origin_identity(origin) : "anybody",
			stats.last_error[0] ? stats.last_error : strerror(-error));
		return;
	default:
		doctor_say(doctor, FINDING_FAIL, source,
			"is out of reach: %s; check endpoint=, the network and TLS (ca=)",
			stats.last_error[0] ? stats.last_error : strerror(-error));
	}
}

void doctor_origin(struct doctor *doctor, const char *source, const struct volume_options *options)
{
	const struct origin_config config = {
		.source = source,
		.endpoint = options->endpoint,
		.region = options->region,
		.addressing = options->addressing,
		.aws_profile = options->aws_profile,
		.credentials = options->credentials,
		.ca = options->ca,
		.anonymous = options->anonymous,
		.timeout_ms = TIMEOUT_MS,
	};
	struct origin_engine *engine = NULL;
	struct origin *origin;
	bool found = false;
	struct why why;
	int r = origin_engine_new(&engine);

	if (r) {
		doctor_say(doctor, FINDING_FAIL, source, "can't start the origins' threads: %s",
			strerror(-r));
		return;
	}
	if (origin_open(engine, &config, &origin, &why)) {
		doctor_say(doctor, FINDING_FAIL, source, "%s", why.text);
	} else {
		r = list_one(origin, options->subdir ? options->subdir : "", &found);
		say_answer(doctor, origin, r, found);
		origin_unref(origin);
	}
	origin_engine_free(engine);
}
