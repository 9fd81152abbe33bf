/* url: percent-encoding as S3 signs it, and as it decodes keys. Any thread. */
#ifndef ORIGIN_URL_H
#define ORIGIN_URL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Every byte but A-Z a-z 0-9 - . _ ~ (and / when keep_slashes) becomes %XX. */
void url_encode(struct buf *out, const char *bytes, size_t n, bool keep_slashes);
/* Decodes %XX, and + as a blank when plus_is_blank. -EINVAL when a % is not followed by two digits.
 */
int url_decode(struct buf *out, const char *text, size_t n, bool plus_is_blank);

struct url_parameter {
	const char *name, *value;
};
/* "a=1&b=2", encoded and sorted as Signature V4 wants it; sorts parameters in place. */
void url_query(struct buf *out, struct url_parameter *parameters, size_t n);

#endif
