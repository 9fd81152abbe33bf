#include "volume_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "origin/probe.h"

#define PROBE_TIMEOUT_MS 10000

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

/* A refusal must not take the minutes that a read may wait. */
static int probe(
	struct volume *volume, const char *source, enum origin_finding *ret_found, struct why *why)
{
	uint64_t timeout_ms = volume->options.timeout_ms;
	struct origin_config config;
	struct origin *origin;
	struct why reason;
	int r;

	volume_options_origin(&volume->options, source, &config);
	config.timeout_ms = timeout_ms < PROBE_TIMEOUT_MS ? timeout_ms : PROBE_TIMEOUT_MS;
	r = origin_open(volume->volumes->engine, &config, &origin, why);
	if (r)
		return r;
	r = origin_probe(origin, "", ret_found, &reason);
	if (!r && *ret_found != ORIGIN_HAS_NAMES)
		r = origin_probe_file(volume->volumes->engine, &config, &reason);
	if (r)
		why_set(why, r, "%s %s", origin_source(origin), reason.text);
	origin_unref(origin);
	return r;
}

static int make_identity(struct volume *volume, struct why *why)
{
	struct volume_options same = volume->options;

	same.protect = false; /* of one mountpoint */
	volume->source = strdup(origin_source(volume->origin));
	volume->identity = strdup(origin_identity(volume->origin));
	volume->normal = volume_options_normal(&same);
	if (!volume->source || !volume->identity || !volume->normal)
		return why_set(why, -ENOMEM, "out of memory");
	return 0;
}

static int open_origin(struct volume *volume, const char *source, struct why *why)
{
	struct origin_config config;

	volume_options_origin(&volume->options, source, &config);
	return origin_open(volume->volumes->engine, &config, &volume->origin, why);
}

int volume_new(struct volumes *volumes, const char *source, const char *options,
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
	cache_account_init(&volume->account);
	volume->given_source = strdup(source);
	volume->given_options = strdup(options ? options : "");
	if (!volume->given_source || !volume->given_options)
		r = why_set(why, -ENOMEM, "out of memory");
	else
		r = volume_options_parse(options, &volume->options, why);
	if (!r) {
		whole = volume->options.subdir ? join_source(source, volume->options.subdir)
					       : strdup(source);
		r = whole ? 0 : why_set(why, -ENOMEM, "out of memory");
	}
	if (!r)
		r = open_origin(volume, whole, why);
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

static bool is_same(const struct volume *a, const struct volume *b)
{
	return !strcmp(a->source, b->source) && !strcmp(a->identity, b->identity) &&
	       !strcmp(a->normal, b->normal);
}

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

static int mount_first(struct volume *volume, const char *source, const char *mountpoint,
	enum origin_finding *ret_found, struct why *why)
{
	struct volumes *volumes = volume->volumes;
	int r = probe(volume, source, ret_found, why);

	if (!r && volume_begin_start(volume)) {
		r = volume_mount_new(volume, mountpoint, why);
		volume_end_start(volume);
	} else if (!r) {
		r = why_set(why, -EAGAIN, "the daemon is just being replaced; try again");
	}
	if (!r) {
		log_info("volume_mounted", "id=%llu source=%s mountpoint=%s",
			(unsigned long long)volume->id, volume->source, mountpoint);
		return 0;
	}
	lock_take(&volumes->lock);
	volume_leave_list(volume);
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
	if (!r && !volume_look_alive(volume))
		r = -ENOENT;
	if (!r)
		r = mounting_attach(tree, mountpoint, why);
	finish(volumes, &volumes->binds);
	return r;
}

static int mount_volume(struct volume *volume, const char *source, const char *mountpoint,
	enum origin_finding *ret_found, struct why *why)
{
	struct volume *same;
	int r = -ENOENT;

	*ret_found = ORIGIN_HAS_NAMES;
	while (r == -ENOENT && (same = join_list(volume))) {
		r = bind(same, mountpoint, why);
		/* Unmounted here, and perhaps in use still: a superblock of its own. */
		if (r == -ENOENT)
			hide(same);
		volume_unref(same);
	}
	return r == -ENOENT ? mount_first(volume, source, mountpoint, ret_found, why) : r;
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

		same = same || (volume_is_at(other, id) && is_same(other, volume));
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
	const char *options, enum origin_finding *ret_found, struct why *why)
{
	_cleanup_(freep) char *path = NULL, *again = NULL, *whole = NULL;
	struct volume *volume = NULL;
	struct busy busy;
	int r = volume_new(volumes, source, options, &volume, &whole, why);

	if (r)
		return r;
	r = check_mountpoint(volume, mountpoint, &path, why);
	if (!r) {
		busy.mountpoint = path;
		enter(volumes, &busy);
		r = check_mountpoint(volume, path, &again, why);
		if (!r && volume->options.protect)
			r = mounting_protect(path, why);
		if (!r)
			r = mount_volume(volume, whole, path, ret_found, why);
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
