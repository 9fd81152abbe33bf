#include "volume_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "fs/mountinfo.h"

static struct volume *find_by_id(struct volumes *volumes, struct mount_id id)
{
	struct volume *found = NULL;

	lock_take(&volumes->lock);
	list_for_each (link, &volumes->list) {
		struct volume *volume = container_of(link, struct volume, link);

		if (volume_is_at(volume, id))
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
	alive = volume_is_alive(volume);
	if (volume->fs)
		fill_counters(volume->fs, ret);
	lock_drop(&volumes->lock);
	if (alive)
		find_mountpoint(id, ret);
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
