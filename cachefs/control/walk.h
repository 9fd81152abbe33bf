/* walk: all files below one directory of a volume, with several listings under way at once. */
#ifndef CONTROL_WALK_H
#define CONTROL_WALK_H

#include "base/why.h"
#include "cache/tree.h"

/* attr is NULL where the listing doesn't know it. On the caller's thread; non-zero stops the walk
 * and is returned. */
typedef int walk_file(void *arg, const char *path, const struct origin_attr *attr);

/* path: a directory, "" is the root. Blocks. 0; what a listing said; -EOVERFLOW: more directories
 * than this remembers at once. */
int walk(struct tree *tree, const char *path, walk_file *file, void *arg);

#endif
