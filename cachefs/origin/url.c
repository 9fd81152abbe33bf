#include "url.h"

#include <stdlib.h>
#include <string.h>

#include "base/percent.h"

static int compare(const void *a, const void *b)
{
	const struct url_parameter *left = a, *right = b;
	int order = strcmp(left->name, right->name);

	return order ? order : strcmp(left->value, right->value);
}

void url_query(struct buf *out, struct url_parameter *parameters, size_t n)
{
	/* Byte order of the encoded names; ours need no encoding, or encode to the same order. */
	qsort(parameters, n, sizeof *parameters, compare);
	for (size_t i = 0; i < n; i++) {
		const struct url_parameter *p = &parameters[i];

		if (i)
			buf_add_string(out, "&");
		percent_encode(out, p->name, strlen(p->name), false);
		buf_add_string(out, "=");
		percent_encode(out, p->value, strlen(p->value), false);
	}
}
