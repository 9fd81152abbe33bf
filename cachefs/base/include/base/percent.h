/* percent: percent-encoding (RFC 3986, 2.1), as S3 signs it and URLs carry it. Any thread. */
#ifndef BASE_PERCENT_H
#define BASE_PERCENT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Every byte but A-Z a-z 0-9 - . _ ~ (and / when keep_slashes) becomes %XX. */
void percent_encode(struct buf *out, const char *bytes, size_t n, bool keep_slashes);
/* Decodes %XX, and + as a blank when plus_is_blank. 0, or -EINVAL when a % is not followed by two
 * digits; or the buffer's error. */
int percent_decode(struct buf *out, const char *text, size_t n, bool plus_is_blank);

#endif
