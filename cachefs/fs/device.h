/* device: the ioctls of /dev/fuse that passthrough needs (linux/fuse.h, since 6.9; older systems'
 * headers lack them), behind pointers so that a test's peer can stand in. */
#ifndef FS_DEVICE_H
#define FS_DEVICE_H

#include "base/why.h"

struct device_calls {
	/* A new backing id (> 0) for fd, or -errno. */
	int (*backing_open)(int device, int fd);
	void (*backing_close)(int device, int backing_id);
};
extern const struct device_calls device_kernel_calls;

/* 0, or -errno with why (no /dev/fuse, no privilege). */
int device_open(int *ret, struct why *why);

#endif
