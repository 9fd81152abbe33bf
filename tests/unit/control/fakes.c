#include "fakes.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "origin/environment.h"

struct fake fake;
static struct cache_account account = {.hit_bytes = 7,
	.reads[WAITED_ORIGIN] = {.counts[8] = 1, .counts[9] = 1, .sum_ns = 3500000000},
	/* Ever since the clock began. */
	.stalled_reads = {.lock = LOCK_INITIALIZER, .waiting = 2},
	.stalled_names = {.lock = LOCK_INITIALIZER}};

#define THE_VOLUME ((struct volume *)&fake)

void volumes_each(
	struct volumes *volumes, void (*each)(void *arg, struct volume *volume), void *arg)
{
	(void)volumes;
	if (fake.mounted)
		each(arg, THE_VOLUME);
}

void volumes_ended_stats(struct volumes *volumes, struct origin_stats *ret)
{
	(void)volumes;
	*ret = (struct origin_stats){.gets[ORIGIN_OK] = fake.ended_gets};
}

int volumes_find(struct volumes *volumes, const char *path, struct volume **ret, char **ret_inner,
	struct why *why)
{
	size_t size = strlen(FAKE_MOUNTPOINT);

	(void)volumes;
	if (!fake.mounted || strncmp(path, FAKE_MOUNTPOINT, size) ||
		(path[size] && path[size] != '/'))
		return why_set(why, -ENOENT, "%s is not below a mount", path);
	*ret_inner = strdup(path + size + (path[size] == '/'));
	*ret = THE_VOLUME;
	fake.references++;
	return 0;
}

void volume_unref(struct volume *volume)
{
	check(volume == THE_VOLUME);
	fake.references--;
}

int origin_environment_check(const char *said, char *const *environment, struct why *why)
{
	check(environment[0]);
	return strcmp(said, "another") ? 0 : why_set(why, -EINVAL, "the environment differs");
}

int volumes_mount(struct volumes *volumes, const char *source, const char *mountpoint,
	const char *options, enum origin_finding *ret_found, struct why *why)
{
	(void)volumes;
	snprintf(fake.source, sizeof fake.source, "%s", source);
	snprintf(fake.mountpoint, sizeof fake.mountpoint, "%s", mountpoint);
	snprintf(fake.options, sizeof fake.options, "%s", options);
	if (fake.mount_error)
		return why_set(why, fake.mount_error, "the mountpoint is not empty");
	fake.mounted = true;
	*ret_found = fake.found;
	return 0;
}

int volumes_umount(struct volumes *volumes, const char *mountpoint, bool force, struct why *why)
{
	(void)volumes;
	fake.forced = force;
	if (strcmp(mountpoint, FAKE_MOUNTPOINT))
		return why_set(why, -EINVAL, "not a mount of ours");
	fake.mounted = false;
	return 0;
}

void volume_info(struct volume *volume, struct volume_info *ret)
{
	check(volume == THE_VOLUME);
	*ret = (struct volume_info){.id = 1,
		.source = FAKE_SOURCE,
		.identity = "key",
		.options = "",
		.mountpoint = FAKE_MOUNTPOINT,
		.mounts = 1,
		.read_only = true,
		.account = &account,
		.requests = 12};
}

struct origin *volume_origin(struct volume *volume)
{
	return (struct origin *)volume;
}

struct tree *volume_tree(struct volume *volume)
{
	return (struct tree *)volume;
}

struct cache *volume_cache(struct volume *volume)
{
	return (struct cache *)volume;
}

void kernel_features(const struct volumes *volumes, struct kernel_features *ret)
{
	(void)volumes;
	*ret = (struct kernel_features){.passthrough = true, .io_uring = true};
}

struct origin *origin_ref(struct origin *origin)
{
	fake.references++;
	return origin;
}

void origin_unref(struct origin *origin)
{
	(void)origin;
	fake.references--;
}

const char *origin_source(const struct origin *origin)
{
	(void)origin;
	return FAKE_SOURCE;
}

int origin_object_name(const struct origin *origin, const char *path, char *name, size_t size)
{
	(void)origin;
	return snprintf(name, size, "s3://aws/bucket/%s", path) < (int)size ? 0 : -ENAMETOOLONG;
}

void origin_stats(struct origin *origin, struct origin_stats *ret)
{
	(void)origin;
	*ret = (struct origin_stats){.gets = {[ORIGIN_OK] = 3, [ORIGIN_THROTTLED] = 2},
		.heads = {[ORIGIN_NOT_FOUND] = 1},
		.bytes = 4096,
		.retries = 2,
		.reachable = true};
}

/* --- the tree --- */

static const struct origin_attr file_attr = {
	.kind = ORIGIN_FILE, .size_bytes = 1000, .version = {"\"v1\"", true}};

struct listing {
	size_t count;
	struct listing_entry entries[FAKE_DIRS + 3];
	char names[FAKE_DIRS + 3][16];
};

