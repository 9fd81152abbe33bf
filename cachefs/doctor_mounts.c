#include "doctor.h"

#include <string.h>

#include "fs/mountinfo.h"

void doctor_mounts(struct doctor *doctor)
{
	struct mountinfo info;
	unsigned n_ours = 0, n_dead = 0;
	int r = mountinfo_load(&info);

	if (r) {
		doctor_say(doctor, FINDING_WARN, "mounts", "can't be listed: %s", strerror(-r));
		return;
	}
	for (size_t i = 0; i < info.count; i++) {
		const struct mount *mount = &info.mounts[i];

		if (!mount_is_ours(mount))
			continue;
		n_ours++;
		if (!mount_is_dead(mount))
			continue;
		n_dead++;
		doctor_say(doctor, FINDING_WARN, "mount",
			"%s of %s is dead, its daemon is gone: `cachefs umount` ends it, `cachefs "
			"mount` replaces it",
			mount->mountpoint, mount->source);
	}
	if (!n_dead)
		doctor_say(doctor, FINDING_OK, "mounts", "%u, none of them dead", n_ours);
	mountinfo_free(&info);
}
