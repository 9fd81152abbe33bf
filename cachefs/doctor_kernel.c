#include "doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

static long read_number(const char *path, long otherwise)
{
	FILE *file = fopen(path, "re");
	char line[32] = "", *end;
	long number;

	if (!file)
		return otherwise;
	if (!fgets(line, sizeof line, file))
		line[0] = '\0';
	fclose(file);
	number = strtol(line, &end, 10);
	return end == line ? otherwise : number;
}

static void check_version(struct doctor *doctor)
{
	static const struct {
		unsigned major, minor;
		const char *what, *without;
	} features[] = {
		{6, 9, "FUSE passthrough",
			"reads go through the daemon, at a fraction of the speed"},
		{6, 9, "FUSE_NOTIFY_RESEND", "requests in flight at a crash get an error"},
		{6, 14, "FUSE over io_uring",
			"requests come through /dev/fuse (the default anyway)"},
		{5, 11, "FUSE_HANDLE_KILLPRIV_V2", "each write costs one more request"},
	};
	struct utsname name;
	unsigned long major, minor;
	char *rest;

	uname(&name);
	major = strtoul(name.release, &rest, 10);
	minor = *rest == '.' ? strtoul(rest + 1, NULL, 10) : 0;
	if (major < 5 || (major == 5 && minor < 6))
		doctor_say(doctor, FINDING_FAIL, "kernel",
			"%s has no io_uring: 5.6 is needed, 6.9 or newer recommended",
			name.release);
	else
		doctor_say(doctor, FINDING_OK, "kernel", "%s", name.release);
	for (size_t i = 0; i < sizeof features / sizeof features[0]; i++) {
		bool has = major > features[i].major ||
			   (major == features[i].major && minor >= features[i].minor);

		if (has)
			doctor_say(doctor, FINDING_OK, features[i].what, "since kernel %u.%u",
				features[i].major, features[i].minor);
		else
			doctor_say(doctor, FINDING_WARN, features[i].what,
				"not in this kernel: %s; upgrade to %u.%u", features[i].without,
				features[i].major, features[i].minor);
	}
}

static void check_io_uring(struct doctor *doctor)
{
	struct io_uring_params params = {0};
	int fd = (int)syscall(__NR_io_uring_setup, 1, &params);

	if (fd >= 0) {
		close(fd);
		doctor_say(doctor, FINDING_OK, "io_uring", "works");
	} else if (errno == EPERM) {
		doctor_say(doctor, FINDING_FAIL, "io_uring",
			"is forbidden: set kernel.io_uring_disabled=0, or allow io_uring_setup in "
			"the "
			"container's seccomp profile");
	} else {
		doctor_say(doctor, FINDING_FAIL, "io_uring", "does not work: %s", strerror(errno));
	}
}

static void check_fuse(struct doctor *doctor)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd >= 0) {
		close(fd);
		doctor_say(doctor, FINDING_OK, "/dev/fuse", "can be opened");
	} else if (errno == ENOENT || errno == ENODEV || errno == ENXIO) {
		doctor_say(doctor, FINDING_FAIL, "/dev/fuse",
			"is missing: `modprobe fuse`, or give the container the device");
	} else {
		doctor_say(doctor, FINDING_FAIL, "/dev/fuse",
			"can't be opened (%s): run as root, or give the container the device",
			strerror(errno));
	}
	if (geteuid() == 0)
		doctor_say(doctor, FINDING_OK, "privilege", "root");
	else
		doctor_say(doctor, FINDING_WARN, "privilege",
			"not root: mounting and passthrough need CAP_SYS_ADMIN");
}

static void check_limits(struct doctor *doctor)
{
	struct rlimit files, memory;
	long pages = read_number("/proc/sys/fs/fuse/max_pages_limit", 0);

	getrlimit(RLIMIT_NOFILE, &files);
	if (files.rlim_max >= 65536)
		doctor_say(doctor, FINDING_OK, "open files", "limit %llu",
			(unsigned long long)files.rlim_max);
	else
		doctor_say(doctor, FINDING_WARN, "open files",
			"hard limit %llu: raise it to 65536 or more (LimitNOFILE=, ulimit -Hn)",
			(unsigned long long)files.rlim_max);
	getrlimit(RLIMIT_MEMLOCK, &memory);
	if (memory.rlim_max >= 8u << 20 || geteuid() == 0)
		doctor_say(doctor, FINDING_OK, "locked memory", "enough");
	else
		doctor_say(doctor, FINDING_WARN, "locked memory",
			"limit %llu bytes: raise it to 8 MiB (LimitMEMLOCK=, ulimit -l)",
			(unsigned long long)memory.rlim_max);
	if (pages >= 256)
		doctor_say(
			doctor, FINDING_OK, "request size", "fs.fuse.max_pages_limit=%ld", pages);
	else if (pages)
		doctor_say(doctor, FINDING_WARN, "request size",
			"fs.fuse.max_pages_limit=%ld makes requests small: sysctl -w "
			"fs.fuse.max_pages_limit=256",
			pages);
}

/* Where set, a request that waits for the origin longer aborts the whole mount. */
static void check_timeouts(struct doctor *doctor)
{
	static const char *const names[] = {"default_request_timeout", "max_request_timeout"};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		char path[64];
		long seconds;

		snprintf(path, sizeof path, "/proc/sys/fs/fuse/%s", names[i]);
		seconds = read_number(path, 0);
		if (seconds > 0)
			doctor_say(doctor, FINDING_WARN, names[i],
				"fs.fuse.%s=%ld: a read that waits longer for the origin ends the "
				"mount; set it to 0",
				names[i], seconds);
		else
			doctor_say(doctor, FINDING_OK, names[i], "none");
	}
}

void doctor_kernel(struct doctor *doctor)
{
	check_version(doctor);
	check_io_uring(doctor);
	check_fuse(doctor);
	check_limits(doctor);
	check_timeouts(doctor);
}
