/*
 * cleanup: locals that release what they own when they go out of scope.
 *
 *     _cleanup_(freep) char *name = strdup(source);
 *     _cleanup_(closep) int fd = -1;
 */
#ifndef BASE_CLEANUP_H
#define BASE_CLEANUP_H

#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(function) __attribute__((cleanup(function)))

static inline void freep(void *pointer)
{
	free(*(void **)pointer);
}

static inline void closep(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

/* Gives ownership away: returns the value and leaves NULL or -1 behind. */
#define steal_pointer(pointer)                                                                     \
	({                                                                                         \
		__auto_type stolen_ = *(pointer);                                                  \
		*(pointer) = NULL;                                                                 \
		stolen_;                                                                           \
	})

static inline int steal_fd(int *fd)
{
	int stolen = *fd;

	*fd = -1;
	return stolen;
}

#endif
