/* Exits with 0 when the libfuse that it is linked with was built with custom IO: only a run can
 * tell. */
#define FUSE_USE_VERSION 318
#include <errno.h>
#include <fuse_lowlevel.h>

int main(void)
{
	struct fuse_custom_io io = {0};

	return fuse_session_custom_io(NULL, &io, sizeof(io), -1) == -ENOTSUP;
}
