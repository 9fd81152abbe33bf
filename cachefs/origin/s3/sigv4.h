/*
 * sigv4: AWS Signature Version 4 in the Authorization header
 * (https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html).
 *
 * Pure functions, any thread. Canonical URI and query are given as they are sent: S3 wants them
 * encoded once and its paths not normalised.
 */
#ifndef S3_SIGV4_H
#define S3_SIGV4_H

#include <stddef.h>

#include "base/buf.h"

#define SIGV4_EMPTY_HASH "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define SIGV4_TIME_SIZE  17 /* "20130524T000000Z" */

struct sigv4_header {
	const char *name; /* lower case */
	const char *value;
};

struct sigv4_request {
	const char *method, *uri, *query; /* encoded; the query's parameters sorted */
	const struct sigv4_header *headers;
	size_t n_headers; /* sorted by name, each name once */
	const char *payload_hash;
};

struct sigv4_scope {
	const char *key_id, *secret;
	const char *region, *service;
	char time[SIGV4_TIME_SIZE];
};

/* Appends; errors are the buffer's. */
void sigv4_canonical_request(const struct sigv4_request *request, struct buf *out);
void sigv4_string_to_sign(
	const struct sigv4_request *request, const struct sigv4_scope *scope, struct buf *out);
/* The value of the Authorization header. */
void sigv4_authorization(
	const struct sigv4_request *request, const struct sigv4_scope *scope, struct buf *out);

#endif
