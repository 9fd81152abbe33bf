/*
 * answer: the status line and the headers of one HTTP answer that we look at (RFC 9110).
 *
 * One thread. Everything here came from a server: parsed strictly, never trusted.
 */
#ifndef ORIGIN_ANSWER_H
#define ORIGIN_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "origin/origin.h"

#define ANSWER_NEXT_MAX 2048

struct answer {
	long status;
	char etag[ORIGIN_VERSION_MAX]; /* with quotes, and W/ when weak; "" when there is none */
	bool etag_too_long;
	bool has_length;
	uint64_t length;
	bool has_range;
	uint64_t range_first, range_last, range_total;
	bool has_total;         /* false: Content-Range said "*" */
	int64_t modified_s;     /* Last-Modified; 0 when unknown */
	int64_t date_s;         /* Date; 0 when unknown */
	uint64_t retry_after_s; /* Retry-After in seconds; 0 when not given */
	int64_t retry_at_s;     /* Retry-After as a date, by the clock of Date; 0 when not given */
	char region[64];        /* x-amz-bucket-region */
	bool html;              /* Content-Type: text/html or application/xhtml+xml */
	bool coded;             /* Content-Encoding: something */
	/* Of a Hugging Face hub: what a redirect says of the file behind it, and what an error is. */
	char linked_etag[ORIGIN_VERSION_MAX]; /* X-Linked-Etag, as it came; "" when there is none */
	char error_code[32];                  /* X-Error-Code */
	char error_message[128];              /* X-Error-Message, its beginning */
	char next[ANSWER_NEXT_MAX];           /* the query of Link: <URL?QUERY>; rel="next" */
	bool next_bad; /* there is such a link, or may be one, that can't be followed */
};

/* One line as it came. A status line starts a new answer (after a redirect or a 100). */
void answer_line(struct answer *answer, const char *line, size_t n);
/* "bytes 0-9/10" or "bytes 0-9/x". False when it is anything else. */
bool answer_parse_range(struct answer *answer, const char *value);
/* For how many seconds from now_s on the server wants to be left alone; 0 when it says nothing. */
uint64_t answer_pause_s(const struct answer *answer, int64_t now_s);
/* What names this content, of total_bytes: a strong or weak ETag, else Last-Modified and size. 0,
 * or -EIO when it can't be told. */
int answer_version(const struct answer *answer, uint64_t total_bytes, struct origin_version *ret);
/* "2013-05-24T00:00:00.000Z" in whole seconds, 0 when it is none. */
int64_t answer_parse_iso(const char *text);

#endif
