#include "base/buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_init(struct buf *buf, size_t ceiling)
{
	*buf = (struct buf){.ceiling = ceiling};
}

void buf_free(struct buf *buf)
{
	free(buf->bytes);
	buf_init(buf, buf->ceiling);
}

void buf_reset(struct buf *buf)
{
	buf->size = 0;
	buf->error = 0;
	if (buf->bytes)
		buf->bytes[0] = '\0';
}

static int reserve(struct buf *buf, size_t n)
{
	size_t capacity;
	char *bytes;

	if (buf->error)
		return buf->error;
	if (n > buf->ceiling || buf->size > buf->ceiling - n)
		return buf->error = -EFBIG;
	if (buf->bytes && buf->size + n < buf->capacity)
		return 0;
	capacity = buf->capacity ? buf->capacity : 64;
	while (capacity <= buf->size + n)
		capacity *= 2;
	bytes = realloc(buf->bytes, capacity);
	if (!bytes)
		return buf->error = -ENOMEM;
	buf->bytes = bytes;
	buf->capacity = capacity;
	return 0;
}

int buf_add(struct buf *buf, const void *bytes, size_t n)
{
	int r = reserve(buf, n);

	if (r)
		return r;
	if (n)
		memcpy(buf->bytes + buf->size, bytes, n);
	buf->size += n;
	buf->bytes[buf->size] = '\0';
	return 0;
}

int buf_add_string(struct buf *buf, const char *string)
{
	return buf_add(buf, string, strlen(string));
}

int buf_printf(struct buf *buf, const char *format, ...)
{
	va_list args, again;
	int n, r;

	va_start(args, format);
	va_copy(again, args);
	n = vsnprintf(NULL, 0, format, args);
	va_end(args);
	r = n < 0 ? (buf->error = -EINVAL) : reserve(buf, (size_t)n);
	if (!r) {
		vsnprintf(buf->bytes + buf->size, (size_t)n + 1, format, again);
		buf->size += (size_t)n;
	}
	va_end(again);
	return r;
}

const char *buf_string(const struct buf *buf)
{
	return buf->bytes ? buf->bytes : "";
}

char *buf_steal(struct buf *buf)
{
	char *bytes;

	if (buf->error || (!buf->bytes && buf_add(buf, "", 0)))
		return NULL;
	bytes = buf->bytes;
	buf_init(buf, buf->ceiling);
	return bytes;
}
