/* usage: how much of the store something has. */
#ifndef CACHE_USAGE_H
#define CACHE_USAGE_H

#include "index/index.h"

/* Bytes of its present chunks. At most a chunk's length too much, when the last chunk, which is
 * short, is present and another is not. */
uint64_t usage_of_object(const struct index_object *object);

#endif
