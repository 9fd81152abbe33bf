#include "fs/volume.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/work.h"
#include "kernel_features.h"
#include "fs.h"
#include "mounting.h"
#include "fs/mountinfo.h"
#include "probe.h"

#define PROBE_TIMEOUT_MS 10000
#define END_GRACE_NS     (2 * NS_PER_SEC)

/*
 * A volume's life: MOUNTING (in the list so that nobody mounts the same beside it), MOUNTED, and
 * gone from the list when its device has ended. The reaper, one thread a volume, waits for that,
 * frees the fs, and drops the list's reference. The fs may be looked at under the volumes' lock
 * only.
 */
enum state { MOUNTING, MOUNTED };

struct volumes {
	struct lock lock;
	struct cond changed; /* a state, or the end of a reaper */
	struct list list;    /* lock */
	struct list busy;    /* lock; mountpoints that are being mounted on */
	uint64_t next_id;    /* lock */
	unsigned reapers;    /* lock */
	/* lock; calls under way. They keep each other out: a mount that is being copied is in use,
	 * and its umount would fail. */
	unsigned binds, umounts;
	struct cache *cache;
	struct origin_engine *engine;
	void (*idle)(void *arg);
	void *arg;
	struct kernel_features features; /* constant */
};

struct volume {
	struct list link; /* lock */
	struct volumes *volumes;
	_Atomic unsigned refs;
	uint64_t id;
	char *source, *identity, *normal; /* constant, and what tells two volumes apart */
	struct volume_options options;
	struct origin *origin;
	struct tree *tree;
	struct cache_account account;
	enum state state;        /* lock */
	bool hidden;             /* lock; no mount of the whole is left here: nobody joins it */
	struct mount_id mounted; /* lock */
	struct fs *fs;           /* lock; NULL before and after */
};

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

static struct volume *volume_ref(struct volume *volume)
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
	free(volume->source);
	free(volume->identity);
	free(volume->normal);
	free(volume);
}

/* --- what is asked for --- */

/* source/subdir, in a URL percent-encoded (RFC 3986, 2.1); malloc'ed. */
static char *join_source(const char *source, const char *subdir)
{
	bool url = !strncmp(source, "http://", 7) || !strncmp(source, "https://", 8);
	size_t n = strlen(source);
	char *joined = malloc(n + 3 * strlen(subdir) + 3), *to;

	if (!joined)
		return NULL;
	memcpy(joined, source, n);
	while (n && joined[n - 1] == '/')
		n--;
	to = joined + n;
	*to++ = '/';
	for (; *subdir; subdir++) {
		if (url && strchr(" \"#%<>?[\\]^`{|}", *subdir))
			to += sprintf(to, "%%%02X", (unsigned char)*subdir);
		else
			*to++ = *subdir;
	}
	if (url)
		*to++ = '/';
	*to = '\0';
	return joined;
}

static int open_origin(struct volumes *volumes, const char *source,
	const struct volume_options *options, uint64_t timeout_ms, struct origin **ret,
	struct why *why)
{
	struct origin_config config = {
		.source = source,
		.endpoint = options->endpoint,
		.region = options->region,
		.addressing = options->addressing,
		.aws_profile = options->aws_profile,
		.credentials = options->credentials,
		.ca = options->ca,
		.anonymous = options->anonymous,
		.timeout_ms = timeout_ms,
		.connections = options->connections,
		.bandwidth_bytes = options->bandwidth_bytes,
	};

	return origin_open(volumes->engine, &config, ret, why);
}

/* A refusal must not take the minutes that a read may wait. */
static int probe(struct volume *volume, const char *source, struct why *why)
{
	uint64_t timeout_ms = volume->options.timeout_ms;
	struct origin *origin;
	int r = open_origin(volume->volumes, source, &volume->options,
		timeout_ms < PROBE_TIMEOUT_MS ? timeout_ms : PROBE_TIMEOUT_MS, &origin, why);

	if (r)
		return r;
	r = probe_origin(origin, why);
	/* An HTTP server need not list; what is below it is found by name. */
	if (r == -ENOENT && !strncmp(origin_source(origin), "http", 4))
		r = 0;
	origin_unref(origin);
	return r;
}

