/* units: sizes and durations as people write them, one grammar for options, environment and
 * commands. Any thread. */
#ifndef BASE_UNITS_H
#define BASE_UNITS_H

#include <stddef.h>
#include <stdint.h>

/*
 * "4096", "64K", "1.5TiB", "100G", "500MB": K M G T P, with "iB" or nothing for powers of 1024 and
 * "B" for powers of 1000. 0, -EINVAL when it is no size, -ERANGE when it does not fit.
 */
int parse_size(const char *text, uint64_t *ret_bytes);
/* A size, or "80%" of whole_bytes. */
int parse_size_of(const char *text, uint64_t whole_bytes, uint64_t *ret_bytes);
/* "90s", "10m", "24h", "7d", "250ms", "1.5h"; a bare number is seconds. 0, -EINVAL, -ERANGE. */
int parse_duration(const char *text, uint64_t *ret_ms);
/* "1.5 GiB", "512 B". Returns text. 16 bytes suffice. */
const char *format_size(uint64_t bytes, char *text, size_t size);

#endif
