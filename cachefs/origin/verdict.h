/*
 * verdict: what one try of a request means: done, final failure, try again.
 *
 * The one table from CURLcode, HTTP status and S3 error code to errno. Any thread.
 */
#ifndef ORIGIN_VERDICT_H
#define ORIGIN_VERDICT_H

#include <curl/curl.h>

#include "origin/origin.h"

#define VERDICT_TEXT_MAX 512

enum step {
	STEP_DONE,
	STEP_FAIL,
	STEP_RETRY, /* after a pause, within the request's budget */
	STEP_AGAIN, /* at once, after `fix` was done; at most once for each fix */
	STEP_ON,    /* at once: the answer leads on, and the next try is no retry. error is not 0 */
};

enum fix { FIX_NONE, FIX_REGION, FIX_CLOCK, FIX_CREDENTIALS, FIX_LIST_V1, FIX_PLACE };

struct verdict {
	enum step step;
	enum fix fix;
	int error; /* 0 only with STEP_DONE */
	enum origin_outcome outcome;
	char text[VERDICT_TEXT_MAX]; /* for last_error; never a credential */
};

/* The transfer failed; detail is curl's own text, which may be empty. */
void verdict_of_curl(CURLcode code, const char *detail, struct verdict *ret);
/* An answer that is no success. s3_code: the <Code> of an S3 error document, else NULL or "". */
void verdict_of_answer(long status, const char *s3_code, struct verdict *ret);
/* The answer says success but can't be right: tried again, then -EIO. */
void verdict_bad_answer(struct verdict *ret, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Final, with an error of the caller's. */
void verdict_fail(struct verdict *ret, int error, enum origin_outcome outcome, const char *format,
	...) __attribute__((format(printf, 4, 5)));
void verdict_done(struct verdict *ret);
void verdict_on(struct verdict *ret);

#endif
