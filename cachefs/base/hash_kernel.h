/* hash_kernel: the same function twice, under two names; hash.c chooses by the processor. */
#ifndef BASE_HASH_KERNEL_H
#define BASE_HASH_KERNEL_H

#include <stddef.h>
#include <stdint.h>

uint64_t hash64_any(const void *bytes, size_t n);
uint64_t hash64_avx2(const void *bytes, size_t n);

#endif
