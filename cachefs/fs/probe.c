#include "probe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/lock.h"

struct probe {
	struct origin_list list;
	struct lock lock;
	struct cond changed;
	bool done; /* lock */
	int error; /* lock */
};

static void ignore_entry(struct origin_list *list, const struct origin_entry *entry)
{
	(void)list;
	(void)entry;
}

static void done(struct origin_list *list, int error)
{
	struct probe *probe = container_of(list, struct probe, list);

	lock_take(&probe->lock);
	probe->error = error;
	probe->done = true;
	cond_signal(&probe->changed);
	lock_drop(&probe->lock);
}

static int explain(struct origin *origin, int error, struct why *why)
{
	const char *source = origin_source(origin), *identity = origin_identity(origin);
	struct origin_stats stats;

	origin_stats(origin, &stats);
	switch (error) {
	case -EACCES:
		return why_set(why, error,
			"%s: access denied to %s (%s); check the credentials (options aws_profile, "
			"credentials, anonymous; AWS_* of the daemon's environment) and the "
			"bucket's policy",
			source, *identity ? identity : "anybody",
			*stats.last_error ? stats.last_error : strerror(-error));
	case -ENOENT:
		return why_set(why, error,
			"%s: no such bucket, or nothing below the prefix (%s); check SOURCE",
			source, *stats.last_error ? stats.last_error : strerror(-error));
	default:
		return why_set(why, error,
			"%s: the origin can't be used: %s; check SOURCE, endpoint and network",
			source, *stats.last_error ? stats.last_error : strerror(-error));
	}
}

int probe_origin(struct origin *origin, struct why *why)
{
	struct probe probe = {0};

	probe.list = (struct origin_list){
		.origin = origin,
		.path = "",
		.limit = 1,
		.entry = ignore_entry,
		.done = done,
	};
	lock_init(&probe.lock);
	cond_init(&probe.changed);
	origin_list_start(&probe.list);
	lock_take(&probe.lock);
	while (!probe.done)
		cond_wait(&probe.changed, &probe.lock);
	lock_drop(&probe.lock);
	cond_destroy(&probe.changed);
	lock_destroy(&probe.lock);
	free(probe.list.next_token);
	return probe.error ? explain(origin, probe.error, why) : 0;
}
