#include "origin/probe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/waiting.h"

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

int origin_probe(struct origin *origin, const char *path, bool *ret_found, struct why *why)
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
	if (r)
		return explain(origin, r, why);
	if (ret_found)
		*ret_found = probe.found;
	return 0;
}
