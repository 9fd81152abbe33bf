/* source: SOURCE and endpoint URLs, checked and brought to one form. */
#ifndef ORIGIN_SOURCE_H
#define ORIGIN_SOURCE_H

#include <stdbool.h>

#include "base/why.h"

enum source_kind { SOURCE_S3, SOURCE_HTTP, SOURCE_HF, SOURCE_DIR };

struct source {
	enum source_kind kind;
	char *text; /* normal form */
	bool tls;
	char *host;   /* http: lower case, with the port unless it is the scheme's own */
	char *bucket; /* s3 */
	/* hf: "models/org/name", "datasets/org/name" or "spaces/org/name"; a branch, tag or commit,
	 * decoded. */
	char *repo, *revision;
	/* s3, hf: "" or "prefix/"; http: "/" or "/path/", encoded as the user gave it; file: the
	 * directory, absolute, without a slash at its end. */
	char *path;
};

/* 0, -EINVAL with why (names the value and the remedy), -ENOMEM. */
int source_parse(const char *text, struct source *ret, struct why *why);
void source_free(struct source *source);

struct endpoint {
	bool tls;
	char *host; /* as in struct source */
};
/* "http[s]://host[:port][/]". what: how the user called it ("endpoint"). */
int endpoint_parse(const char *what, const char *text, struct endpoint *ret, struct why *why);
void endpoint_free(struct endpoint *endpoint);
/* localhost, 127.0.0.0/8, ::1; host with or without port. */
bool host_is_loopback(const char *host);

#endif
