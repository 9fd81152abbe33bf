/* doctor: what `cachefs doctor` looks at, one file a subject. Nothing is changed. */
#ifndef DOCTOR_H
#define DOCTOR_H

#include <stdbool.h>

#include <jansson.h>

#include "client/client.h"
#include "fs/options.h"

enum finding { FINDING_OK, FINDING_WARN, FINDING_FAIL };

struct doctor {
	json_t *findings; /* [{level, what, says}] */
	bool failed;
	char **daemon_environ; /* the daemon's environ(7); NULL when none runs, or it isn't ours to see */
};

/* One line: what was looked at, and what was found with its remedy. */
void doctor_say(struct doctor *doctor, enum finding level, const char *what, const char *format,
	...) __attribute__((format(printf, 4, 5)));

/* Kernel version, features, /dev/fuse, limits. */
void doctor_kernel(struct doctor *doctor);
/* The cache directory and its file system. */
void doctor_store(struct doctor *doctor, const char *store);
/* Whether a daemon has what is at this path as its store; true also where that can't be seen. */
bool doctor_store_is_held(const char *store);
/* Mounts that no daemon serves. */
void doctor_mounts(struct doctor *doctor);
/* The daemon, its keeper and its store, and what it says about passthrough. */
void doctor_daemon(struct doctor *doctor, const struct client *client);
/* What of this shell's AWS_* and HF_* variables the daemon with this pid does not have. Reads
 * daemon_environ; doctor_free_environment frees it. */
void doctor_environment(struct doctor *doctor, unsigned long long pid);
void doctor_free_environment(struct doctor *doctor);
/* Reachability and credentials, by listing one name with this shell's environment; and whether the
 * daemon, which would mount with its own, has the same. */
void doctor_origin(struct doctor *doctor, const char *source, const struct volume_options *options);

#endif
