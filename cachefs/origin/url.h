/* url: queries as S3 signs them. Any thread. */
#ifndef ORIGIN_URL_H
#define ORIGIN_URL_H

#include <stddef.h>

#include "base/buf.h"

struct url_parameter {
	const char *name, *value;
};
/* "a=1&b=2", encoded and sorted as Signature V4 wants it; sorts parameters in place. */
void url_query(struct buf *out, struct url_parameter *parameters, size_t n);

#endif
