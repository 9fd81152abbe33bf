/*
 * hash: XXH3 for everything: object ids, checksums of stored bytes, hash tables. The only user of
 * <xxhash.h>. The on-disk formats depend on these functions: XXH3 64 and 128 with seed 0
 * (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md), results kept as integers in the host's
 * byte order.
 */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct id128 {
	uint64_t hi, lo;
};

uint64_t hash64(const void *bytes, size_t n);
/* Of several pieces one after another, as if they were one; each piece's length is hashed too, so
 * that ("ab","c") and ("a","bc") differ. */
struct id128 hash128_strings(const char *const *strings, size_t n);

static inline bool id128_equal(struct id128 a, struct id128 b)
{
	return a.hi == b.hi && a.lo == b.lo;
}

#define ID128_HEX_SIZE 33
/* 32 lower-case digits and a NUL, most significant first. */
void id128_to_hex(struct id128 id, char hex[ID128_HEX_SIZE]);
/* 0, or -EINVAL when it is not exactly 32 lower-case digits. */
int id128_from_hex(const char *hex, struct id128 *ret);

#endif
