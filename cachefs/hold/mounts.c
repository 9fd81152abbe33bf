#include "mounts.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static struct kept_mount *find(struct kept_mounts *mounts, uint64_t id)
{
	for (size_t i = 0; i < HOLD_MOUNTS_MAX; i++) {
		if (mounts->slots[i].used && mounts->slots[i].id == id)
			return &mounts->slots[i];
	}
	return NULL;
}

static struct kept_mount *find_free(struct kept_mounts *mounts)
{
	for (size_t i = 0; i < HOLD_MOUNTS_MAX; i++) {
		if (!mounts->slots[i].used)
			return &mounts->slots[i];
	}
	return NULL;
}

static void describe(struct kept_mount *mount, const void *description, size_t size)
{
	memcpy(mount->description, description, size);
	mount->size = (uint32_t)size;
}

int mounts_add(struct kept_mounts *mounts, uint64_t id, const void *description, size_t size,
	int device, int table)
{
	struct kept_mount *mount;

	if (size > HOLD_DESCRIPTION_MAX)
		return -EFBIG;
	if (find(mounts, id))
		return -EEXIST;
	mount = find_free(mounts);
	if (!mount)
		return -ENOSPC;
	mount->used = true;
	mount->id = id;
	mount->device = device;
	mount->table = table;
	describe(mount, description, size);
	mounts->count++;
	return 0;
}

int mounts_change(struct kept_mounts *mounts, uint64_t id, const void *description, size_t size)
{
	struct kept_mount *mount = find(mounts, id);

	if (!mount)
		return -ENOENT;
	if (size > HOLD_DESCRIPTION_MAX)
		return -EFBIG;
	describe(mount, description, size);
	return 0;
}

static void drop(struct kept_mounts *mounts, struct kept_mount *mount)
{
	close(mount->device);
	close(mount->table);
	mount->used = false;
	mounts->count--;
}

int mounts_drop(struct kept_mounts *mounts, uint64_t id)
{
	struct kept_mount *mount = find(mounts, id);

	if (!mount)
		return -ENOENT;
	drop(mounts, mount);
	return 0;
}

void mounts_drop_all(struct kept_mounts *mounts)
{
	for (size_t i = 0; i < HOLD_MOUNTS_MAX; i++) {
		if (mounts->slots[i].used)
			drop(mounts, &mounts->slots[i]);
	}
}
