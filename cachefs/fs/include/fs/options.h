/* options: what stands behind `cachefs mount -o`, parsed once here for the command and the daemon.
 * No FUSE in it (library options_dep). */
#ifndef FS_OPTIONS_H
#define FS_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/why.h"

struct origin_config;

struct volume_options {
	/* origin */
	char *endpoint, *region, *addressing, *aws_profile, *credentials, *ca, *subdir;
	bool anonymous;
	uint64_t timeout_ms;      /* default 5 minutes */
	unsigned connections;     /* default 32 */
	uint64_t bandwidth_bytes; /* 0: none */
	/* names */
	uint64_t ttl_ms;          /* default 60 s; UINT64_MAX for immutable */
	uint64_t negative_ttl_ms; /* default 5 s */
	bool strict;
	/* attributes */
	uid_t uid;
	gid_t gid;
	mode_t umask; /* default 022 */
	bool allow_other;
	bool protect;             /* of this mountpoint: the directory below it becomes immutable */
	uint64_t readahead_bytes; /* of the mount; default 4 MiB */
	/* the daemon's, given at its start */
	char *store, *size;
};

/* Parses "ro,ttl=60s,…" (NULL or "" for none; a comma in a value is written "\,"). Unknown or
 * contradicting options are -EINVAL; why names option, value and remedy. `rw` and what belongs to
 * it is refused for now: volumes are read-only. */
int volume_options_parse(const char *text, struct volume_options *ret, struct why *why);
void volume_options_free(struct volume_options *options);
/* The source with what the options say of its origin. The strings stay their owners'. */
void volume_options_origin(
	const struct volume_options *options, const char *source, struct origin_config *ret);
/* The options in a normal form (sorted, defaults left out, without store= and size=), malloc'ed:
 * equal text means the same volume. NULL: no memory. */
char *volume_options_normal(const struct volume_options *options);

#endif