static void add_entry(
	struct listing *listing, const char *name, enum origin_kind kind, bool attr_known)
{
	struct listing_entry *entry = &listing->entries[listing->count];

	snprintf(listing->names[listing->count], sizeof listing->names[0], "%s", name);
	entry->name = listing->names[listing->count++];
	entry->name_size = strlen(entry->name);
	entry->attr = file_attr;
	entry->attr.kind = kind;
	entry->attr_known = attr_known;
}

static struct listing *make_listing(const char *path)
{
	struct listing *listing = calloc(1, sizeof *listing);
	char name[16];

	check(listing);
	for (int i = 0; i < (*path ? FAKE_FILES : FAKE_DIRS); i++) {
		snprintf(name, sizeof name, "%c%d", *path ? 'f' : 'd', i);
		add_entry(listing, name, *path ? ORIGIN_FILE : ORIGIN_DIR, true);
	}
	if (!*path) {
		add_entry(listing, "top", ORIGIN_FILE, false);
		add_entry(listing, "busy", ORIGIN_FILE, true);
		add_entry(listing, "pinned", ORIGIN_FILE, true);
	}
	return listing;
}

static void *answer_list(void *arg)
{
	struct tree_list *list = arg;

	list->listing = make_listing(list->path);
	fake.lists_at_once--;
	list->done(list, 0);
	return NULL;
}

/* From another thread, as the real one does. */
void tree_list_start(struct tree_list *list)
{
	int now = ++fake.lists_at_once;
	pthread_t thread;

	fake.lists++;
	if (now > fake.most_lists_at_once)
		fake.most_lists_at_once = now;
	check(pthread_create(&thread, NULL, answer_list, list) == 0);
	pthread_detach(thread);
}

void tree_lookup_start(struct tree_lookup *lookup)
{
	const char *path = lookup->path;

	lookup->attr = file_attr;
	if (path[0] == 'd' && !strchr(path, '/'))
		lookup->attr.kind = ORIGIN_DIR;
	lookup->done(lookup, strstr(path, "missing") ? -ENOENT : 0);
}

void listing_unref(struct listing *listing)
{
	free(listing);
}

size_t listing_count(const struct listing *listing)
{
	return listing->count;
}

void listing_get(const struct listing *listing, size_t i, struct listing_entry *ret)
{
	*ret = listing->entries[i];
}

void tree_stats(struct tree *tree, struct tree_stats *ret)
{
	(void)tree;
	*ret = (struct tree_stats){.hidden_keys = 5};
}

/* --- the cache --- */

void cache_stats(struct cache *cache, struct cache_stats *ret)
{
	(void)cache;
	*ret = (struct cache_stats){.capacity_bytes = 1 << 30, .used_bytes = 4096, .objects = 1};
}

int cache_object_status(struct cache *cache, const struct origin *origin, const char *path,
	const struct origin_attr *attr, struct object_status *ret)
{
	(void)cache;
	(void)origin;
	*ret = (struct object_status){.size_bytes = attr->size_bytes,
		.cached_bytes = 10,
		.pinned = strstr(path, "pinned") != NULL};
	return 0;
}

int cache_origin_bytes(
	struct cache *cache, struct origin *const *origins, size_t count, uint64_t *ret_bytes)
{
	(void)cache;
	(void)origins;
	for (size_t i = 0; i < count; i++)
		ret_bytes[i] = 77;
	return 0;
}

int cache_pinned_bytes(struct cache *cache, uint64_t *ret_bytes)
{
	(void)cache;
	*ret_bytes = 12345;
	return 0;
}

int cache_object_pin(struct cache *cache, const struct origin *origin, const char *path,
	const struct origin_attr *attr, int64_t until_ns)
{
	(void)cache;
	(void)origin;
	(void)path;
	(void)attr;
	fake.pins += until_ns != 0;
	fake.unpins += until_ns == 0;
	fake.until_ns = until_ns;
	return 0;
}

int cache_object_evict(struct cache *cache, const struct origin *origin, const char *path,
	const struct origin_attr *attr, uint64_t *ret_freed_bytes)
{
	(void)cache;
	(void)origin;
	(void)attr;
	if (!strcmp(path, "busy"))
		return -EBUSY;
	if (!strcmp(path, "pinned"))
		return -EPERM;
	if (fake.evict_error)
		return fake.evict_error;
	fake.evicts++;
	*ret_freed_bytes = 4096;
	return 0;
}

int cache_object_verify(struct cache *cache, struct origin *origin, const char *path,
	const struct origin_attr *attr, bool repair, struct verify_result *result)
{
	(void)cache;
	(void)origin;
	(void)path;
	fake.verifies++;
	fake.repaired = repair;
	result->objects++;
	result->chunks++;
	result->bytes += attr->size_bytes;
	return 0;
}

int cache_verify_all(struct cache *cache, struct verify_result *result)
{
	(void)cache;
	*result = (struct verify_result){.objects = 9, .chunks = 9, .bad_chunks = 1};
	return 0;
}
