/* fakes: the rooms behind the control socket, in a few lines: one volume with a tree, a cache that
 * remembers what it was asked. */
#ifndef TEST_CONTROL_FAKES_H
#define TEST_CONTROL_FAKES_H

#include <stdatomic.h>
#include <stdbool.h>

#include "fs/volume.h"

#define FAKE_SOURCE     "s3://bucket/pre\"fix"
#define FAKE_MOUNTPOINT "/mnt/fake"
/* The tree: FAKE_DIRS directories d0…, each with FAKE_FILES files f0…, a file "top" in the root
 * whose attributes no listing knows, and "busy" and "pinned". */
#define FAKE_DIRS  40
#define FAKE_FILES 25

struct fake {
	bool mounted;              /* is there a volume? */
	uint64_t ended_gets;       /* of volumes that are gone */
	int mount_error;           /* what volumes_mount answers */
	enum origin_finding found; /* the same */
	char source[256], mountpoint[256], options[256];
	bool forced;
	_Atomic int lists, lists_at_once, most_lists_at_once;
	int references; /* of the volume and its origin */
	int evicts, pins, unpins, verifies;
	int evict_error; /* of all but those that are in use or pinned */
	int64_t until_ns;
	bool repaired;
};

extern struct fake fake;

#endif