static int make_identity(struct volume *volume, struct why *why)
{
	volume->source = strdup(origin_source(volume->origin));
	volume->identity = strdup(origin_identity(volume->origin));
	volume->normal = volume_options_normal(&volume->options);
	if (!volume->source || !volume->identity || !volume->normal)
		return why_set(why, -ENOMEM, "out of memory");
	return 0;
}

/* A volume that is in no list yet; ret_source is the source with its subdir, malloc'ed. */
static int make_volume(struct volumes *volumes, const char *source, const char *options,
	struct volume **ret, char **ret_source, struct why *why)
{
	struct volume *volume = calloc(1, sizeof *volume);
	_cleanup_(freep) char *whole = NULL;
	int r;

	if (!volume)
		return why_set(why, -ENOMEM, "out of memory");
	list_init(&volume->link);
	volume->volumes = volumes;
	volume->refs = 1;
	r = volume_options_parse(options, &volume->options, why);
	if (!r) {
		whole = volume->options.subdir ? join_source(source, volume->options.subdir)
					       : strdup(source);
		r = whole ? 0 : why_set(why, -ENOMEM, "out of memory");
	}
	if (!r)
		r = open_origin(volumes, whole, &volume->options, volume->options.timeout_ms,
			&volume->origin, why);
	if (!r)
		r = make_identity(volume, why);
	if (r) {
		volume_unref(volume);
		return r;
	}
	*ret = volume;
	*ret_source = steal_pointer(&whole);
	return 0;
}

/* --- life --- */

static bool is_same(const struct volume *a, const struct volume *b)
{
	return !strcmp(a->source, b->source) && !strcmp(a->identity, b->identity) &&
	       !strcmp(a->normal, b->normal);
}

/* Its st_dev is its own. The look at the device doesn't wait. */
static bool is_alive(const struct volume *volume)
{
	check(lock_held(&volume->volumes->lock));
	return volume->fs && session_is_connected(volume->fs->session);
}

static bool is_at(const struct volume *volume, struct mount_id id)
{
	return volume->mounted.major == id.major && volume->mounted.minor == id.minor &&
	       is_alive(volume);
}

static bool look_if_alive(struct volume *volume)
{
	bool alive;

	lock_take(&volume->volumes->lock);
	alive = is_alive(volume);
	lock_drop(&volume->volumes->lock);
	return alive;
}

/* Takes it out; returns with the list's reference. True: it was the last. */
static bool leave_list(struct volume *volume)
{
	struct volumes *volumes = volume->volumes;

	check(lock_held(&volumes->lock));
	list_remove(&volume->link);
	cond_broadcast(&volumes->changed);
	return list_empty(&volumes->list);
}

