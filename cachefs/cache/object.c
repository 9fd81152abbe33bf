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
#include "private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

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
	raw_unref(object->raw);
	for (uint32_t i = 0; object->groups &&
			     i < (object->n_chunks + INDEX_GROUP_CHUNKS - 1) / INDEX_GROUP_CHUNKS;
		i++)
		free(object->groups[i]);
	free(object->groups);
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
	}
	stored = idle && object->raw;
	idle = idle && cache->n_idle_objects > IDLE_OBJECTS_MAX;
	lock_drop(&cache->objects_lock);
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

void object_record(struct object *object, struct index_object_record *ret)
{
	check(lock_held(&object->lock));
	*ret = (struct index_object_record){
		.object =
			{
				.size_bytes = object->size_bytes,
				.disk_bytes = object->disk_bytes,
				.mtime_ns = object->mtime_ns,
				.opened_wall_ns = object->opened_wall_ns,
				.pinned_until_ns = object->pinned_until_ns,
				.ctime_ns = object->ctime_ns,
				.verified_epoch =
					object->verified ? index_epoch(object->cache->index) : 0,
				.n_chunks = object->n_chunks,
				.n_present = object->n_present,
				.complete = object->complete,
				.strong = object->version.strong,
			},
	};
	/* The name fits: object_open_start refuses longer ones. */
	memcpy(ret->name, object->name, strlen(object->name) + 1);
	memcpy(ret->version, object->version.text, sizeof ret->version);
}

/* Everything of the object goes out of the index, durably, but for its pin. */
static int forget_chunks(struct object *object, struct index_object_record *record)
{
	struct index_txn *txn;
	int r = index_begin(object->cache->index, &txn);

	if (r)
		return r;
	r = index_delete_object(txn, object->id);
	if (!r && record->object.pinned_until_ns) {
		record->object.disk_bytes = record->object.n_present = 0;
		record->object.ctime_ns = 0;
		record->object.complete = false;
		r = index_put_object(txn, object->id, record);
	}
	if (r) {
		index_abort(txn);
		return r;
	}
	return index_commit(txn);
}

/*
 * The record says what the file can't back. A file that is gone or of another length is forgotten,
 * before anything new is written under this id. One that could not be opened for now (no
 * descriptors, a disk that fails), or whose record stays, is let alone: chunks added to it would
 * revive what the record says, so in this life of the daemon the object is not kept.
 */
static void record_unbacked(struct object *object, struct index_object_record *record, int error)
{
	struct cache *cache = object->cache;
	uint64_t disk_bytes = record->object.disk_bytes;
	bool lost = error == -ENOENT || error == -EUCLEAN;

	log_warn(lost ? "store_file_bad" : "store_file_unreadable",
		"object=%s version=%s reason=%s", object->name, object->version.text,
		strerror(-error));
	/* A file that is gone was damaged by nobody: its eviction was cut off before the records
	 * went. */
	if (error == -EUCLEAN)
		atomic_fetch_add(&cache->counters.checksum_failures, 1);
	else if (!lost)
		atomic_fetch_add(&cache->counters.store_errors, 1);
	object->pinned_until_ns = record->object.pinned_until_ns;
	if (!lost || forget_chunks(object, record)) {
		object->unkept = true;
		return;
	}
	object->has_record = record->object.pinned_until_ns != 0;
	space_give(cache, disk_bytes);
	raw_remove(cache->store, object->id, &(uint64_t){0});
}

/*
 * Nobody can say what the file has, and the groups of such a record are not to be believed either:
 * they go, with the file. A record that can't be read for now may be right: the object is not kept
 * in this life of the daemon, as in record_unbacked.
 */
static void record_unread(struct object *object, int error)
{
	struct index_object_record nothing = {0};
	uint64_t freed;

	log_error("index_read_failed", "object=%s error=%s", object->name, strerror(-error));
	if (error != -EUCLEAN || forget_chunks(object, &nothing)) {
		object->unkept = true;
		return;
	}
	if (!raw_remove(object->cache->store, object->id, &freed))
		space_give(object->cache, freed);
}

/* What the file uses was more or less than the record says, as after a crash; whoever evicts the
 * object later counts by the record. */
static void correct_record(
	struct object *object, struct index_object_record *record, uint64_t disk_bytes)
{
	struct cache *cache = object->cache;
	uint64_t before = record->object.disk_bytes;
	struct index_txn *txn;
	int r = index_begin(cache->index, &txn);

	if (r)
		return;
	/* A pin may have come since. */
	r = index_txn_get_object(txn, object->id, record);
	if (!r) {
		record->object.disk_bytes = disk_bytes;
		r = index_put_object(txn, object->id, record);
	}
	if (r)
		index_abort(txn);
	else
		r = index_commit(txn);
	if (r)
		record->object.disk_bytes = before;
	else
		space_correct(cache, before, disk_bytes);
}

/* In a worker, nobody else uses the object yet. An index or a disk that fails leaves an object that
 * is read uncached. */
