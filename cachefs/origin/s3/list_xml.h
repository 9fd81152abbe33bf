/*
 * list_xml: answers of S3 in XML: ListBucketResult (versions 1 and 2) and Error documents.
 *
 * One pass of libxml2's SAX push parser; no DTD and no entities but XML's own. Keys come out
 * decoded. The input came from a server: everything is checked, nothing is guessed.
 */
#ifndef S3_LIST_XML_H
#define S3_LIST_XML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct list_key {
	const char *key; /* any bytes; may hold NULs */
	size_t key_size;
	uint64_t size_bytes;
	bool sized; /* the document says its size */
	int64_t modified_s;
	const char *etag; /* "" when there is none */
	bool prefix;      /* a common prefix; the rest is not set then */
};

struct list_page {
	bool truncated, has_key_count;
	struct buf next_token;  /* NextContinuationToken */
	struct buf next_marker; /* NextMarker, decoded */
	struct buf last;        /* the greatest key or common prefix, in byte order */
	uint64_t n_keys;
};
void list_page_init(struct list_page *page);
void list_page_free(struct list_page *page);

struct error_document {
	char code[64], region[64];
};

/*
 * Calls each for every key and common prefix, in the document's order. 0; -EBADMSG when it is no
 * whole ListBucketResult; -EREMOTEIO when it is an Error document, which is in *error then; what
 * each returned.
 */
int list_xml_parse(const void *bytes, size_t n, int (*each)(void *arg, const struct list_key *key),
	void *arg, struct list_page *page, struct error_document *error);
/* Leaves *ret empty when the bytes are no Error document. */
void error_xml_parse(const void *bytes, size_t n, struct error_document *ret);

#endif
