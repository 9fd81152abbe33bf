#include "volume_private.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "fs/mountinfo.h"
#include "volume_description.h"

void volumes_set_keeper(struct volumes *volumes, const struct volumes_keeper *keeper)
{
	volumes->keeper = *keeper;
}

int volume_keep(struct volume *volume, const char *mountpoint, struct mount_id id, int device,
	int table, struct why *why)
{
	const struct volumes_keeper *keeper = &volume->volumes->keeper;
	struct volume_description description = {
		volume->given_source, volume->given_options, (char *)mountpoint, id};
	_cleanup_(freep) char *text = NULL;
	int r;

	if (!keeper->put)
		return 0;
	text = volume_description_write(&description);
	r = text ? keeper->put(keeper->arg, volume->id, text, device, table) : -ENOMEM;
	return r ? why_set(why, r, "the keeper doesn't take the volume: %s", strerror(-r)) : 0;
}

void volume_unkeep(struct volume *volume)
{
	const struct volumes_keeper *keeper = &volume->volumes->keeper;

	if (keeper->drop)
		keeper->drop(keeper->arg, volume->id);
}

int volumes_check_table(int table, struct why *why)
{
	return table_check_version(table, why);
}

/* A device that was never mounted, or whose superblock is gone, says so. */
static bool is_connected(int device)
{
	struct pollfd fd = {.fd = device, .events = POLLIN};

	return poll(&fd, 1, 0) >= 0 && !(fd.revents & POLLERR);
}

/* The daemon before died between mount(2) and saying what it got. One mount at a time is made on a
 * mountpoint, so what is there now is that one. */
static int find_id(struct volume_description *description, struct why *why)
{
	struct mountinfo info;
	const struct mount *mount;
	int r;

	if (description->id.minor)
		return 0;
	r = mountinfo_load(&info);
	if (r)
		return why_set(why, r, "/proc/self/mountinfo: %s", strerror(-r));
	mount = mountinfo_at(&info, description->mountpoint);
	if (mount && mount_is_ours(mount))
		description->id = (struct mount_id){mount->major, mount->minor};
	mountinfo_free(&info);
	return 0;
}

static void join_list(struct volume *volume, uint64_t id)
{
	struct volumes *volumes = volume->volumes;

	lock_take(&volumes->lock);
	volume->id = id;
	if (volumes->next_id < id)
		volumes->next_id = id;
	list_append(&volumes->list, &volume_ref(volume)->link);
	lock_drop(&volumes->lock);
}

static void leave_list(struct volume *volume)
{
	lock_take(&volume->volumes->lock);
	volume_leave_list(volume);
	lock_drop(&volume->volumes->lock);
	volume_unref(volume);
}

/* As if it had never been tried. */
static void abandon(struct volume *volume, struct fs *fs)
{
	fs_stop(fs);
	volume_end_fs(volume, fs);
}

/* Owns the descriptors. */
static int serve(struct volume *volume, const struct volume_description *description, int device,
	int table, struct why *why)
{
	_cleanup_(closep) int own_device = device, own_table = table;
	struct fs_config config;
	struct fs *fs;
	int r = volume_fs_config(volume, &config, why);

	if (!r)
		r = fs_resume(&config, steal_fd(&own_device), steal_fd(&own_table), &fs, why);
	if (r)
		return r;
	r = fs_start(fs, why);
	/* It ended in this moment: the reaper sees that at once. */
	if (r == -ENODEV)
		r = 0;
	/* Before the reaper can say that it has ended. */
	if (!r)
		r = volume_keep(volume, description->mountpoint, description->id, -1, -1, why);
	if (!r)
		r = volume_start_reaper(volume, fs, description->id);
	if (r)
		abandon(volume, fs);
	return r;
}

static int resume(struct volumes *volumes, uint64_t id, struct volume_description *description,
	int device, int table, struct why *why)
{
	_cleanup_(closep) int own_device = device, own_table = table;
	_cleanup_(freep) char *source = NULL;
	struct volume *volume = NULL;
	int r = find_id(description, why);

	if (!r)
		r = volume_new(
			volumes, description->source, description->options, &volume, &source, why);
	if (r)
		return r;
	join_list(volume, id);
	r = serve(volume, description, steal_fd(&own_device), steal_fd(&own_table), why);
	if (r)
		leave_list(volume);
	volume_unref(volume);
	return r;
}

int volumes_resume(struct volumes *volumes, uint64_t id, const char *text, int device, int table,
	struct why *why)
{
	_cleanup_(closep) int own_device = device, own_table = table;
	struct volume_description description;
	int r;

	if (!is_connected(device)) {
		log_info("volume_gone", "id=%llu", (unsigned long long)id);
		if (volumes->keeper.drop)
			volumes->keeper.drop(volumes->keeper.arg, id);
		return 0;
	}
	r = volume_description_read(text, &description);
	if (r)
		return why_set(why, r, "the keeper's description of volume %llu: %s",
			(unsigned long long)id, strerror(-r));
	r = resume(volumes, id, &description, steal_fd(&own_device), steal_fd(&own_table), why);
	if (!r)
		log_info("volume_resumed", "id=%llu source=%s mountpoint=%s",
			(unsigned long long)id, description.source, description.mountpoint);
	volume_description_free(&description);
	return r;
}
