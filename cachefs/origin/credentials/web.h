/* web: one HTTP call that blocks, for the workers that fetch credentials. */
#ifndef CREDENTIALS_WEB_H
#define CREDENTIALS_WEB_H

#include <curl/curl.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/why.h"

struct web_call {
	const char *method, *url;
	struct curl_slist *headers; /* the caller's */
	const char *body;           /* NULL: none */
	const char *ca;             /* NULL: the system's certificates */
	unsigned timeout_ms;
	bool local; /* an address of this machine or its link: never by a proxy */
};

struct web_answer {
	long status;
	struct buf body;
};
void web_answer_init(struct web_answer *answer);
/* Wipes the body. */
void web_answer_free(struct web_answer *answer);

/* No redirects, one try. 0: there is an answer, of whatever status. -EIO with why, -ENOMEM,
 * -ECANCELED soon after *stop. */
int web_call(const struct web_call *call, const _Atomic bool *stop, struct web_answer *ret,
	struct why *why);
/* Adds "NAME: VALUE". 0 or -ENOMEM; a value with a line break is -EINVAL. */
int web_header(struct curl_slist **headers, const char *name, const char *value);
/* An answer that is no success: -EIO when it may be another next time, else -EACCES. With why:
 * "WHO answers HTTP 403 TEXT". */
int web_refused(const char *who, long status, const char *text, struct why *why);

#endif
