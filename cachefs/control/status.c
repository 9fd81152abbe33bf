#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "fs/mountinfo.h"
#include "process.h"
#include "targets.h"
#include "totals.h"
#include "waits.h"

static json_int_t integer(uint64_t value)
{
	return (json_int_t)(value > INT64_MAX ? INT64_MAX : value);
}

static json_t *features_json(const struct volumes *volumes)
{
	struct kernel_features features;

	kernel_features(volumes, &features);
	return json_pack("{s:b, s:o, s:b, s:b, s:b, s:b, s:b, s:i, s:i, s:i}", "passthrough",
		features.passthrough, "passthrough_reason", json_shown(features.passthrough_reason),
		"resend", features.resend, "io_uring", features.io_uring, "io_uring_fuse",
		features.io_uring_fuse, "big_requests", features.big_requests, "handle_killpriv_v2",
		features.handle_killpriv_v2, "max_request_bytes", (int)features.max_request_bytes,
		"default_request_timeout_s", (int)features.default_request_timeout_s,
		"max_request_timeout_s", (int)features.max_request_timeout_s);
}

int handle_features(
	struct control *control, const char *path, json_t *body, json_t **ret, struct why *why)
{
	(void)path;
	(void)body;
	*ret = features_json(control->config.volumes);
	return *ret ? 0 : why_set(why, -ENOMEM, "no memory");
}

static json_t *keeper_json(const struct control_config *config)
{
	const struct control_keeper *keeper = &config->keeper;

	if (!keeper->pid)
		return json_null();
	return json_pack("{s:i, s:b, s:i, s:s}", "pid", keeper->pid, "alive",
		config->keeper_lives(config->arg), "restarts", (int)keeper->restarts, "last_exit",
		keeper->last_exit);
}

static double uptime_s(const struct control *control)
{
	return (double)(clock_now_ns() - control->started_ns) / (double)NS_PER_SEC;
}

static json_t *daemon_json(const struct control *control)
{
	struct process_usage usage;

	process_usage(&usage);
	return json_pack("{s:i, s:s, s:f, s:I, s:I, s:I, s:I, s:i, s:i, s:o, s:o}", "pid",
		(int)getpid(), "version", CACHEFS_VERSION, "uptime_s", uptime_s(control),
		"rss_bytes", integer(usage.rss_bytes), "rss_anon_bytes", integer(usage.anon_bytes),
		"rss_shmem_bytes", integer(usage.shmem_bytes), "rss_file_bytes",
		integer(usage.file_bytes), "threads", (int)usage.threads, "fds", (int)usage.fds,
		"features", features_json(control->config.volumes), "keeper",
		keeper_json(&control->config));
}

static json_t *store_json(const struct control *control, const struct cache_stats *stats)
{
	return json_pack("{s:o, s:I, s:I, s:i, s:I, s:b, s:b, s:i}", "path",
		json_shown(control->config.store), "capacity_bytes", integer(stats->capacity_bytes),
		"used_bytes", integer(stats->used_bytes), "dirty_bytes", 0, "objects",
		integer(stats->objects), "direct_io", stats->direct_io, "full", stats->store_full,
		"damaged_indexes", (int)stats->indexes_set_aside);
}

static json_t *origin_json(const struct origin_stats *stats)
{
	return json_pack("{s:s, s:o, s:I, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i}",
		"state", stats->reachable ? "reachable" : "unreachable", "last_error",
		json_shown(stats->last_error), "last_error_at_ns",
		(json_int_t)stats->last_error_wall_ns, "in_flight", (int)stats->in_flight, "gets",
		integer(outcomes_sum(stats->gets)), "heads", integer(outcomes_sum(stats->heads)),
		"lists", integer(outcomes_sum(stats->lists)), "bytes", integer(stats->bytes),
		"retries", integer(stats->retries), "moves", integer(stats->moves), "hedges",
		integer(stats->hedges), "hedge_bytes", integer(stats->hedge_bytes), "limit",
		(int)stats->limit);
}

static void add_seen(json_t *value, struct volume *volume)
{
	struct tree_stats tree;

	tree_stats(volume_tree(volume), &tree);
	json_object_set_new(value, "stale", json_integer(integer(tree.stale)));
	json_object_set_new(value, "hidden_keys", json_integer(integer(tree.hidden_keys)));
	json_object_set_new(value, "listings_refused", json_integer(integer(tree.refused)));
	json_object_set_new(value, "directories", json_integer(integer(tree.directories)));
}

static void add_work(json_t *value, const struct volume_info *info)
{
	const struct {
		const char *name;
		uint64_t number;
	} numbers[] = {
		{"hit_bytes", info->account->hit_bytes},
		{"miss_bytes", info->account->miss_bytes},
		{"passthrough_opens", info->account->passthrough_opens},
		{"opens", info->opens},
		{"estale_opens", info->estale_opens},
		{"requests", info->requests},
		{"lookups", info->lookups},
		{"reads", info->reads},
		{"nodes", info->nodes},
		{"handles", info->handles},
		{"parked", info->parked},
	};

	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
		json_object_set_new(
			value, numbers[i].name, json_integer(integer(numbers[i].number)));
}

