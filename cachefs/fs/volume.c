#include "volume_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/crash.h"
#include "base/log.h"
#include "base/work.h"
#include "kernel_features.h"

#define END_GRACE_NS (2 * NS_PER_SEC)

static void quiet_log(enum fuse_log_level level, const char *format, va_list args)
{
	char text[512];

	vsnprintf(text, sizeof text, format, args);
	text[strcspn(text, "\n")] = '\0';
	if (level <= FUSE_LOG_WARNING)
		log_warn("libfuse", "%s", text);
	else
		log_debug("libfuse", "%s", text);
}

int volumes_new(struct cache *cache, struct origin_engine *engine, void (*idle)(void *arg),
	void *arg, struct volumes **ret, struct why *why)
{
	struct volumes *volumes = calloc(1, sizeof *volumes);

	if (!volumes)
		return why_set(why, -ENOMEM, "out of memory");
	lock_init(&volumes->lock);
	cond_init(&volumes->changed);
	list_init(&volumes->list);
	list_init(&volumes->busy);
	volumes->cache = cache;
	volumes->engine = engine;
	volumes->idle = idle;
	volumes->arg = arg;
	features_probe(cache_store_dir(cache), &volumes->features);
	fuse_set_log_func(quiet_log);
	*ret = volumes;
	return 0;
}

struct volume *volume_ref(struct volume *volume)
{
	atomic_fetch_add(&volume->refs, 1);
	return volume;
}

void volume_unref(struct volume *volume)
{
	if (atomic_fetch_sub(&volume->refs, 1) > 1)
		return;
	check(!volume->fs);
	tree_free(volume->tree);
	origin_unref(volume->origin);
	volume_options_free(&volume->options);
	free(volume->given_source);
	free(volume->given_options);
	free(volume->source);
	free(volume->identity);
	free(volume->normal);
	cache_account_destroy(&volume->account);
	free(volume);
}

struct origin *volume_origin(struct volume *volume)
{
	return volume->origin;
}

struct tree *volume_tree(struct volume *volume)
{
	return volume->tree;
}

struct cache *volume_cache(struct volume *volume)
{
	return volume->volumes->cache;
}

bool volume_is_alive(const struct volume *volume)
{
	check(lock_held(&volume->volumes->lock));
	return volume->fs && session_is_connected(volume->fs->session);
}

bool volume_is_at(const struct volume *volume, struct mount_id id)
{
	return volume->mounted.major == id.major && volume->mounted.minor == id.minor &&
	       volume_is_alive(volume);
}

bool volume_look_alive(struct volume *volume)
{
	bool alive;

	lock_take(&volume->volumes->lock);
	alive = volume_is_alive(volume);
	lock_drop(&volume->volumes->lock);
	return alive;
}

bool volume_leave_list(struct volume *volume)
{
	struct volumes *volumes = volume->volumes;

	check(lock_held(&volumes->lock));
	list_remove(&volume->link);
	cond_broadcast(&volumes->changed);
	return list_empty(&volumes->list);
}

static void remember_stats(struct volumes *volumes, struct origin *origin)
{
	struct origin_stats *sum = &volumes->ended, stats;

	origin_stats(origin, &stats);
	lock_take(&volumes->lock);
	for (size_t i = 0; i < ORIGIN_OUTCOMES; i++) {
		sum->gets[i] += stats.gets[i];
		sum->heads[i] += stats.heads[i];
		sum->lists[i] += stats.lists[i];
	}
	sum->bytes += stats.bytes;
	sum->retries += stats.retries;
	lock_drop(&volumes->lock);
}

void volumes_ended_stats(struct volumes *volumes, struct origin_stats *ret)
{
	lock_take(&volumes->lock);
	*ret = volumes->ended;
	lock_drop(&volumes->lock);
}

static void *reap(void *arg)
{
	struct volume *volume = arg;
	struct volumes *volumes = volume->volumes;
	struct fs *fs = volume->fs;
	bool last, left;

	fs_wait(fs);
	/* In the list until fs_stop has returned: it works on this fs. */
	lock_take(&volumes->lock);
	while (volume->being_stopped)
		cond_wait(&volumes->changed, &volumes->lock);
	volume->fs = NULL;
	last = volume_leave_list(volume);
	lock_drop(&volumes->lock);
	left = fs_is_stopped(fs);
	log_info(left ? "volume_left" : "volume_ended", "id=%llu source=%s",
		(unsigned long long)volume->id, volume->source);
	volume_end_fs(volume, fs);
	remember_stats(volumes, volume->origin);
	if (!left)
		volume_unkeep(volume);
	volume_unref(volume);
	if (last && volumes->idle)
		volumes->idle(volumes->arg);
	/* The volumes may be freed as soon as this is known. */
	lock_take(&volumes->lock);
	volumes->reapers--;
	cond_broadcast(&volumes->changed);
	lock_drop(&volumes->lock);
	return NULL;
}

int volume_fs_config(struct volume *volume, struct fs_config *ret, struct why *why)
{
	struct volumes *volumes = volume->volumes;
	const char *store_dir = cache_store_dir(volumes->cache);
	struct tree_config tree = {volume->options.ttl_ms, volume->options.negative_ttl_ms};
	int r = tree_new(volumes->cache, volume->origin, &tree, &volume->tree);

	if (r)
		return why_set(why, r, "making the volume: %s", strerror(-r));
	*ret = (struct fs_config){
		.cache = volumes->cache,
		.origin = volume->origin,
		.tree = volume->tree,
		.account = &volume->account,
		.options = &volume->options,
		.calls = &device_kernel_calls,
		.passthrough = volumes->features.passthrough,
		.forgo_resend = !volumes->features.resend,
		.backing_depth = features_backing_depth(store_dir),
	};
	return 0;
}

