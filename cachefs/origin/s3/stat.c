/* What a path is: HEAD of the key and a probe of what lies below it, at the same time. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "later.h"
#include "s3/s3.h"

struct s3_stat_request {
	struct s3_request head, probe;
	struct origin_stat *stat;
	bool last; /* this is the second time: there is no third */
	/* The loop thread's. */
	int head_error, probe_error;
	unsigned unfinished, unreleased;
};

static struct s3_stat_request *stat_of_head(const struct request *request)
{
	return container_of(s3_request_of(request), struct s3_stat_request, head);
}

static struct s3_stat_request *stat_of_probe(const struct request *request)
{
	return container_of(s3_request_of(request), struct s3_stat_request, probe);
}

static void accept_head(struct request *request, struct verdict *verdict)
{
	struct origin_attr *attr = &stat_of_head(request)->stat->attr;
	const struct answer *answer = &request->answer;

	*attr = (struct origin_attr){
		.kind = ORIGIN_FILE,
		.size_bytes = answer->length,
		.mtime_ns = answer->modified_s * 1000000000ll,
	};
	if (answer->status != 200 || !answer->has_length ||
		answer_version(answer, answer->length, &attr->version))
		verdict_bad_answer(
			verdict, "HTTP %ld to a HEAD without size or ETag", answer->status);
	else
		verdict_done(verdict);
}

/* The directory wins; without knowing whether there is one, nothing can be said but of an object
 * whose keys may not be listed. */
static int decide(const struct s3_stat_request *own)
{
	if (!own->probe_error) {
		own->stat->attr = (struct origin_attr){.kind = ORIGIN_DIR};
		return 0;
	}
	if (own->probe_error == -ENOENT || own->probe_error == -ENAMETOOLONG)
		return own->head_error;
	if (own->probe_error == -EACCES && own->head_error != -ENOENT)
		return own->head_error;
	return own->probe_error;
}

static void start(struct origin_stat *stat, bool last);

/* A refusal of a HEAD has no code that says why. But the probe's has: when that was given other
 * credentials meanwhile, both are asked with them. */
static bool credentials_differ(const struct s3_stat_request *own)
{
	return !own->last && own->head_error && own->head_error != -ENOENT &&
	       own->head.base.credentials != own->probe.base.credentials;
}

static void finished(struct s3_stat_request *own)
{
	int error;

	if (--own->unfinished)
		return;
	error = decide(own);
	if (error && error != -ECANCELED && credentials_differ(own))
		start(own->stat, true);
	else
		own->stat->done(own->stat, error);
}

static void released(struct s3_stat_request *own)
{
	if (--own->unreleased)
		return;
	s3_request_free(&own->head);
	s3_request_free(&own->probe);
	free(own);
}

static void finish_head(struct request *request, int error)
{
	stat_of_head(request)->head_error = error;
	finished(stat_of_head(request));
}

static void finish_probe(struct request *request, int error)
{
	stat_of_probe(request)->probe_error = error;
	finished(stat_of_probe(request));
}

static void release_head(struct request *request)
{
	released(stat_of_head(request));
}

static void release_probe(struct request *request)
{
	released(stat_of_probe(request));
}

static struct s3_stat_request *make(struct origin_stat *stat)
{
	struct s3 *s3 = s3_of(stat->origin);
	struct s3_stat_request *own = calloc(1, sizeof *own);

	if (!own)
		return NULL;
	request_init(&own->head.base, REQUEST_HEAD, stat->origin, ORIGIN_DEMAND);
	s3_probe_init(&own->probe, stat->origin);
	own->head.base.accept = accept_head;
	own->head.base.finish = finish_head;
	own->head.base.release = release_head;
	own->probe.base.finish = finish_probe;
	own->probe.base.release = release_probe;
	own->stat = stat;
	own->unfinished = own->unreleased = 2;
	own->head.key = s3_key(s3, stat->path, false);
	own->probe.key = s3_key(s3, stat->path, true);
	own->probe.token = strdup("");
	if (own->head.key && own->probe.key && own->probe.token)
		return own;
	origin_unref(stat->origin);
	origin_unref(stat->origin);
	own->unreleased = 1;
	released(own);
	return NULL;
}

static void start(struct origin_stat *stat, bool last)
{
	struct s3_stat_request *own = make(stat);

	if (!own) {
		later_stat(stat, -ENOMEM);
		return;
	}
	own->last = last;
	engine_submit_pair(&own->head.base, &own->probe.base);
}

void s3_stat(struct origin_stat *stat)
{
	if (*stat->path) {
		start(stat, false);
		return;
	}
	stat->attr = (struct origin_attr){.kind = ORIGIN_DIR};
	later_stat(stat, 0);
}
