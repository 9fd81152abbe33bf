/*
 * targets: what people name in pin, unpin, evict and verify, turned into files.
 *
 * A target is an absolute path below a mount (a file, or a directory with all files below it) or a
 * SOURCE: everything of the mounted volumes at or below that prefix.
 */
#ifndef CONTROL_TARGETS_H
#define CONTROL_TARGETS_H

#include "room.h"

/* Called for each file, on the caller's thread; may block. Non-zero stops and is returned. */
typedef int target_file(
	void *arg, struct volume *volume, const char *path, const struct origin_attr *attr);

/* 0; -ENOENT: no such mount, volume or file; -ESHUTDOWN: the daemon is ending; what the origin
 * said; each with why. */
int target_visit(
	struct control *control, const char *target, target_file *file, void *arg, struct why *why);

/* All files of one volume. */
int target_visit_volume(struct control *control, struct volume *volume, target_file *file,
	void *arg, struct why *why);

/* What a path of the volume is, waiting for the answer. 0, or the origin's error with why. */
int target_lookup(
	struct volume *volume, const char *path, struct origin_attr *ret, struct why *why);

/* Runs each for every element of body's array "targets", after having checked them all. */
int target_each(const json_t *targets, int (*each)(void *arg, const char *target, struct why *why),
	void *arg, struct why *why);

#endif
