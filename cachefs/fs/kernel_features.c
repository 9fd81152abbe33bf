#include "kernel_features.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"

#define OVERLAYFS_MAGIC 0x794c7630
#define REQUEST_MAX     (1u << 20)

static bool read_text(const char *path, char *text, size_t size)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, text, size - 1) : -1;

	text[n > 0 ? n : 0] = '\0';
	return n > 0;
}

static unsigned read_sysctl(const char *name)
{
	char path[96], text[32];

	snprintf(path, sizeof path, "/proc/sys/fs/fuse/%s", name);
	return read_text(path, text, sizeof text) ? (unsigned)strtoul(text, NULL, 10) : 0;
}

/* 6.9 as 6009. */
static unsigned kernel_version(void)
{
	struct utsname names;
	unsigned major = 0, minor = 0;

	if (uname(&names) < 0 || sscanf(names.release, "%u.%u", &major, &minor) != 2)
		return 0;
	return major * 1000 + minor;
}

/* CACHEFS_RESEND=off: as on a kernel without it, for tests. */
static bool has_resend(unsigned version)
{
	const char *wanted = getenv("CACHEFS_RESEND");

	return version >= 6009 && (!wanted || strcmp(wanted, "off"));
}

static bool has_io_uring(void)
{
	/* With a parameter that can't be right, so that nothing is made. */
	return syscall(SYS_io_uring_setup, 1, NULL) < 0 && errno == EFAULT;
}

unsigned features_backing_depth(const char *store_dir)
{
	struct statfs st;

	return statfs(store_dir, &st) == 0 && (unsigned long)st.f_type == OVERLAYFS_MAGIC;
}

static unsigned max_request_bytes(unsigned version)
{
	unsigned pages = read_sysctl("max_pages_limit");

	if (version < 4020)
		return 32 * 4096;
	return pages && pages * 4096 < REQUEST_MAX ? pages * 4096 : REQUEST_MAX;
}

void features_probe(const char *store_dir, struct kernel_features *ret)
{
	unsigned version = kernel_version();
	char text[8];
	struct kernel_features features = {
		.passthrough = version >= 6009,
		.resend = has_resend(version),
		.big_requests = version >= 4020,
		.handle_killpriv_v2 = version >= 5011,
		.io_uring = has_io_uring(),
		.io_uring_fuse =
			version >= 6014 &&
			read_text("/sys/module/fuse/parameters/enable_uring", text, sizeof text) &&
			(text[0] == 'Y' || text[0] == '1'),
		.max_request_bytes = max_request_bytes(version),
		.default_request_timeout_s = read_sysctl("default_request_timeout"),
		.max_request_timeout_s = read_sysctl("max_request_timeout"),
	};

	if (!features.passthrough) {
		snprintf(features.passthrough_reason, sizeof features.passthrough_reason,
			"the kernel is older than 6.9");
	} else if (geteuid() != 0) {
		features.passthrough = false;
		snprintf(features.passthrough_reason, sizeof features.passthrough_reason,
			"the daemon is not root");
	} else if (access(store_dir, R_OK) < 0) {
		snprintf(features.passthrough_reason, sizeof features.passthrough_reason,
			"the store can't be read: %s", strerror(errno));
		features.passthrough = false;
	}
	*ret = features;
}