/* All mounts of the volume's superblock in this namespace. */
static json_t *mountpoints_json(const struct volume_info *info)
{
	json_t *paths = json_array();
	const struct mount *first;
	struct mountinfo mounts;

	if (!info->mountpoint[0] || mountinfo_load(&mounts))
		return paths;
	first = mountinfo_at(&mounts, info->mountpoint);
	for (size_t i = 0; first && i < mounts.count; i++) {
		const struct mount *mount = &mounts.mounts[i];

		if (mount->major == first->major && mount->minor == first->minor)
			json_array_append_new(paths, json_shown(mount->mountpoint));
	}
	mountinfo_free(&mounts);
	return paths;
}

static json_t *volume_json(struct volume *volume)
{
	struct origin_stats origin;
	struct volume_waits waits;
	struct volume_info info;
	json_t *value;

	volume_info(volume, &info);
	volume_waits(info.account, &waits);
	origin_stats(volume_origin(volume), &origin);
	value = json_pack("{s:I, s:o, s:o, s:o, s:o, s:i, s:s, s:b, s:o}", "id", integer(info.id),
		"source", json_shown(info.source), "identity", json_shown(info.identity), "options",
		json_shown(info.options), "mountpoint", json_shown(info.mountpoint), "mounts",
		(int)info.mounts, "mode", info.read_only ? "ro" : "rw", "passthrough",
		info.passthrough, "origin", origin_json(&origin));
	json_object_set_new(value, "mountpoints", mountpoints_json(&info));
	waits_add_json(value, &waits);
	add_work(value, &info);
	add_seen(value, volume);
	return value;
}

#define VOLUMES_MAX 4096

struct gather {
	json_t *volumes;
	struct origin *origins[VOLUMES_MAX]; /* of volumes, in their order; references */
	size_t count;
	uint64_t only; /* id of the one volume to show; 0: all */
	struct origin_totals totals;
};

static void gather_volume(void *arg, struct volume *volume)
{
	struct gather *gather = arg;
	struct origin_stats stats;
	struct volume_info info;

	volume_info(volume, &info);
	origin_stats(volume_origin(volume), &stats);
	origin_totals_add(&gather->totals, &stats);
	if ((gather->only && gather->only != info.id) || gather->count == VOLUMES_MAX)
		return;
	if (!json_array_append_new(gather->volumes, volume_json(volume)))
		gather->origins[gather->count++] = origin_ref(volume_origin(volume));
}

static void drop_origins(struct gather *gather)
{
	for (size_t i = 0; i < gather->count; i++)
		origin_unref(gather->origins[i]);
}

/* Afterwards, since it reads the whole index. */
static void add_cached_bytes(struct control *control, struct gather *gather)
{
	_cleanup_(freep) uint64_t *bytes = calloc(gather->count + 1, sizeof *bytes);

	if (bytes &&
		!cache_origin_bytes(control->config.cache, gather->origins, gather->count, bytes)) {
		for (size_t i = 0; i < gather->count; i++)
			json_object_set_new(json_array_get(gather->volumes, i), "cached_bytes",
				json_integer(integer(bytes[i])));
	}
	drop_origins(gather);
}

static json_t *counters_json(const struct cache_stats *cache, const struct origin_totals *origin)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
		"origin_gets", integer(origin->gets), "origin_heads", integer(origin->heads),
		"origin_lists", integer(origin->lists), "origin_bytes", integer(origin->bytes),
		"retries", integer(origin->retries), "hit_bytes", integer(cache->hit_bytes),
		"miss_bytes", integer(cache->miss_bytes), "fetches", integer(cache->fetches),
		"fetched_bytes", integer(cache->fetched_bytes), "uncached_bytes",
		integer(cache->uncached_bytes), "evictions", integer(cache->evicted_objects),
		"checksum_failures", integer(cache->checksum_failures), "store_errors",
		integer(cache->store_errors), "commits", integer(cache->commits));
}

/* only: id of the volume to show, 0 for all. NULL: no memory. */
static json_t *whole_status(struct control *control, uint64_t only)
{
	_cleanup_(freep) struct gather *gather = calloc(1, sizeof *gather);
	struct cache_stats stats;
	struct origin_stats ended;

	if (!gather)
		return NULL;
	gather->volumes = json_array();
	gather->only = only;
	cache_stats(control->config.cache, &stats);
	volumes_each(control->config.volumes, gather_volume, gather);
	volumes_ended_stats(control->config.volumes, &ended);
	origin_totals_add(&gather->totals, &ended);
	add_cached_bytes(control, gather);
	return json_pack("{s:o, s:o, s:o, s:{s:i, s:i, s:i}, s:o, s:{s:I, s:I, s:I}}", "daemon",
		daemon_json(control), "store", store_json(control, &stats), "volumes",
		gather->volumes, "uploads", "pending", 0, "bytes", 0, "failed", 0, "counters",
		counters_json(&stats, &gather->totals), "pool", "buffers",
		integer(stats.pool_buffers), "in_use", integer(stats.pool_in_use), "waiters",
		integer(stats.pool_waiters));
}

