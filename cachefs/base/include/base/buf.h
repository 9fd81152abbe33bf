/*
 * buf: a growing byte buffer with a ceiling.
 *
 * Always followed by a NUL that is not counted, so text can be read as a C string. Exceeding the
 * ceiling or memory sets `error` and empties nothing: further writes do nothing, and the one check
 * at the end finds it. Owned by one thread.
 */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stddef.h>

struct buf {
	char *bytes;
	size_t size, capacity, ceiling;
	int error; /* 0, -EFBIG or -ENOMEM */
};

/* Nothing is allocated until the first write. */
void buf_init(struct buf *buf, size_t ceiling);
void buf_free(struct buf *buf);
/* Empties; keeps the memory and clears the error. */
void buf_reset(struct buf *buf);
int buf_add(struct buf *buf, const void *bytes, size_t n);
int buf_add_string(struct buf *buf, const char *string);
int buf_printf(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The text, "" when nothing was written. Valid until the next write. */
const char *buf_string(const struct buf *buf);
/* Gives the allocated bytes (and their NUL) to the caller, who frees them; the buffer is empty
 * after. NULL on error. */
char *buf_steal(struct buf *buf);

#endif
