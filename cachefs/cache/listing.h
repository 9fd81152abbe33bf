/*
 * listing: all names of one directory in one block of memory, which is also what the index keeps.
 *
 *     struct listing_head
 *     struct listing_slot[count]   sorted by name
 *     uint32_t[count]              the slots in the order of their cookies
 *     heap                         names and versions, each with its NUL
 *
 * The block is in the host's byte order and is checked as a whole when it comes from the index:
 * what is damaged is as good as absent.
 */
#ifndef CACHE_LISTING_H
#define CACHE_LISTING_H

#include "base/buf.h"
#include "cache/tree.h"

#define LISTING_BYTES_MAX (256u << 20)

struct listing_builder {
	struct buf slots, heap;
	uint64_t hidden_keys;
};

void listing_builder_init(struct listing_builder *builder);
void listing_builder_free(struct listing_builder *builder);
/* Errors are remembered for listing_build. */
void listing_builder_add(struct listing_builder *builder, const struct origin_entry *entry);
size_t listing_builder_count(const struct listing_builder *builder);
/*
 * Sorts, drops repeated names (a directory wins over an object of its name, which counts as
 * hidden), and empties the builder. 0, -EFBIG: more than LISTING_BYTES_MAX, -ENOMEM.
 */
int listing_build(struct listing_builder *builder, struct listing **ret);

/* Takes over malloc'ed bytes from the index, also on error. -EUCLEAN: damaged. */
int listing_from_bytes(void *bytes, size_t size, struct listing **ret);
const void *listing_bytes(const struct listing *listing, size_t *ret_size);
/* Binary search. False: no such name. */
bool listing_find(const struct listing *listing, const char *name, size_t name_size,
	struct listing_entry *ret);
int64_t listing_wall_ns(const struct listing *listing);
uint64_t listing_hidden_keys(const struct listing *listing);

#endif
