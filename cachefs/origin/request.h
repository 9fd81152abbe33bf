/*
 * request: one logical request to an HTTP origin with all its tries.
 *
 * Life, always on the one loop thread that the request was given to:
 *
 *     QUEUED --> RUNNING --> WAITING --> QUEUED      a try failed and the budget is not used up
 *                RUNNING --> finished                 right, final failure, cancelled, time is up
 *     QUEUED --> WAITING                                its credentials are being fetched
 *     QUEUED, WAITING --> finished                    cancelled, time is up
 *
 * try.c makes the transitions; this module makes a try, watches its answer and judges it.
 */
#ifndef ORIGIN_REQUEST_H
#define ORIGIN_REQUEST_H

#include <curl/curl.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "base/list.h"

#include "answer.h"
#include "flow.h"
#include "origin/origin.h"
#include "verdict.h"

enum request_kind { REQUEST_GET, REQUEST_HEAD, REQUEST_LIST };
enum request_state { REQUEST_QUEUED, REQUEST_RUNNING, REQUEST_WAITING };

#define SIGNAL_RESUME 1u
#define SIGNAL_CANCEL 2u
/* One of these for each priority that a request can be raised to. */
#define SIGNAL_DEMAND    4u
#define SIGNAL_READAHEAD 8u
#define SIGNAL_UNPACED   16u

/* URL and headers of one try. */
struct call {
	struct buf url;
	struct curl_slist *headers;
	struct buf
		form; /* application/x-www-form-urlencoded: makes it a POST, which may be repeated */
	bool redirects; /* follow them */
	struct why why; /* of an error of prepare; "": the errno says it all */
	int error;      /* of a header that found no memory */
};
/* Adds "Name: value"; an error is kept in call->error. */
void call_header(struct call *call, const char *name, const char *value);

struct request {
	/* Set by who makes it, unchanged after. */
	struct origin *origin; /* a reference */
	enum request_kind kind;
	enum origin_priority priority;
	/* The answer is a success: take it. For LIST the body is whole. Sets the verdict. */
	void (*accept)(struct request *request, struct verdict *verdict);
	/* The one result, 0 or -errno: calls the caller's done. */
	void (*finish)(struct request *request, int error);
	/* Frees the request; the last thing that happens to it. */
	void (*release)(struct request *request);

	/* The loop thread's. */
	enum request_state state;
	struct list link; /* a queue of a lane, or its running requests */
	struct list all;  /* every request of the loop */
	uint64_t deadline_ns, due_ns, paused_since_ns;
	unsigned tries, fixes_done; /* bits by enum fix */
	unsigned loop;
	bool paused; /* by the caller, or when throttled by the origin's bandwidth until due_ns */
	bool throttled; /* only with paused */
	bool unpaced;   /* its bytes count against the bandwidth, but it doesn't wait for that */
	bool cancelled, timed;
	bool blocked; /* data took less than it was given: it is not called before the resume */
	/* Two requests for the same bytes know each other; the one that came later hedges. */
	struct request *twin;
	bool hedges, was_hedged;
	unsigned moves;           /* tries that were given up for a fresh connection */
	struct progress progress; /* of the running try */
	bool without_credentials; /* waits for them */
	bool counted_begun;       /* in the lane's n_begun */
	uint64_t credentials;     /* the number of those that the try was made with */
	/* An origin that sends GETs elsewhere: how often it did, the number of the place that the try
	 * goes to (0: the origin itself), and how many of its states before the newest are meant. */
	unsigned hops, back;
	uint64_t place;
	CURL *easy;
	struct curl_slist *headers;
	struct answer answer;
	struct buf body; /* a listing, or an error document */
	bool rejected;   /* the answer was refused before its end; verdict says why */
	struct verdict verdict;
	char detail[CURL_ERROR_SIZE];
	char last_text[VERDICT_TEXT_MAX]; /* of the last failed try */

	/* The loop's lock. */
	struct list signal;
	unsigned signals;
};

/* Zeroes and fills what must not be zero. Takes a reference of origin. */
void request_init(struct request *request, enum request_kind kind, struct origin *origin,
	enum origin_priority priority);
/* Sets up request->easy for the next try. 0; -EAGAIN: its credentials are being fetched; or -errno (no
 * memory, no credentials). With verdict->text. */
int request_prepare(struct request *request, struct verdict *verdict);
/* What the try that ended with code means. */
void request_judge(struct request *request, CURLcode code, struct verdict *ret);
/* How long to wait before try number `tries` + 1: what the server asked for, and on top of it full
 * jitter of a span that doubles, so that those who failed together don't come back together. random:
 * any number. */
uint64_t request_pause_ms(unsigned tries, uint64_t retry_after_s, uint64_t random);

#endif
