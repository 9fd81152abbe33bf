#include "origin/probe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/list.h"
#include "base/percent.h"
#include "base/waiting.h"

#include "ask.h"
#include "impl.h"

struct probe {
	struct origin_list list;
	struct waiting waiting;
	bool found; /* an entry came; before done */
};

static void take_entry(struct origin_list *list, const struct origin_entry *entry)
{
	(void)entry;
	container_of(list, struct probe, list)->found = true;
}

static void listed(struct origin_list *list, int error)
{
	waiting_end(&container_of(list, struct probe, list)->waiting, error);
}

static int explain(struct origin *origin, int error, struct why *why)
{
	const char *identity = origin_identity(origin), *said;
	struct origin_stats stats;

	origin_stats(origin, &stats);
	said = *stats.last_error ? stats.last_error : strerror(-error);
	if (origin->ops->says_why && (error == -EACCES || error == -ENXIO))
		return why_set(why, error, "refuses: %s", said);
	switch (error) {
	case -EACCES:
		if (origin->ops->lists_some)
			return why_set(why, error, "denies access (%s): check credentials=", said);
		return why_set(why, error,
			"denies access to %s (%s): check credentials=, aws_profile=, anonymous or "
			"the AWS_* environment, and the bucket's policy",
			*identity ? identity : "anybody", said);
	case -ENOENT:
		return why_set(why, error,
			"answers, but there is nothing below this path: check the prefix");
	case -ENXIO:
		return why_set(why, error,
			"answers, but there is no such bucket: check its name, region= and "
			"endpoint=");
	default:
		return why_set(why, error,
			"can't be used: %s; check the source, endpoint=, the network and TLS (ca=)",
			said);
	}
}

int origin_probe(struct origin *origin, const char *path, enum origin_finding *ret, struct why *why)
{
	struct probe probe = {.list = {.origin = origin,
				      .path = path,
				      .limit = 1,
				      .entry = take_entry,
				      .done = listed}};
	int r;

	waiting_begin(&probe.waiting);
	origin_list_start(&probe.list);
	r = waiting_wait(&probe.waiting);
	free(probe.list.next_token);
	if (r && !probe.list.unlisted)
		return explain(origin, r, why);
	*ret = probe.found           ? ORIGIN_HAS_NAMES
	       : probe.list.unlisted ? ORIGIN_UNLISTED
				     : ORIGIN_EMPTY;
	return 0;
}

static bool is_file(struct origin *origin, const char *name)
{
	struct origin_attr attr;

	return !ask_stat(origin, name, &attr) && attr.kind == ORIGIN_FILE;
}

/* Cuts the last component off a source, in place; false when there is none to cut. *ret_name: decoded. */
static bool cut_name(char *source, struct buf *ret_name)
{
	char *root = strstr(source, "://"), *name;
	bool url = root && !strncmp(source, "http", 4);
	size_t n = strlen(source);

	while (n && source[n - 1] == '/')
		source[--n] = '\0';
	root = root ? strchr(root + 3, '/') : NULL;
	name = strrchr(source, '/');
	if (!root || !name || name < root || !name[1])
		return false;
	*name++ = '\0';
	return url ? !percent_decode(ret_name, name, strlen(name), false)
		   : !buf_add_string(ret_name, name);
}

int origin_probe_file(
	struct origin_engine *engine, const struct origin_config *config, struct why *why)
{
	_cleanup_(freep) char *above = strdup(config->source);
	struct origin_config parent = *config;
	_cleanup_(buf_free) struct buf name;
	struct origin *origin;
	int r = 0;

	buf_init(&name, ORIGIN_PATH_MAX);
	parent.source = above;
	if (!above || !cut_name(above, &name) || origin_open(engine, &parent, &origin, NULL))
		return 0;
	if (is_file(origin, buf_string(&name)))
		r = why_set(why, -ENOTDIR,
			"is a file, and a directory is what can be mounted: give %s, which has it",
			origin_source(origin));
	origin_unref(origin);
	return r;
}
