/* name: which keys can be shown as a name in a directory. */
#ifndef ORIGIN_NAME_H
#define ORIGIN_NAME_H

#include <stdbool.h>
#include <string.h>

/* What FUSE takes (FUSE_NAME_MAX in the kernel's fs/fuse/fuse_i.h is 1,024, with the NUL). */
#define NAME_MAX_BYTES 1023

/* One component, of any bytes; the caller has seen to the slashes. */
static inline bool name_valid(const char *name, size_t n)
{
	return n >= 1 && n <= NAME_MAX_BYTES && !(n == 1 && name[0] == '.') &&
	       !(n == 2 && name[0] == '.' && name[1] == '.') && !memchr(name, '\0', n);
}

#endif
