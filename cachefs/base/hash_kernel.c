/* XXH3 as one compiler invocation makes it: built once for any processor, and once for those with
 * AVX2. */
#include "hash_kernel.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t HASH_KERNEL(const void *bytes, size_t n)
{
	return XXH3_64bits(bytes, n);
}
