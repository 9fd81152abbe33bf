/*
 * Objects in memory: found or made at open, kept a while when nobody uses them, so that the next
 * open finds its descriptor.
 *
 *   1. loading    made by the first open; a worker reads its record and opens its raw file; other
 *                 opens wait
 *   2. in use     refs > 0
 *   3. idle       refs == 0, in cache.idle_objects; the oldest are freed
 *   4. evicting   refs == 0, out of idle_objects, no raw file open; opens wait, then begin at 1
 */
#include "objects.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/waiting.h"
#include "store/store.h"
#include "whole.h"

#define IDLE_OBJECTS_MAX 512
/* A record's time of last open is brought up to date when it is older than this. */
#define TOUCH_NS (60ll * 1000000000)

struct pending_open {
	struct list link;
	struct object_open *open;
	char name[]; /* of the object, for an open that begins anew */
};

void object_id(const char *name, const struct origin_version *version, uint64_t size_bytes,
	struct id128 *ret)
{
	char size[24];

	snprintf(size, sizeof size, "%llu", (unsigned long long)size_bytes);
	*ret = hash128_strings((const char *const[]){name, version->text, size}, 3);
}

static bool object_equal(const struct map_node *node, const void *key)
{
	return id128_equal(
		container_of(node, struct object, in_objects)->id, *(const struct id128 *)key);
}

static struct object *table_find(struct cache *cache, struct id128 id)
{
	struct map_node *node;

	check(lock_held(&cache->objects_lock));
	node = map_find(&cache->objects, id.lo, object_equal, &id);
	return node ? container_of(node, struct object, in_objects) : NULL;
}

static void object_free(struct object *object)
{
	if (!object)
		return;
	raw_close(object->raw);
	for (uint32_t i = 0; object->groups &&
			     i < (object->n_chunks + INDEX_GROUP_CHUNKS - 1) / INDEX_GROUP_CHUNKS;
		i++)
		free(object->groups[i]);
	free(object->groups);
	origin_unref(object->origin);
	free(object->path);
	free(object->name);
	cond_destroy(&object->raw_made);
	lock_destroy(&object->lock);
	free(object);
}

static struct object *object_new(
	struct cache *cache, struct id128 id, const char *name, const struct origin_attr *attr)
{
	struct object *object = calloc(1, sizeof *object);
	uint64_t n_chunks = attr->size_bytes / CHUNK_SIZE + (attr->size_bytes % CHUNK_SIZE != 0);

	if (!object || n_chunks > UINT32_MAX) {
		free(object);
		return NULL;
	}
	lock_init(&object->lock);
	cond_init(&object->raw_made);
	list_init(&object->idle);
	list_init(&object->opens);
	object->cache = cache;
	object->id = id;
	object->size_bytes = attr->size_bytes;
	object->mtime_ns = attr->mtime_ns;
	object->version = attr->version;
	object->n_chunks = (uint32_t)n_chunks;
	object->complete = !n_chunks;
	object->verified = true;
	object->name = strdup(name);
	object->groups = calloc((n_chunks + INDEX_GROUP_CHUNKS - 1) / INDEX_GROUP_CHUNKS + 1,
		sizeof(struct group *));
	if (!object->name || !object->groups) {
		object_free(object);
		return NULL;
	}
	return object;
}

/* --- references --- */

struct object *object_ref(struct object *object)
{
	check(atomic_fetch_add(&object->refs, 1) > 0);
	return object;
}

void object_unref(struct object *object)
{
	struct cache *cache;
	struct origin *origin = NULL;
	unsigned refs;
	bool idle, stored;

	if (!object)
		return;
	cache = object->cache;
	refs = atomic_load(&object->refs);
	while (refs > 1) {
		if (atomic_compare_exchange_weak(&object->refs, &refs, refs - 1))
			return;
	}
	/* It may be the last: 0 is reached under the lock only, where the next open looks. */
	lock_take(&cache->objects_lock);
	idle = atomic_fetch_sub(&object->refs, 1) == 1;
	if (idle) {
		list_append(&cache->idle_objects, &object->idle);
		cache->n_idle_objects++;
		/* Nobody can have its lock. */
		origin = steal_pointer(&object->origin);
		free(steal_pointer(&object->path));
	}
	stored = idle && object->raw;
	idle = idle && cache->n_idle_objects > IDLE_OBJECTS_MAX;
	lock_drop(&cache->objects_lock);
	origin_unref(origin);
	if (stored)
		space_hopeful(cache);
	if (idle)
		objects_free_idle(cache, IDLE_OBJECTS_MAX / 2);
}

/* objects_lock held. */
static void table_ref(struct object *object)
{
	struct cache *cache = object->cache;

	check(lock_held(&cache->objects_lock));
	if (atomic_fetch_add(&object->refs, 1) == 0 && !list_empty(&object->idle)) {
		list_remove(&object->idle);
		cache->n_idle_objects--;
	}
}

void objects_free_idle(struct cache *cache, size_t keep)
{
	struct list freed;
	struct list *link;

	list_init(&freed);
	lock_take(&cache->objects_lock);
	while (cache->n_idle_objects > keep) {
		struct object *object =
			container_of(list_pop(&cache->idle_objects), struct object, idle);

		cache->n_idle_objects--;
		map_remove(&cache->objects, &object->in_objects);
		list_append(&freed, &object->idle);
	}
	lock_drop(&cache->objects_lock);
	while ((link = list_pop(&freed)))
		object_free(container_of(link, struct object, idle));
}

struct object *object_find(struct cache *cache, struct id128 id)
{
	struct object *object;

