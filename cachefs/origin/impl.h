/* impl: what the parts of this room know about an origin. */
#ifndef ORIGIN_IMPL_H
#define ORIGIN_IMPL_H

#include <stdatomic.h>

#include "base/lock.h"

#include "engine.h"
#include "origin/origin.h"
#include "request.h"
#include "source.h"
#include "verdict.h"

/* Of a server that ignores ranges: an object of more isn't read to its middle. */
#define ORIGIN_DISCARD_MAX (64u << 20)

struct origin_ops {
	void (*get)(struct origin_get *get);
	void (*get_signal)(struct origin_get *get, unsigned signal);
	void (*stat)(struct origin_stat *stat);
	void (*list)(struct origin_list *list);
	int (*object_name)(const struct origin *origin, const char *path, char *name, size_t size);
	void (*destroy)(struct origin *origin);

	/* HTTP only. URL and headers of a try. 0; -EAGAIN: its credentials are being fetched, it is
	 * tried again when they are there; or -errno. Loop thread. */
	int (*prepare)(struct request *request, struct call *call);
	/* HTTP only. The answer is no success: classifies it, looking at request->body, and repairs
	 * what verdict->fix names or makes the failure final. Loop thread. */
	void (*judge)(struct request *request, struct verdict *verdict);
	/* HTTP only, NULL: by the answer's ETag. Is the success that request->answer begins of the
	 * version that the GET wants? Else sets request->verdict. Loop thread. */
	bool (*check_version)(struct request *request);
	/* HTTP only. May a server ignore ranges? */
	bool ranges_optional;
	/* May a listing lack names that exist? */
	bool lists_some;
	/* A refusal's last_error says what to do about it. */
	bool says_why;
	/* Do pages of a listing come in the order of keys? */
	bool lists_in_order;
};

struct origin {
	const struct origin_ops *ops;
	struct origin_engine *engine;
	_Atomic unsigned refs;
	char *source, *identity, *ca;
	bool loopback; /* never by a proxy */
	uint64_t timeout_ms, bandwidth_bytes;
	struct lane lanes[ENGINE_LOOPS];
	struct flow flow;
	_Atomic uint64_t bytes;
	_Atomic bool shut;       /* origin_shutdown was called */
	struct pool_share share; /* the pool's, on behalf of who fetches */
	struct lock lock;
	struct origin_stats stats; /* lock */
	uint64_t paced_ns; /* lock: when the bytes so far would be through at bandwidth_bytes */
};

/* Sets ops, one reference and the lock of a zeroed origin. */
void origin_setup(struct origin *origin, const struct origin_ops *ops);

/* Each makes an origin with one reference; what is common is filled in by origin_open after. */
int s3_open(const struct source *source, const struct origin_config *config, struct origin **ret,
	struct why *why);
int http_open(const struct source *source, const struct origin_config *config, struct origin **ret,
	struct why *why);
int hf_open(const struct source *source, const struct origin_config *config, struct origin **ret,
	struct why *why);
int dir_open(const struct source *source, struct origin **ret, struct why *why);

/* Counts one try and remembers its error. */
void origin_count(struct origin *origin, enum request_kind kind, const struct verdict *verdict);
/* Counts bytes against the bandwidth. How long to wait before more are taken, 0: not at all. */
uint64_t origin_pace(struct origin *origin, size_t n);
/* Counts a GET that was moved to a fresh connection, one that was hedged, and bytes that came twice. */
void origin_count_move(struct origin *origin);
void origin_count_hedge(struct origin *origin);
void origin_count_twice(struct origin *origin, uint64_t bytes);
/* It answered a range with the whole object. */
void origin_note_no_ranges(struct origin *origin);
void origin_count_running(struct origin *origin, int change);

#endif
