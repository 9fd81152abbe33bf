/* json: the JSON documents that credentials come in. Untrusted: sizes are the caller's to limit. */
#ifndef CREDENTIALS_JSON_H
#define CREDENTIALS_JSON_H

#include "base/buf.h"
#include "credentials/credentials.h"

/* The names of the fields differ. */
struct json_names {
	const char *object; /* the fields are in this member; NULL: at the top */
	const char *key_id, *secret, *token, *expires;
	bool needs_expiry;
	bool expires_ms; /* a number of milliseconds, not a date */
};
extern const struct json_names json_names_of_process, json_names_of_endpoint, json_names_of_sso;

/* 0 or -EIO with why, which has nothing of the text. */
int json_credentials(
	const char *text, const struct json_names *names, struct credentials *ret, struct why *why);
/* Version of a process's answer; 0 when there is none. */
int json_version(const char *text);
/* One string of the object at the top, malloc'ed; NULL when there is none. */
char *json_string_of(const char *text, const char *name);
/* One number, 0 when there is none. */
int64_t json_integer_of(const char *text, const char *name);
struct json_field {
	const char *name, *value;
};
/* The object with these strings in it, the rest as it was, malloc'ed; NULL when text is no object or
 * memory is short. */
char *json_with(const char *text, const struct json_field *fields, size_t n);
/* "2013-05-24T00:00:00Z", also with a fraction, "UTC" or "+01:00"; 0 when it is no date. */
int64_t parse_expiry(const char *text);

#endif