static void load_record(struct object *object)
{
	struct cache *cache = object->cache;
	struct index_object_record record;
	struct raw_state state;
	struct raw *raw = NULL;
	int r = index_get_object(cache->index, object->id, &record);

	if (r) {
		if (r != -ENOENT)
			record_unread(object, r);
		return;
	}
	if (record.object.n_present) {
		r = raw_open(cache->store, object->id, object->size_bytes, false, &raw);
		if (!r)
			r = raw_stat(raw, &state);
		if (r) {
			raw_unref(raw);
			record_unbacked(object, &record, r);
			return;
		}
		if (record.object.disk_bytes != state.disk_bytes)
			correct_record(object, &record, state.disk_bytes);
	}
	lock_take(&object->lock);
	object->has_record = true;
	object->raw = raw;
	object->disk_bytes = record.object.disk_bytes;
	object->n_present = record.object.n_present;
	object->pinned_until_ns = record.object.pinned_until_ns;
	object->opened_wall_ns = record.object.opened_wall_ns;
	object->ctime_ns = record.object.ctime_ns;
	object->complete = record.object.complete;
	object->verified = !record.object.n_present ||
			   record.object.verified_epoch == index_epoch(cache->index);
	lock_drop(&object->lock);
}

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
	open->object = object;
	open->done(open, 0);
}

static void load_run(struct job *job)
{
	struct object *object = container_of(job, struct object, job);
	struct cache *cache = object->cache;
	struct list opens;
	struct list *link;

	load_record(object);
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

/* --- parts of an open object --- */

int object_load_group(struct object *object, uint32_t n)
{
	struct index_group stored;
	struct group *group;
	bool known, has_record;
	int r;

	lock_take(&object->lock);
	known = object->groups[n] != NULL;
	has_record = object->has_record;
	lock_drop(&object->lock);
	if (known)
		return 0;
	group = calloc(1, sizeof *group);
	if (!group)
		return -ENOMEM;
	r = has_record ? index_get_group(object->cache->index, object->id, n, &stored) : -ENOENT;
	for (uint32_t i = 0; !r && i < INDEX_GROUP_CHUNKS; i++) {
		if (stored.present[i / 64] >> (i % 64) & 1)
			group->state[i] = CHUNK_PRESENT;
		group->sum[i] = stored.sum[i];
	}
	if (r && r != -ENOENT)
		log_error("index_read_failed", "object=%s error=%s", object->name, strerror(-r));
	lock_take(&object->lock);
	if (!object->groups[n]) {
		/* An index that can't be read is as good as an empty one: the bytes come from the
		 * origin again, and the next commit counts what there is. */
		object->complete = object->complete && (!r || r == -ENOENT);
		object->groups[n] = group;
		group = NULL;
	}
	lock_drop(&object->lock);
	free(group);
	return 0;
}

struct raw *object_make_raw(struct object *object)
{
	struct raw *raw = NULL;
	int r;

	lock_take(&object->lock);
	while (object->opening_raw)
		cond_wait(&object->raw_made, &object->lock);
	if (object->raw || object->unkept) {
		raw = object->raw;
		lock_drop(&object->lock);
		return raw;
	}
	object->opening_raw = true;
	lock_drop(&object->lock);
	r = raw_open(object->cache->store, object->id, object->size_bytes, true, &raw);
	if (r == -EUCLEAN && !raw_remove(object->cache->store, object->id, &(uint64_t){0}))
		r = raw_open(object->cache->store, object->id, object->size_bytes, true, &raw);
	if (r == -ENOSPC || r == -EDQUOT)
		space_refused(object->cache);
	else if (r)
		log_warn("store_create_failed", "object=%s error=%s", object->name, strerror(-r));
	lock_take(&object->lock);
	object->opening_raw = false;
	if (!r)
		object->raw = raw;
	cond_broadcast(&object->raw_made);
	lock_drop(&object->lock);
	return r ? NULL : raw;
}

uint64_t object_size(const struct object *object)
{
	return object->size_bytes;
}

const struct origin_version *object_version(const struct object *object)
{
	return &object->version;
}

int object_backing_fd(struct object *object)
{
	struct raw_state state;
	struct raw *raw;
	int64_t ctime_ns;
	bool warm;

	lock_take(&object->lock);
	raw = object->raw;
	warm = object->complete && raw && !object->pending_drops;
	if (warm && !object->verified)
		verify_later(object);
	warm = warm && object->verified;
	ctime_ns = object->ctime_ns;
	lock_drop(&object->lock);
	if (!warm)
		return -EAGAIN;
	/* Somebody wrote to the file, or it has a hole, or it is cut: what was verified is not what
	 * is there. */
	if (raw_stat(raw, &state) || state.size_bytes != object->size_bytes ||
		state.disk_bytes < object->size_bytes || state.ctime_ns != ctime_ns) {
		lock_take(&object->lock);
		object->verified = false;
		verify_later(object);
		lock_drop(&object->lock);
		return -EAGAIN;
	}
	return raw_backing_fd(raw);
}
