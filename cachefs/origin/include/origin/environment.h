/*
 * environment: does another process see the same environment as this one, as far as an origin's
 * configuration comes from there?
 *
 * A mount is the daemon's, and so is the environment that it takes endpoint, region and credentials
 * from; who types `mount` means that of their shell. One process says what its environment has, the
 * other compares. Values are never said: each is an HMAC under a key that is drawn anew each time,
 * and tells nothing to who doesn't have the value.
 *
 * No state; any thread, as long as nobody changes the environment.
 */
#ifndef ORIGIN_ENVIRONMENT_H
#define ORIGIN_ENVIRONMENT_H

#include "base/why.h"
#include "origin/origin.h"

/*
 * What this process's environment has that would count for an origin of this configuration: variables
 * that are set, belong to the source's kind, and that no option or other variable overrides. *ret is
 * text for origin_environment_check, the caller's to free; "" when nothing counts. 0, -ENOMEM.
 */
int origin_environment_say(const struct origin_config *config, char **ret);

/*
 * 0: `environment` (as environ(7), the daemon's) says the same of each variable in said. -EINVAL: it
 * doesn't; why names the variables, where that is no secret the daemon's values, and the remedies. What
 * said does not have isn't compared: who mounts from fstab has no such environment, and means the
 * daemon's. -ENOMEM.
 */
int origin_environment_check(const char *said, char *const *environment, struct why *why);

#endif