static void *reap(void *arg)
{
	struct volume *volume = arg;
	struct volumes *volumes = volume->volumes;
	struct fs *fs = volume->fs;
	bool last;

	fs_wait(fs);
	/* What still waits for the origin has nobody left to tell. */
	origin_shutdown(volume->origin);
	log_info("volume_ended", "id=%llu source=%s", (unsigned long long)volume->id,
		volume->source);
	lock_take(&volumes->lock);
	volume->fs = NULL;
	last = leave_list(volume);
	lock_drop(&volumes->lock);
	fs_free(fs);
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

static int make_fs(struct volume *volume, struct fs **ret, int *ret_device, struct why *why)
{
	struct volumes *volumes = volume->volumes;
	const char *store_dir = cache_store_dir(volumes->cache);
	struct tree_config tree = {volume->options.ttl_ms, volume->options.negative_ttl_ms};
	struct fs_config config = {
		.cache = volumes->cache,
		.origin = volume->origin,
		.account = &volume->account,
		.options = &volume->options,
		.calls = &device_kernel_calls,
		.passthrough = volumes->features.passthrough,
		.backing_depth = features_backing_depth(store_dir),
	};
	int device, r;

	r = device_open(&device, why);
	if (r)
		return r;
	*ret_device = device;
	r = tree_new(volumes->cache, volume->origin, &tree, &volume->tree);
	if (r) {
		close(device);
		return why_set(why, r, "making the volume: %s", strerror(-r));
	}
	config.tree = volume->tree;
	r = fs_new(&config, device, ret);
	return r ? why_set(why, r, "making the volume: %s", strerror(-r)) : 0;
}

/* From here on the reaper owns the fs and the list's reference. */
static int start_reaper(struct volume *volume, struct fs *fs, struct mount_id id)
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

static int mount_new(struct volume *volume, const char *mountpoint, struct why *why)
{
	struct fs *fs;
	struct mount_id id;
	int device, r = make_fs(volume, &fs, &device, why);

	if (r)
		return r;
	r = mounting_new(device, volume->source, mountpoint, volume->options.allow_other, &id, why);
	if (r) {
		fs_free(fs);
		return r;
	}
	r = fs_start(fs);
	if (!r) {
		mounting_set_readahead(id, volume->options.readahead_bytes);
		r = start_reaper(volume, fs, id);
	}
	if (r) {
		why_set(why, r, "serving %s: %s", mountpoint, strerror(-r));
		mounting_remove_all(id);
		mounting_abort(id);
		fs_wait(fs);
		origin_shutdown(volume->origin);
		fs_free(fs);
	}
	return r;
}

/* --- mounting --- */

/* The mounted volume that wanted equals, with a reference, after waiting for one that is just being
 * mounted; or NULL, and wanted is in the list itself. */
static struct volume *join_list(struct volume *wanted)
{
	struct volumes *volumes = wanted->volumes;
	struct volume *found;

	lock_take(&volumes->lock);
	for (;;) {
		found = NULL;
		list_for_each (link, &volumes->list) {
			struct volume *volume = container_of(link, struct volume, link);

			if (!volume->hidden && is_same(volume, wanted))
				found = volume;
		}
		if (!found || found->state == MOUNTED)
			break;
		cond_wait(&volumes->changed, &volumes->lock);
	}
	if (found) {
		volume_ref(found);
	} else {
		wanted->id = ++volumes->next_id;
		list_append(&volumes->list, &volume_ref(wanted)->link);
	}
	lock_drop(&volumes->lock);
	return found;
}

static void hide(struct volume *volume)
{
	lock_take(&volume->volumes->lock);
	volume->hidden = true;
	lock_drop(&volume->volumes->lock);
}

static int mount_first(
	struct volume *volume, const char *source, const char *mountpoint, struct why *why)
{
	struct volumes *volumes = volume->volumes;
	int r = probe(volume, source, why);

	if (!r)
		r = mount_new(volume, mountpoint, why);
	if (!r) {
		log_info("volume_mounted", "id=%llu source=%s mountpoint=%s",
			(unsigned long long)volume->id, volume->source, mountpoint);
		return 0;
	}
	lock_take(&volumes->lock);
	leave_list(volume);
	lock_drop(&volumes->lock);
	volume_unref(volume);
	return r;
}

/* Waits until there is none of the others, and is one of mine. */
static void begin(struct volumes *volumes, unsigned *mine, const unsigned *others)
{
	lock_take(&volumes->lock);
	while (*others)
		cond_wait(&volumes->changed, &volumes->lock);
	++*mine;
	lock_drop(&volumes->lock);
}

static void finish(struct volumes *volumes, unsigned *mine)
{
	lock_take(&volumes->lock);
	--*mine;
	cond_broadcast(&volumes->changed);
	lock_drop(&volumes->lock);
}

static int bind(struct volume *volume, const char *mountpoint, struct why *why)
{
	struct volumes *volumes = volume->volumes;
	_cleanup_(closep) int tree = -1;
	int r;

	begin(volumes, &volumes->binds, &volumes->umounts);
	r = mounting_clone(volume->mounted, &tree, why);
	if (!r && !look_if_alive(volume))
		r = -ENOENT;
	if (!r)
		r = mounting_attach(tree, mountpoint, why);
	finish(volumes, &volumes->binds);
	return r;
}

static int mount_volume(
	struct volume *volume, const char *source, const char *mountpoint, struct why *why)
{
	struct volume *same;
	int r = -ENOENT;

	while (r == -ENOENT && (same = join_list(volume))) {
		r = bind(same, mountpoint, why);
		/* Unmounted here, and perhaps in use still: a superblock of its own. */
		if (r == -ENOENT)
			hide(same);
		volume_unref(same);
	}
	return r == -ENOENT ? mount_first(volume, source, mountpoint, why) : r;
}

/* One mount at a time on one mountpoint: the second then finds the first. */
struct busy {
	struct list link;
	const char *mountpoint;
};

static bool is_busy(struct volumes *volumes, const char *mountpoint)
{
	list_for_each (link, &volumes->busy) {
		if (!strcmp(container_of(link, struct busy, link)->mountpoint, mountpoint))
			return true;
	}
	return false;
}

static void enter(struct volumes *volumes, struct busy *busy)
{
	lock_take(&volumes->lock);
	while (is_busy(volumes, busy->mountpoint))
		cond_wait(&volumes->changed, &volumes->lock);
	list_append(&volumes->busy, &busy->link);
	lock_drop(&volumes->lock);
}

static void leave(struct volumes *volumes, struct busy *busy)
{
	lock_take(&volumes->lock);
	list_remove(&busy->link);
	cond_broadcast(&volumes->changed);
	lock_drop(&volumes->lock);
}

/* The mountpoint is a mount: says so better when it is one of this very volume. */
static int explain_mounted(
	struct volume *volume, struct mount_id id, const char *mountpoint, struct why *why)
{
	struct volumes *volumes = volume->volumes;
	bool same = false;

	lock_take(&volumes->lock);
	list_for_each (link, &volumes->list) {
		struct volume *other = container_of(link, struct volume, link);

		same = same || (is_at(other, id) && is_same(other, volume));
	}
	lock_drop(&volumes->lock);
	if (!same)
		return -EBUSY;
	return why_set(why, -EBUSY, "%s is mounted on %s already", volume->source, mountpoint);
}

static int check_mountpoint(
	struct volume *volume, const char *mountpoint, char **ret, struct why *why)
{
	struct mount_id id;
	int r = mounting_check(mountpoint, ret, &id, why);

	return r == -EBUSY ? explain_mounted(volume, id, mountpoint, why) : r;
}

int volumes_mount(struct volumes *volumes, const char *source, const char *mountpoint,
	const char *options, struct why *why)
{
	_cleanup_(freep) char *path = NULL, *again = NULL, *whole = NULL;
	struct volume *volume = NULL;
	struct busy busy;
	int r = make_volume(volumes, source, options, &volume, &whole, why);

	if (r)
		return r;
	r = check_mountpoint(volume, mountpoint, &path, why);
	if (!r) {
		busy.mountpoint = path;
		enter(volumes, &busy);
		r = check_mountpoint(volume, path, &again, why);
		if (!r)
			r = mount_volume(volume, whole, path, why);
		leave(volumes, &busy);
	}
	volume_unref(volume);
	return r;
}

int volumes_umount(struct volumes *volumes, const char *mountpoint, bool force, struct why *why)
{
	int r;

	begin(volumes, &volumes->umounts, &volumes->binds);
	r = mounting_remove(mountpoint, force, why);
	finish(volumes, &volumes->umounts);
	return r;
}

/* --- looking --- */

static struct volume *find_by_id(struct volumes *volumes, struct mount_id id)
{
	struct volume *found = NULL;

	lock_take(&volumes->lock);
	list_for_each (link, &volumes->list) {
		struct volume *volume = container_of(link, struct volume, link);

		if (is_at(volume, id))
			found = volume;
	}
	if (found)
		volume_ref(found);
	lock_drop(&volumes->lock);
	return found;
}

/* Path in the volume of a path below this mount of it; malloc'ed. */
static char *inner_path(const struct mount *mount, const char *path)
{
	const char *rest = path + (strcmp(mount->mountpoint, "/") ? strlen(mount->mountpoint) : 0);
	const char *root = mount->root + strspn(mount->root, "/");
	char *inner;

	rest += strspn(rest, "/");
	if (asprintf(&inner, "%s%s%s", root, *root && *rest ? "/" : "", rest) < 0)
		return NULL;
	return inner;
}

int volumes_find(struct volumes *volumes, const char *path, struct volume **ret, char **ret_inner,
	struct why *why)
{
	_cleanup_(freep) char *normal = strdup(path);
	const struct mount *mount;
	struct mountinfo info;
	struct volume *volume = NULL;
	char *inner = NULL;
	int r;

	if (!normal || path_normalize(normal))
		return why_set(why, -ENOENT, "%s: give an absolute path without ..", path);
	r = mountinfo_load(&info);
	if (r)
		return why_set(why, r, "/proc/self/mountinfo: %s", strerror(-r));
	mount = mountinfo_above(&info, normal);
	if (mount && mount_is_ours(mount)) {
		volume = find_by_id(volumes, (struct mount_id){mount->major, mount->minor});
		inner = inner_path(mount, normal);
	}
	mountinfo_free(&info);
	if (volume && inner) {
		*ret = volume;
		*ret_inner = inner;
		return 0;
	}
	if (volume)
		volume_unref(volume);
	free(inner);
	return why_set(
		why, -ENOENT, "%s is not below a mount of this daemon; see cachefs status", normal);
}

/* All mounted volumes, each with a reference. Returns how many. */
static size_t snapshot(struct volumes *volumes, struct volume ***ret)
{
	size_t n = 0, count = 0;

	lock_take(&volumes->lock);
	list_for_each (link, &volumes->list)
		count++;
	*ret = calloc(count + 1, sizeof **ret);
	list_for_each (link, &volumes->list) {
		struct volume *volume = container_of(link, struct volume, link);

		if (*ret && volume->state == MOUNTED)
			(*ret)[n++] = volume_ref(volume);
	}
	lock_drop(&volumes->lock);
	return n;
}

void volumes_each(
	struct volumes *volumes, void (*each)(void *arg, struct volume *volume), void *arg)
{
	_cleanup_(freep) struct volume **all = NULL;
	size_t n = snapshot(volumes, &all);

	for (size_t i = 0; i < n; i++) {
		each(arg, all[i]);
		volume_unref(all[i]);
	}
}

static void find_mountpoint(struct mount_id id, struct volume_info *ret)
{
	struct mountinfo info;

	if (mountinfo_load(&info))
		return;
	for (size_t i = 0; i < info.count; i++) {
		const struct mount *mount = &info.mounts[i];

		if (mount->major != id.major || mount->minor != id.minor)
			continue;
		if (!ret->mounts++)
			snprintf(ret->mountpoint, sizeof ret->mountpoint, "%s", mount->mountpoint);
	}
	mountinfo_free(&info);
}

static void fill_counters(struct fs *fs, struct volume_info *ret)
{
	ret->passthrough = fs->passthrough;
	ret->requests = fs->counters.requests;
	ret->lookups = fs->counters.lookups;
	ret->reads = fs->counters.reads;
	ret->opens = fs->counters.opens;
	ret->estale_opens = fs->counters.estale_opens;
	ret->nodes = nodes_count(&fs->nodes);
	ret->handles = handles_count(&fs->handles);
	ret->parked = parking_count(&fs->parking);
}

void volume_info(struct volume *volume, struct volume_info *ret)
{
	struct volumes *volumes = volume->volumes;
	struct mount_id id;
	bool alive;

	*ret = (struct volume_info){
		.id = volume->id,
		.source = volume->source,
		.identity = volume->identity,
		.options = volume->normal,
		.read_only = true,
		.account = &volume->account,
	};
	lock_take(&volumes->lock);
	id = volume->mounted;
	alive = is_alive(volume);
	if (volume->fs)
		fill_counters(volume->fs, ret);
	lock_drop(&volumes->lock);
	if (alive)
		find_mountpoint(id, ret);
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

void kernel_features(const struct volumes *volumes, struct kernel_features *ret)
{
	struct volumes *all = (struct volumes *)volumes;

	*ret = volumes->features;
	lock_take(&all->lock);
	list_for_each (link, &all->list) {
		struct volume *volume = container_of(link, struct volume, link);

		if (!volume->fs || !ret->passthrough || volume->fs->passthrough)
			continue;
		ret->passthrough = false;
		snprintf(ret->passthrough_reason, sizeof ret->passthrough_reason,
			"the kernel refuses files of this store; see the log");
	}
	lock_drop(&all->lock);
}

/* --- the end --- */

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
	if (look_if_alive(volume))
		mounting_remove_all(volume->mounted);
}

static void cut(void *arg, struct volume *volume)
{
	(void)arg;
	if (look_if_alive(volume))
		mounting_abort(volume->mounted);
}

void volumes_free(struct volumes *volumes)
{
	if (!volumes)
		return;
	volumes_each(volumes, detach, NULL);
	/* Open files and other namespaces keep a superblock alive, and we are about to go. */
	if (!wait_for_end(volumes, clock_now_ns() + END_GRACE_NS)) {
		volumes_each(volumes, cut, NULL);
		wait_for_end(volumes, UINT64_MAX);
	}
	cond_destroy(&volumes->changed);
	lock_destroy(&volumes->lock);
	free(volumes);
}
