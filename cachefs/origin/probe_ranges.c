#include "origin/probe.h"

#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/waiting.h"

#include "ask.h"
#include "impl.h"

struct ask {
	struct origin_list list;
	struct origin_get get;
	struct waiting waiting;
	char *file; /* the first one of the directory, its path */
};

static void take_entry(struct origin_list *list, const struct origin_entry *entry)
{
	struct ask *ask = container_of(list, struct ask, list);

	if (ask->file || entry->attr.kind != ORIGIN_FILE)
		return;
	if (asprintf(&ask->file, "%s%s%.*s", list->path, *list->path ? "/" : "",
		    (int)entry->name_size, entry->name) < 0)
		ask->file = NULL;
}

static void listed(struct origin_list *list, int error)
{
	waiting_end(&container_of(list, struct ask, list)->waiting, error);
}

static size_t take_bytes(struct origin_get *get, const uint8_t *bytes, size_t n)
{
	(void)get;
	(void)bytes;
	return n;
}

static void got(struct origin_get *get, int error)
{
	waiting_end(&container_of(get, struct ask, get)->waiting, error);
}

static bool find_file(struct ask *ask)
{
	int r;

	waiting_begin(&ask->waiting);
	origin_list_start(&ask->list);
	r = waiting_wait(&ask->waiting);
	free(ask->list.next_token);
	return !r && ask->file;
}

/* The second byte: a server that knows no ranges gives the first one too. */
static void get_byte(struct ask *ask, const struct origin_attr *attr)
{
	ask->get = (struct origin_get){.origin = ask->list.origin,
		.path = ask->file,
		.offset = 1,
		.length = 1,
		.version = attr->version,
		.size_bytes = attr->size_bytes,
		.priority = ORIGIN_DEMAND,
		.data = take_bytes,
		.done = got};
	waiting_begin(&ask->waiting);
	origin_get_start(&ask->get);
	waiting_wait(&ask->waiting);
}

bool origin_ignores_ranges(struct origin *origin, const char *path)
{
	struct ask ask = {.list = {.origin = origin,
				  .path = path,
				  .priority = ORIGIN_DEMAND,
				  .entry = take_entry,
				  .done = listed}};
	struct origin_stats stats;
	struct origin_attr attr;

	if (!origin->ops->ranges_optional)
		return false;
	if (find_file(&ask) && !ask_stat(origin, ask.file, &attr) && attr.kind == ORIGIN_FILE &&
		attr.size_bytes > 1)
		get_byte(&ask, &attr);
	free(ask.file);
	origin_stats(origin, &stats);
	return stats.ignores_ranges;
}
