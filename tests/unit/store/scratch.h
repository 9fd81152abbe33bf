/* scratch: a directory of a test's own, gone with everything in it at the end. */
#ifndef TEST_STORE_SCRATCH_H
#define TEST_STORE_SCRATCH_H

#include <stddef.h>

/* cmocka's set-up and tear-down; *state is the directory's path. */
int scratch_make(void **state);
int scratch_remove(void **state);

/* "scratch/name"; the result lives until the next call but three. */
const char *scratch_path(const char *scratch, const char *name);
void scratch_write(const char *path, const char *text);

#endif
