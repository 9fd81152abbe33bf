#include "lease.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>

int lease_take(int fd)
{
	if (fcntl(fd, F_SETSIG, SIGURG) < 0)
		return -errno;
	if (fcntl(fd, F_SETLEASE, F_WRLCK) == 0)
		return 0;
	switch (errno) {
	case EAGAIN:
		return -EBUSY;
	case EINVAL:
	case ENOLCK:
	case EOPNOTSUPP:
		return -EOPNOTSUPP;
	default:
		return -errno;
	}
}
