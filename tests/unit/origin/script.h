/*
 * script: an HTTP server on 127.0.0.1 that answers from a table and keeps what it was asked.
 *
 * One thread, one connection at a time, closed after each answer.
 */
#ifndef TEST_SCRIPT_H
#define TEST_SCRIPT_H

#include <stddef.h>

struct script_step {
	const char *match;  /* must be in the request */
	const char *answer; /* head and body; NULL: the connection is closed without a word */
	size_t cut;         /* > 0: bytes that are sent before the connection ends */
	size_t zeros;       /* bytes of 0 that follow answer */
	int again;          /* may answer more than once */
	int silent;         /* sends nothing until the client gives up */
};

struct script;

/* Takes the first step that matches and was not used. An unexpected request gets 599. */
struct script *script_start(const struct script_step *steps, size_t n);
unsigned script_port(const struct script *script);
/* All requests so far, head and body, in order; valid until the script is stopped. */
const char *script_request(struct script *script, size_t i);
size_t script_requests(struct script *script);
void script_stop(struct script *script);

#endif
