/* device: what /dev/fuse does and a socket in its place can't: the ioctls that passthrough needs
 * (linux/fuse.h, since 6.9; older systems' headers lack them), and telling whether a request is
 * under way. Behind pointers so that a test's peer can stand in. */
#ifndef FS_DEVICE_H
#define FS_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/why.h"

struct device_calls {
	/* A new backing id (> 0) for fd, or -errno. */
	int (*backing_open)(int device, int fd);
	void (*backing_close)(int device, int backing_id);
	/* Answers with this error. False: nobody waits for that; a request that wasn't read yet counts
	 * as none. */
	bool (*fail)(int device, uint64_t unique, int error);
};
extern const struct device_calls device_kernel_calls;

/* 0, or -errno with why (no /dev/fuse, no privilege). */
int device_open(int *ret, struct why *why);

#endif
