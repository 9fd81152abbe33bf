/* words: a command line cut into words as a POSIX shell does, without anything being expanded. */
#ifndef CREDENTIALS_WORDS_H
#define CREDENTIALS_WORDS_H

#include <stddef.h>

#define WORDS_MAX 128

/* *ret: NULL-terminated, one allocation, the caller frees it. -EINVAL: a quote is not closed, or
 * there is no word; -E2BIG; -ENOMEM. */
int words_split(const char *line, char ***ret);

#endif
