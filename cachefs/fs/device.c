#include "device.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <linux/fuse.h>

struct backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};

#define BACKING_OPEN  _IOW(229, 1, struct backing_map)
#define BACKING_CLOSE _IOW(229, 2, uint32_t)

static int backing_open(int device, int fd)
{
	struct backing_map map = {.fd = fd};
	int id = ioctl(device, BACKING_OPEN, &map);

	if (id < 0)
		return -errno;
	return id ? id : -EIO;
}

static void backing_close(int device, int backing_id)
{
	uint32_t id = (uint32_t)backing_id;

	ioctl(device, BACKING_CLOSE, &id);
}

static bool fail(int device, uint64_t unique, int error)
{
	struct fuse_out_header header = {.len = sizeof header, .error = error, .unique = unique};

	return write(device, &header, sizeof header) == sizeof header;
}

const struct device_calls device_kernel_calls = {backing_open, backing_close, fail};

int device_open(int *ret, struct why *why)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT)
		return why_set(why, -ENODEV,
			"/dev/fuse does not exist: load the kernel module fuse, or give the "
			"container the device");
	if (fd < 0)
		return why_set(why, -errno, "/dev/fuse: %s; run as root, or allow the device",
			strerror(errno));
	*ret = fd;
	return 0;
}
