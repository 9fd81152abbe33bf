/*
 * volume_description: what a successor must be told of a volume, as the text that the keeper keeps.
 *
 * One "key=value" a line; in values "%" and control bytes are written %XX. Unknown keys are ignored,
 * missing ones are empty, so that a newer and an older version understand each other.
 */
#ifndef FS_VOLUME_DESCRIPTION_H
#define FS_VOLUME_DESCRIPTION_H

#include "mounting.h"

struct volume_description {
	char *source, *options; /* as they were asked for */
	char *mountpoint;       /* the first */
	struct mount_id id;     /* 0:0: not mounted yet, or just then */
};

/* malloc'ed; NULL: no memory. */
char *volume_description_write(const struct volume_description *description);
/* 0, -EINVAL (no source), -ENOMEM. */
int volume_description_read(const char *text, struct volume_description *ret);
void volume_description_free(struct volume_description *description);

#endif