int volume_start_reaper(struct volume *volume, struct fs *fs, struct mount_id id)
{
	struct volumes *volumes = volume->volumes;
	pthread_t thread;
	int r;

	lock_take(&volumes->lock);
	volume->fs = fs;
	volume->mounted = id;
	volume->state = MOUNTED;
	volumes->reapers++;
	cond_broadcast(&volumes->changed);
	lock_drop(&volumes->lock);
	r = thread_start(&thread, "cachefs-reaper", reap, volume);
	if (!r) {
		pthread_detach(thread);
		return 0;
	}
	lock_take(&volumes->lock);
	volume->fs = NULL;
	volumes->reapers--;
	lock_drop(&volumes->lock);
	return r;
}

void volume_end_fs(struct volume *volume, struct fs *fs)
{
	fs_wait(fs);
	/* What still waits for the origin has nobody left to tell. */
	origin_shutdown(volume->origin);
	fs_free(fs);
}

bool volume_begin_start(struct volume *volume)
{
	struct volumes *volumes = volume->volumes;
	bool may;

	lock_take(&volumes->lock);
	may = !volumes->stopping;
	volumes->starts += may;
	lock_drop(&volumes->lock);
	return may;
}

void volume_end_start(struct volume *volume)
{
	struct volumes *volumes = volume->volumes;

	lock_take(&volumes->lock);
	volumes->starts--;
	cond_broadcast(&volumes->changed);
	lock_drop(&volumes->lock);
}

static int mount_and_start(
	struct volume *volume, struct fs *fs, int device, const char *mountpoint, struct why *why)
{
	struct mount_id id;
	int r = mounting_new(
		device, volume->source, mountpoint, volume->options.allow_other, &id, why);

	if (r) {
		fs_free(fs);
		return r;
	}
	crash_point("after_mount");
	r = fs_start(fs, why);
	if (!r)
		r = volume_keep(volume, mountpoint, id, -1, -1, why);
	if (!r) {
		mounting_set_readahead(id, volume->options.readahead_bytes);
		r = volume_start_reaper(volume, fs, id);
		if (r)
			why_set(why, r, "serving %s: %s", mountpoint, strerror(-r));
	}
	if (r) {
		mounting_remove_all(id);
		mounting_abort(id);
		volume_end_fs(volume, fs);
	}
	return r;
}

int volume_mount_new(struct volume *volume, const char *mountpoint, struct why *why)
{
	struct fs_config config;
	struct fs *fs;
	int device, r = device_open(&device, why);

	if (r)
		return r;
	r = volume_fs_config(volume, &config, why);
	if (r) {
		close(device);
		return r;
	}
	r = fs_new(&config, device, &fs);
	if (r)
		return why_set(why, r, "making the volume: %s", strerror(-r));
	/* From before it is mounted, so that no mount is ever without somebody to serve it. */
	r = volume_keep(volume, mountpoint, (struct mount_id){0}, device, fs_table_fd(fs), why);
	if (r) {
		fs_free(fs);
		return r;
	}
	crash_point("after_put");
	r = mount_and_start(volume, fs, device, mountpoint, why);
	if (r)
		volume_unkeep(volume);
	return r;
}

static bool wait_for_end(struct volumes *volumes, uint64_t deadline_ns)
{
	bool ended;
	int r = 0;

	lock_take(&volumes->lock);
	while (!r && (volumes->reapers || !list_empty(&volumes->list)))
		r = cond_wait_until(&volumes->changed, &volumes->lock, deadline_ns);
	ended = !volumes->reapers && list_empty(&volumes->list);
	lock_drop(&volumes->lock);
	return ended;
}

static void detach(void *arg, struct volume *volume)
{
	(void)arg;
	if (volume_look_alive(volume))
		mounting_remove_all(volume->mounted);
}

static void cut(void *arg, struct volume *volume)
{
	(void)arg;
	if (volume_look_alive(volume))
		mounting_abort(volume->mounted);
}

static void stop(void *arg, struct volume *volume)
{
	struct volumes *volumes = volume->volumes;
	struct fs *fs;

	(void)arg;
	lock_take(&volumes->lock);
	fs = volume->fs;
	volume->being_stopped = fs;
	lock_drop(&volumes->lock);
	if (!fs)
		return;
	fs_stop(fs);
	lock_take(&volumes->lock);
	volume->being_stopped = false;
	cond_broadcast(&volumes->changed);
	lock_drop(&volumes->lock);
}

void volumes_stop(struct volumes *volumes)
{
	lock_take(&volumes->lock);
	volumes->stopping = true;
	while (volumes->starts)
		cond_wait(&volumes->changed, &volumes->lock);
	lock_drop(&volumes->lock);
	volumes_each(volumes, stop, NULL);
}

void volumes_free(struct volumes *volumes)
{
	if (!volumes)
		return;
	if (!volumes->stopping)
		volumes_each(volumes, detach, NULL);
	/* Open files and other namespaces keep a superblock alive, and we are about to go. */
	if (!wait_for_end(volumes, clock_now_ns() + END_GRACE_NS)) {
		if (!volumes->stopping)
			volumes_each(volumes, cut, NULL);
		wait_for_end(volumes, UINT64_MAX);
	}
	cond_destroy(&volumes->changed);
	lock_destroy(&volumes->lock);
	free(volumes);
}
