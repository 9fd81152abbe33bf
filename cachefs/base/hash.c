#include "base/hash.h"

#include "hash_kernel.h"

#include <errno.h>
#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Every byte that comes and goes is hashed: with AVX2 that costs a fifth. */
uint64_t hash64(const void *bytes, size_t n)
{
#ifdef HASH_HAS_AVX2
	if (__builtin_cpu_supports("avx2"))
		return hash64_avx2(bytes, n);
#endif
	return hash64_any(bytes, n);
}

struct id128 hash128_strings(const char *const *strings, size_t n)
{
	XXH3_state_t state;
	XXH128_hash_t hash;

	XXH3_128bits_reset(&state);
	for (size_t i = 0; i < n; i++) {
		uint64_t length = strlen(strings[i]);

		XXH3_128bits_update(&state, &length, sizeof length);
		XXH3_128bits_update(&state, strings[i], length);
	}
	hash = XXH3_128bits_digest(&state);
	return (struct id128){.hi = hash.high64, .lo = hash.low64};
}

void id128_to_hex(struct id128 id, char hex[ID128_HEX_SIZE])
{
	snprintf(hex, ID128_HEX_SIZE, "%016llx%016llx", (unsigned long long)id.hi,
		(unsigned long long)id.lo);
}

int id128_from_hex(const char *hex, struct id128 *ret)
{
	uint64_t half[2] = {0, 0};

	for (int i = 0; i < 32; i++) {
		char c = hex[i];
		unsigned digit;

		if (c >= '0' && c <= '9')
			digit = (unsigned)(c - '0');
		else if (c >= 'a' && c <= 'f')
			digit = (unsigned)(c - 'a') + 10;
		else
			return -EINVAL;
		half[i / 16] = half[i / 16] << 4 | digit;
	}
	if (hex[32])
		return -EINVAL;
	*ret = (struct id128){.hi = half[0], .lo = half[1]};
	return 0;
}
