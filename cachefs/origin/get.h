/*
 * get: the body of a range GET: the checks before its first byte, pauses, and where the next try
 * goes on.
 */
#ifndef ORIGIN_GET_H
#define ORIGIN_GET_H

#include "request.h"

struct get_request {
	struct request base;
	struct origin_get *get;
	uint64_t received; /* of get->length, given to data */
	/* Of the current try. */
	bool begun, whole; /* whole: the server sent the object from its first byte */
	uint64_t discard;  /* bytes before the range */
	size_t repeat;     /* bytes that curl gives again after a pause */
};

/* Makes the request and starts it; a failure is told by get->done too. */
void get_start(struct origin_get *get);
/* Adds Range, and If-Match for a strong version. value: "bytes=a-b". */
void get_range(const struct request *request, char *value, size_t size);
/* Forgets the try before. */
void get_reset(struct request *request);
/* curl's write callback. */
size_t get_body(struct request *request, const uint8_t *bytes, size_t n);
/* All bytes were given. */
bool get_complete(const struct request *request);
/* The transfer ended without an error and the status is a success. */
void get_accept(struct request *request, struct verdict *verdict);

static inline struct get_request *get_request_of(const struct request *request)
{
	return (struct get_request *)((char *)request - offsetof(struct get_request, base));
}

#endif
