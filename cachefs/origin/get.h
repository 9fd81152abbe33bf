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
	/* Whose `received` counts: itself, or the GET that this one hedges. */
	struct get_request *lead;
	uint64_t received; /* of get->length, given to data by this GET or by its hedge */
	uint64_t charged;  /* of a hedge: bytes taken from what may be asked for twice */
	uint64_t twice;    /* bytes that came a second time */
	/* Of the current try. */
	bool begun, whole; /* whole: the server sent the object from its first byte */
	uint64_t first;    /* of the range: where it was asked to begin */
	uint64_t at;       /* of the range: the next byte that comes */
	uint64_t discard;  /* bytes before the range */
	size_t repeat;     /* bytes that curl gives again after a pause */
};

/* Makes the request and starts it; a failure is told by get->done too. */
void get_start(struct origin_get *get);
/* A second request for what `request` misses, in no queue, holding the same loop. NULL: no memory. */
struct request *get_hedge(struct request *request);
/* Bytes of the range that are missing. */
uint64_t get_missing(const struct request *request);
/* The caller has a part of the bytes, and may hold memory for a piece that is not whole. */
bool get_is_begun(const struct request *request);
/* Its answer is right and gives just the range; another one would be of the same version. */
bool get_can_be_hedged(const struct request *request);
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
