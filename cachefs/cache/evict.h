/* evict: makes room by whole objects. All of it blocks. */
#ifndef CACHE_EVICT_H
#define CACHE_EVICT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"

struct cache;

/* Evicts oldest objects until bytes fit, and a little more, so that not every chunk evicts. False:
 * nothing could be evicted. */
bool evict_for(struct cache *cache, uint64_t bytes);
/* One object: 0, -EBUSY, -ENOENT, -EPERM (pinned), -EIO, -EUCLEAN. */
int evict_object(struct cache *cache, struct id128 id, uint64_t *ret_freed_bytes);
void evict_free(struct cache *cache);

#endif
