#include <errno.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/units.h"
#include "fs/options.h"
#include "origin/environment.h"
#include "room.h"

/* Two sizes as typed, which are shares of the store's file system or bytes. */
static bool same_size(const char *store, const char *a, const char *b)
{
	struct statvfs fs;
	uint64_t whole = 0, a_bytes, b_bytes;

	if (!strcmp(a, b))
		return true;
	if (!statvfs(store, &fs))
		whole = (uint64_t)fs.f_blocks * fs.f_frsize;
	return whole && !parse_size_of(a, whole, &a_bytes) && !parse_size_of(b, whole, &b_bytes) &&
	       a_bytes == b_bytes;
}

/* A mount that names a store or a size must name those of this daemon. */
static int check_joins(
	const struct control *control, const char *store, const char *size, struct why *why)
{
	const char *own = control->config.size ? control->config.size : "80%";

	if (store && strcmp(store, control->config.store))
		return why_set(why, -EINVAL,
			"store=%s contradicts the running daemon, whose store is %s: leave the "
			"option "
			"out, or start another daemon with --store and --control",
			store, control->config.store);
	if (size && !same_size(control->config.store, size, own))
		return why_set(why, -EINVAL,
			"size=%s contradicts the running daemon, whose size is %s: leave the "
			"option "
			"out, or restart the daemon with --size",
			size, own);
	return 0;
}

static void begin_mount(struct control *control)
{
	lock_take(&control->lock);
	control->mounts++;
	control->mounts_started++;
	lock_drop(&control->lock);
}

static void end_mount(struct control *control)
{
	lock_take(&control->lock);
	control->mounts--;
	lock_drop(&control->lock);
	if (control->config.mounted)
		control->config.mounted(control->config.arg);
}

static int mount_volume(struct control *control, const char *source, const char *mountpoint,
	const char *options, const char *store, const char *size, enum origin_finding *ret_found,
	struct why *why)
{
	struct volume_options parsed;
	int r = volume_options_parse(options, &parsed, why);

	if (r)
		return r;
	r = check_joins(control, store ? store : parsed.store, size ? size : parsed.size, why);
	volume_options_free(&parsed);
	if (r)
		return r;
	if (mountpoint[0] != '/')
		return why_set(why, -EINVAL, "the mountpoint '%s' is no absolute path", mountpoint);
	return volumes_mount(control->config.volumes, source, mountpoint, options, ret_found, why);
}

int handle_mount(
	struct control *control, const char *path, json_t *body, json_t **ret, struct why *why)
{
	const char *source, *mountpoint, *options = "", *store = NULL, *size = NULL;
	const char *environment = "";
	json_error_t at;
	enum origin_finding found = ORIGIN_HAS_NAMES;
	int r;

	(void)path;
	if (json_unpack_ex(body, &at, 0, "{s:s, s:s, s?s, s?s, s?s, s?s !}", "source", &source,
		    "mountpoint", &mountpoint, "options", &options, "store", &store, "size", &size,
		    "environment", &environment))
		return why_set(why, -EINVAL, "mount: %s", at.text);
	begin_mount(control);
	r = origin_environment_check(environment, environ, why);
	if (!r)
		r = mount_volume(control, source, mountpoint, options, store, size, &found, why);
	end_mount(control);
	if (!r)
		*ret = json_pack("{s:s, s:b, s:b}", "mountpoint", mountpoint, "empty",
			found == ORIGIN_EMPTY, "unlisted", found == ORIGIN_UNLISTED);
	return r;
}

int handle_umount(
	struct control *control, const char *path, json_t *body, json_t **ret, struct why *why)
{
	const char *mountpoint;
	json_error_t at;
	int force = 0, r;

	(void)path;
	if (json_unpack_ex(
		    body, &at, 0, "{s:s, s?b !}", "mountpoint", &mountpoint, "force", &force))
		return why_set(why, -EINVAL, "umount: %s", at.text);
	r = volumes_umount(control->config.volumes, mountpoint, force, why);
	if (!r)
		*ret = json_pack("{s:s}", "mountpoint", mountpoint);
	return r;
}
