/*
 * records: the values in the index, as bytes.
 *
 * Every value starts with the XXH3-64 of what follows, since LMDB has no checksums of its own and a
 * flipped `complete` would let a file with holes through to a reader. Integers are little-endian.
 * Decoding trusts nothing: -EUCLEAN for whatever encoding would not have made. Any thread.
 *
 *     object   sum:8 kind:1 flags:1 version_size:2 name_size:4 size:8 disk:8 mtime:8 opened:8
 *              pinned:8 ctime:8 epoch:8 n_chunks:4 n_present:4 name version
 *     group    sum:8 kind:1 zero:7 present:16 (sum of a present chunk:8)*
 *     listing  sum:8 bytes
 */
#ifndef INDEX_RECORDS_H
#define INDEX_RECORDS_H

#include <stddef.h>
#include <stdint.h>

#include "index/index.h"

#define RECORD_SUM_SIZE  8u
#define OBJECT_SIZE_MAX  (80u + INDEX_NAME_MAX + 128u)
#define GROUP_SIZE_MAX   (32u + 8u * INDEX_GROUP_CHUNKS)
#define LISTING_SIZE_MAX (256u << 20)

/* The bytes written. The strings must be terminated within their arrays. */
size_t object_encode(const struct index_object_record *record, uint8_t bytes[OBJECT_SIZE_MAX]);
/* 0, or -EUCLEAN and *ret is undefined. */
int object_decode(const uint8_t *bytes, size_t size, struct index_object_record *ret);

size_t group_encode(const struct index_group *group, uint8_t bytes[GROUP_SIZE_MAX]);
/* Sums of absent chunks become 0. */
int group_decode(const uint8_t *bytes, size_t size, struct index_group *ret);

/* Sets the sum of a value whose bytes after it are written. */
void record_seal(uint8_t *bytes, size_t size);
/* 0, or -EUCLEAN when the sum is wrong or there is none. */
int record_verify(const uint8_t *bytes, size_t size);

void put_u32(uint8_t **at, uint32_t value);
void put_u64(uint8_t **at, uint64_t value);
uint32_t get_u32(const uint8_t **at);
uint64_t get_u64(const uint8_t **at);

#endif
