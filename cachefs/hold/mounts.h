/* mounts: the keeper's array of what it keeps of each volume. Static; a slot stays where it is. */
#ifndef HOLD_MOUNTS_H
#define HOLD_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hold/client.h"

struct kept_mount {
	bool used;
	uint64_t id;
	int device, table;
	uint32_t size; /* of the description, whose memory is touched only as far as it is used */
	char description[HOLD_DESCRIPTION_MAX];
};

struct kept_mounts {
	unsigned count;
	struct kept_mount slots[HOLD_MOUNTS_MAX];
};

/* Takes the descriptors on success only. 0, -EEXIST, -ENOSPC, -EFBIG. */
int mounts_add(struct kept_mounts *mounts, uint64_t id, const void *description, size_t size,
	int device, int table);
/* 0, -ENOENT, -EFBIG. */
int mounts_change(struct kept_mounts *mounts, uint64_t id, const void *description, size_t size);
/* Closes the descriptors. 0 or -ENOENT. */
int mounts_drop(struct kept_mounts *mounts, uint64_t id);
void mounts_drop_all(struct kept_mounts *mounts);

#endif