static json_t *object_json(const char *path, struct volume *volume, const char *inner,
	const struct origin_attr *attr, const struct object_status *status)
{
	struct volume_info info;
	char name[ORIGIN_PATH_MAX * 2];

	volume_info(volume, &info);
	if (origin_object_name(volume_origin(volume), inner, name, sizeof name))
		name[0] = '\0';
	return json_pack("{s:o, s:o, s:o, s:I, s:I, s:o, s:b, s:I, s:I, s:b, s:b, s:I, s:s, s:s}",
		"path", json_shown(path), "source", json_shown(info.source), "object",
		json_shown(name), "size", integer(attr->size_bytes), "mtime_ns",
		(json_int_t)attr->mtime_ns, "version", json_shown(attr->version.text),
		"version_strong", attr->version.strong, "cached_bytes",
		integer(status->cached_bytes), "disk_bytes", integer(status->disk_bytes), "warm",
		status->warm, "pinned", status->pinned, "pinned_until_ns",
		(json_int_t)status->pinned_until_ns, "layout", "raw", "upload", "clean");
}

struct directory {
	uint64_t files, bytes, cached_bytes, warm, pinned;
};

static int directory_file(
	void *arg, struct volume *volume, const char *path, const struct origin_attr *attr)
{
	struct directory *directory = arg;
	struct object_status status;
	int r = cache_object_status(
		volume_cache(volume), volume_origin(volume), path, attr, &status);

	if (r)
		return r;
	directory->files++;
	directory->bytes += attr->size_bytes;
	directory->cached_bytes += status.cached_bytes;
	directory->warm += status.warm;
	directory->pinned += status.pinned;
	return 0;
}

static int directory_status(
	struct control *control, const char *path, json_t **ret, struct why *why)
{
	struct directory directory = {0};
	int r = target_visit(control, path, directory_file, &directory, why);

	if (r)
		return r;
	*ret = json_pack("{s:o, s:b, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:s, s:s}", "path",
		json_shown(path), "directory", 1, "files", integer(directory.files), "size",
		integer(directory.bytes), "cached_bytes", integer(directory.cached_bytes),
		"warm_files", integer(directory.warm), "pinned_files", integer(directory.pinned),
		"warm", directory.warm == directory.files, "pinned",
		directory.files && directory.pinned == directory.files, "layout", "raw", "upload",
		"clean");
	return 0;
}

static int object_status(struct control *control, const char *path, struct volume *volume,
	const char *inner, json_t **ret, struct why *why)
{
	struct object_status status;
	struct origin_attr attr;
	int r = target_lookup(volume, inner, &attr, why);

	if (r)
		return r;
	if (attr.kind == ORIGIN_DIR)
		return directory_status(control, path, ret, why);
	r = cache_object_status(volume_cache(volume), volume_origin(volume), inner, &attr, &status);
	if (r)
		return why_set(why, r, "can't read the index about %s: %s", path, strerror(-r));
	*ret = object_json(path, volume, inner, &attr, &status);
	return 0;
}

static int path_status(struct control *control, const char *path, json_t **ret, struct why *why)
{
	_cleanup_(freep) char *inner = NULL;
	struct volume_info info;
	struct volume *volume;
	int r = volumes_find(control->config.volumes, path, &volume, &inner, why);

	if (r)
		return r;
	if (*inner) {
		r = object_status(control, path, volume, inner, ret, why);
	} else {
		volume_info(volume, &info);
		*ret = whole_status(control, info.id);
	}
	volume_unref(volume);
	return r;
}

/* Cheap enough to be asked for every second. */
static json_t *volumes_json(struct control *control, uint64_t only)
{
	_cleanup_(freep) struct gather *gather = calloc(1, sizeof *gather);

	if (!gather)
		return NULL;
	gather->volumes = json_array();
	gather->only = only;
	volumes_each(control->config.volumes, gather_volume, gather);
	drop_origins(gather);
	return json_pack("{s:i, s:f, s:o}", "pid", (int)getpid(), "uptime_s", uptime_s(control),
		"volumes", gather->volumes);
}

int handle_volumes(
	struct control *control, const char *path, json_t *body, json_t **ret, struct why *why)
{
	_cleanup_(freep) char *inner = NULL;
	struct volume_info info = {0};
	struct volume *volume;
	int r;

	(void)body;
	if (path) {
		r = volumes_find(control->config.volumes, path, &volume, &inner, why);
		if (r)
			return r;
		volume_info(volume, &info);
		volume_unref(volume);
	}
	*ret = volumes_json(control, info.id);
	return *ret ? 0 : why_set(why, -ENOMEM, "no memory");
}

int handle_status(
	struct control *control, const char *path, json_t *body, json_t **ret, struct why *why)
{
	int r = 0;

	(void)body;
	if (path)
		r = path_status(control, path, ret, why);
	else
		*ret = whole_status(control, 0);
	return r || *ret ? r : why_set(why, -ENOMEM, "no memory");
}