	lock_take(&cache->objects_lock);
	object = table_find(cache, id);
	if (object && !object->loading && !object->evicting)
		table_ref(object);
	else
		object = NULL;
	lock_drop(&cache->objects_lock);
	return object;
}

/* --- opening --- */

static void open_finish(struct object_open *open, struct object *object)
{
	int64_t now = clock_wall_ns();
	bool touch;

	lock_take(&object->lock);
	touch = object->has_record && now - object->opened_wall_ns > TOUCH_NS;
	if (touch || !object->has_record)
		object->opened_wall_ns = now;
	/* The origin vouched for this version again. */
	object->changed = false;
	lock_drop(&object->lock);
	if (touch)
		commit_touch(object->cache, object->id, now);
	if (open->origin)
		complete_opened(object, open->origin, open->path);
	open->object = object;
	open->done(open, 0);
}

static void load_run(struct job *job)
{
	struct object *object = container_of(job, struct object, job);
	struct cache *cache = object->cache;
	struct list opens;
	struct list *link;

	object_load(object);
	list_init(&opens);
	lock_take(&cache->objects_lock);
	object->loading = false;
	list_splice(&opens, &object->opens);
	list_for_each (pending, &opens)
		table_ref(object);
	lock_drop(&cache->objects_lock);
	while ((link = list_pop(&opens))) {
		struct pending_open *pending = container_of(link, struct pending_open, link);
		struct object_open *open = pending->open;

		free(pending);
		open_finish(open, object);
	}
}

/* objects_lock held. Queues the open at an object that is loading or evicting. */
static int open_wait(struct object *object, struct object_open *open, const char *name)
{
	size_t size = strlen(name) + 1;
	struct pending_open *pending = malloc(sizeof *pending + size);

	if (!pending)
		return -ENOMEM;
	pending->open = open;
	memcpy(pending->name, name, size);
	list_append(&object->opens, &pending->link);
	return 0;
}

void object_open_start(struct object_open *open)
{
	char name[INDEX_NAME_MAX];
	int r = origin_object_name(open->origin, open->path, name, sizeof name);

	if (r)
		open->done(open, r);
	else
		object_open_named(open, name);
}

void object_open_named(struct object_open *open, const char *name)
{
	struct cache *cache = open->cache;
	struct object *object, *fresh = NULL;
	struct id128 id;
	int r;

	object_id(name, &open->attr.version, open->attr.size_bytes, &id);
	lock_take(&cache->objects_lock);
	object = table_find(cache, id);
	if (object && !object->loading && !object->evicting) {
		table_ref(object);
		lock_drop(&cache->objects_lock);
		open_finish(open, object);
		return;
	}
	if (!object) {
		object = fresh = object_new(cache, id, name, &open->attr);
		if (fresh) {
			fresh->loading = true;
			fresh->job.run = load_run;
			map_insert(&cache->objects, &fresh->in_objects, id.lo);
		}
	}
	r = object ? open_wait(object, open, name) : -ENOMEM;
	if (r && fresh) {
		map_remove(&cache->objects, &fresh->in_objects);
		object_free(fresh);
		fresh = NULL;
	}
	lock_drop(&cache->objects_lock);
	if (r)
		open->done(open, r);
	else if (fresh)
		work_post(cache->opens, &fresh->job);
}

static void open_done(struct object_open *open, int error)
{
	waiting_end(open->private[0], error);
}

int object_open_wait(
	struct cache *cache, const char *name, const struct origin_attr *attr, struct object **ret)
{
	struct object_open open = {.cache = cache, .attr = *attr, .done = open_done};
	struct waiting waiting;
	int r;

	waiting_begin(&waiting);
	open.private[0] = &waiting;
	object_open_named(&open, name);
	r = waiting_wait(&waiting);
	if (!r)
		*ret = open.object;
	return r;
}

/* --- eviction --- */

int object_evict_begin(struct cache *cache, struct id128 id, struct object **ret_placeholder)
{
	static const struct origin_attr nothing;
	struct object *object, *placeholder = object_new(cache, id, "", &nothing);

	if (!placeholder)
		return -ENOMEM;
	placeholder->evicting = true;
	lock_take(&cache->objects_lock);
	object = table_find(cache, id);
	if (object && (object->loading || object->evicting || atomic_load(&object->refs))) {
		lock_drop(&cache->objects_lock);
		object_free(placeholder);
		return -EBUSY;
	}
	if (object) {
		list_remove(&object->idle);
		cache->n_idle_objects--;
		map_remove(&cache->objects, &object->in_objects);
	}
	map_insert(&cache->objects, &placeholder->in_objects, id.lo);
	lock_drop(&cache->objects_lock);
	if (object) {
		placeholder->has_record = object->has_record;
		placeholder->disk_bytes = object->disk_bytes;
		placeholder->opened_wall_ns = object->opened_wall_ns;
	}
	object_free(object);
	*ret_placeholder = placeholder;
	return 0;
}

void object_evict_finish(struct object *placeholder)
{
	struct cache *cache = placeholder->cache;
	struct list opens;
	struct list *link;

	list_init(&opens);
	lock_take(&cache->objects_lock);
	map_remove(&cache->objects, &placeholder->in_objects);
	list_splice(&opens, &placeholder->opens);
	lock_drop(&cache->objects_lock);
	object_free(placeholder);
	while ((link = list_pop(&opens))) {
		struct pending_open *pending = container_of(link, struct pending_open, link);

		object_open_named(pending->open, pending->name);
		free(pending);
	}
}

uint64_t object_size(const struct object *object)
{
	return object->size_bytes;
}

const struct origin_version *object_version(const struct object *object)
{
	return &object->version;
}
