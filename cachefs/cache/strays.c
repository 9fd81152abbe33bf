#include "strays.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "index/index.h"
#include "objects.h"
#include "space.h"
#include "store/store.h"
#include "whole.h"

int ids_add(struct ids *ids, struct id128 id)
{
	if (ids->n == ids->room) {
		size_t room = ids->room ? ids->room * 2 : 1024;
		struct id128 *more = reallocarray(ids->ids, room, sizeof *more);

		if (!more)
			return -ENOMEM;
		ids->ids = more;
		ids->room = room;
	}
	ids->ids[ids->n++] = id;
	return 0;
}

/* Any error is no stray: what can't be read for now may have a record. */
static bool has_no_record(struct cache *cache, struct id128 id)
{
	struct index_object_record record;

	return index_get_object(cache->index, id, &record) == -ENOENT;
}

bool stray_remove(struct cache *cache, struct id128 id, uint64_t *ret_freed_bytes)
{
	struct object *placeholder;
	bool removed;

	/* First without disturbing the object, if it is one. */
	if (!has_no_record(cache, id) || object_evict_begin(cache, id, &placeholder))
		return false;
	removed = has_no_record(cache, id) && !raw_remove(cache->store, id, ret_freed_bytes);
	object_evict_finish(placeholder);
	return removed;
}

static int collect(void *arg, struct id128 id)
{
	return ids_add(arg, id);
}

static void sweep_directory(struct cache *cache)
{
	struct strays *strays = &cache->strays;
	struct ids ids = {0};
	int r = raw_each_in(cache->store, strays->next, collect, &ids);

	if (r)
		log_warn("strays_not_seen", "directory=%02x error=%s", strays->next, strerror(-r));
	for (size_t i = 0; i < ids.n && !atomic_load(&cache->ending); i++) {
		uint64_t freed;

		if (!stray_remove(cache, ids.ids[i], &freed))
			continue;
		strays->bytes += freed;
		atomic_fetch_add(&strays->removed, 1);
		space_freed(cache);
	}
	free(ids.ids);
}

static void sweep_next(struct job *job)
{
	struct strays *strays = container_of(job, struct strays, job);
	struct cache *cache = container_of(strays, struct cache, strays);
	uint64_t removed;

	if (atomic_load(&cache->ending))
		return;
	sweep_directory(cache);
	if (++strays->next < RAW_DIRECTORIES) {
		work_post(cache->verifies, &strays->job);
		return;
	}
	removed = atomic_load(&strays->removed);
	if (removed)
		log_info("strays_removed", "files=%llu bytes=%llu", (unsigned long long)removed,
			(unsigned long long)strays->bytes);
}

void strays_sweep(struct cache *cache)
{
	cache->strays.job.run = sweep_next;
	work_post(cache->verifies, &cache->strays.job);
}
