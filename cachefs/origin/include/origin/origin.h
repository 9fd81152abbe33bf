/*
 * origin: the object store that holds the truth, behind one interface for s3://, hf://, http(s)://
 * and file://.
 *
 * A path is relative to the volume's root: "" is the root itself, "a/b" a file or directory below
 * it, any bytes but NUL, never with a leading or trailing slash. Every operation is asynchronous:
 * the caller fills in a request that it owns, starts it, and gets exactly one `done`, on one of the
 * engine's threads (never from inside start), no lock held. Callbacks must not block.
 *
 * Errors are negative errnos, mapped from CURLcode and HTTP status in one table:
 *
 *  -ENOENT        the origin said that there is no such object (404 NoSuchKey); nothing else ever
 *                 becomes this
 *  -ESTALE        the object is no longer the version that was asked for (412, or an ETag that
 *                 changed)
 *  -EACCES        401, 403
 *  -EIO           the origin gave up or made no sense, after all tries within timeout_ms (5xx,
 *                 resets, stalls, bad bodies, TLS)
 *  -ENAMETOOLONG  the origin can't have a name that long
 *  -ENXIO         only from a listing of the root "": the bucket, repository or revision does not
 *                 exist
 *  -ECANCELED     the caller asked for it
 *
 * Whatever may pass (5xx, 429, time-outs, resets, short bodies) is tried again inside, with full
 * jitter, until timeout_ms of the request have gone by; the caller sees only bytes that are right,
 * in order, each once. The clock runs from start for stat and for what is ORIGIN_DEMAND; for the
 * others, which may wait in the queue for long, from the first try, or from when they are promoted
 * to that. It begins anew with each MiB that a GET gives away, and stands while a GET is paused.
 */
#ifndef ORIGIN_ORIGIN_H
#define ORIGIN_ORIGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"
#include "base/why.h"
#include "base/work.h"

#define ORIGIN_VERSION_MAX 128
#define ORIGIN_PATH_MAX    4096

/* One content of an object. Compared as text. */
struct origin_version {
	/* An ETag with its quotes, verbatim, or for file:// "size-mtime-ctime-inode"; where an
	 * origin gives no ETag, what else it says of the content. */
	char text[ORIGIN_VERSION_MAX];
	/* False: a weak ETag or Last-Modified. Ranges are then compared by the answers' headers,
	 * since If-Match can't be used (RFC 9110, 13.1.1). */
	bool strong;
};

enum origin_kind { ORIGIN_FILE, ORIGIN_DIR };

struct origin_attr {
	enum origin_kind kind;
	uint64_t size_bytes;
	int64_t mtime_ns;              /* 0 when unknown */
	struct origin_version version; /* of files */
};

enum origin_priority { ORIGIN_DEMAND, ORIGIN_READAHEAD, ORIGIN_PREFETCH };

/* The threads that carry all requests of the process: curl multi loops, and workers for file://. */
struct origin_engine;
/* 0 or -errno. */
int origin_engine_new(struct origin_engine **ret);
/* Every request must have had its done. NULL is allowed. A worker of a file:// origin may still be
 * at the end of its last job, in which it touches nothing but that origin. */
void origin_engine_free(struct origin_engine *engine);

/* As given by the user; strings may be NULL and are copied by origin_open. */
struct origin_config {
	const char *source;     /* s3://bucket[/prefix], hf://org/repo[@revision][/path],
				   http(s)://host/path/, file:///dir */
	const char *endpoint;   /* URL; default: the environment's AWS_ENDPOINT_URL_S3 or
				   AWS_ENDPOINT_URL, the profile's, else AWS; for hf:// HF_ENDPOINT, else
				   https://huggingface.co */
	const char *region;     /* default: AWS_REGION, AWS_DEFAULT_REGION, the profile's, else
				   discovered */
	const char *addressing; /* "auto", "path", "virtual" */
	const char *aws_profile;
	const char *credentials; /* file in the format of ~/.aws/credentials, for http(s):// one
				    with the Authorization header, for hf:// with the token; read again when it changes */
	const char *ca;          /* PEM file */
	bool anonymous;
	uint64_t timeout_ms;      /* of one request, each MiB of a GET, all tries; 0: 5 minutes */
	unsigned connections;     /* most in parallel; 0: 32 */
	uint64_t bandwidth_bytes; /* per second; 0: no limit; not for file:// */
};

struct origin; /* one volume's root, configuration and credentials; reference counted, immutable but
		  for its statistics */

/* Checks SOURCE and configuration; nothing is requested yet. 0, or -EINVAL, -ENOENT (no such
 * profile or file), … with why. */
int origin_open(struct origin_engine *engine, const struct origin_config *config,
	struct origin **ret, struct why *why);
struct origin *origin_ref(struct origin *origin);
/* NULL is allowed. Requests under way keep the origin alive. */
void origin_unref(struct origin *origin);

/*
 * The volume is going: every request of this origin that is under way ends soon with -ECANCELED,
 * and so does every later one, instead of waiting for an origin that may be out of reach. Those of
 * file:// end as they would have. Any thread, any number of times.
 */
void origin_shutdown(struct origin *origin);
/* origin_shutdown was called. */
bool origin_is_shut(const struct origin *origin);

/* SOURCE in its normal form, without credentials: what people see, and what tells two volumes
 * apart. Lives as long as the origin. */
const char *origin_source(const struct origin *origin);
/* False: a listing may lack what can be read all the same, as a web server's index does. Who misses
 * a name in it asks origin_stat. */
bool origin_lists_all(const struct origin *origin);
/* True: asking takes time on a network, so that questions at once are faster than one by one. */
bool origin_is_far(const struct origin *origin);
/* True: pages give names in the byte order of keys, a directory's with a slash at its end. */
bool origin_lists_in_order(const struct origin *origin);
/* Who asks: access key id or profile, token's subject, "anonymous", "". Never a secret. */
const char *origin_identity(const struct origin *origin);
/* Where a cache counts what its fetches of this origin hold. Lives as long as the origin. */
struct pool_share *origin_share(struct origin *origin);
/*
 * Names the object in the whole world, independent of prefix and credentials
 * ("s3://endpoint/bucket/key"), so that volumes which overlap share what is cached. 0, or
 * -ENAMETOOLONG when it does not fit.
 */
int origin_object_name(const struct origin *origin, const char *path, char *name, size_t size);

/* What the origin keeps in a request of the caller from start to done. */
struct origin_private {
	void *state;
	struct job job; /* for a done that needs no network, and for one that found no memory */
	int error;
};

/* A range of one version. */
struct origin_get {
	struct origin *origin;
	const char *path;        /* the caller keeps it until done */
	uint64_t offset, length; /* within size_bytes; length > 0 */
	struct origin_version version;
	uint64_t size_bytes; /* of the version: an answer that has another is no answer */
	enum origin_priority priority;
	/*
	 * Takes n bytes that follow the ones before. Returns how many it took; fewer than n pauses
	 * the transfer (and the stall clock) until origin_get_resume. A call after a pause repeats
	 * what was not taken. Engine thread.
	 */
	size_t (*data)(struct origin_get *get, const uint8_t *bytes, size_t n);
	/* error 0: all `length` bytes were given to data. */
	void (*done)(struct origin_get *get, int error);
	struct origin_private private;
};
void origin_get_start(struct origin_get *get);
/* Any thread, at any time between start and done: the call must return before done does, which the
 * caller gets by making it under the lock that its done takes. Never calls back. */
void origin_get_resume(struct origin_get *get);
/* The bytes are wanted sooner than they were: raises get's priority, if that is lower, and moves it
 * to the front of its new equals. Any thread, as resume. */
void origin_get_promote(struct origin_get *get, enum origin_priority priority);
/* Somebody waits for the bytes whom the origin's bandwidth_bytes is not meant for: the rest comes as
 * fast as it can, and is counted all the same. As resume. */
void origin_get_unpace(struct origin_get *get);
/* done(-ECANCELED) follows soon, unless another done is already on its way. As resume. */
void origin_get_cancel(struct origin_get *get);

/* What one path is. An object and a directory of the same name: the directory wins. */
struct origin_stat {
	struct origin *origin;
	const char *path;
	/* error 0: attr is valid. -ENOENT: neither an object nor keys below path/. */
	void (*done)(struct origin_stat *stat, int error);
	struct origin_attr attr;
	struct origin_private private;
};
void origin_stat_start(struct origin_stat *stat);

struct origin_entry {
	const char *name; /* one component, not NUL-terminated, valid during the call */
	size_t name_size;
	struct origin_attr attr;
	bool attr_known; /* false: only kind is (an HTTP index has no ETags); ask origin_stat */
};

/* One page of a directory's entries. A listing is complete when pages were asked for until
 * next_token is empty. */
struct origin_list {
	struct origin *origin;
	const char *path;
	char *token; /* NULL for the first page, else the token of the page before; the caller's */
	unsigned limit; /* most entries in a page, 0: the server's own (1,000) */
	enum origin_priority priority;
	/* In any order; the same name may come again (as a file and as a directory, or on a later
	 * page). Engine thread. */
	void (*entry)(struct origin_list *list, const struct origin_entry *entry);
	/* error 0: the page is whole. -ENOENT: the directory does not exist (no key below it); the
	 * root of a bucket always exists. */
	void (*done)(struct origin_list *list, int error);
	char *next_token; /* malloc'ed, NULL after the last page; the caller frees it */
	/* done: the server shows no names here, which says nothing about what can be opened (a web
	 * server without an index). Error 0 or -EACCES. */
	bool unlisted;
	uint64_t hidden_keys; /* keys of this page that can't be a name: "", ".", "..", longer than
				 1,023 bytes; of a directory, links and special files that aren't
				 shown */
	struct origin_private private;
};
void origin_list_start(struct origin_list *list);
/* Somebody waits for the page now: its priority becomes ORIGIN_DEMAND. As origin_get_promote. */
void origin_list_promote(struct origin_list *list);

enum origin_outcome {
	ORIGIN_OK,
	ORIGIN_NOT_FOUND,
	ORIGIN_DENIED,
	ORIGIN_CHANGED,
	ORIGIN_THROTTLED,
	ORIGIN_SERVER_ERROR,
	ORIGIN_NETWORK_ERROR,
	ORIGIN_OUTCOMES
};

struct origin_stats {
	/* Tries, not requests: each retry counts. */
	uint64_t gets[ORIGIN_OUTCOMES], heads[ORIGIN_OUTCOMES], lists[ORIGIN_OUTCOMES];
	uint64_t bytes; /* of object bodies, also of tries that failed */
	uint64_t retries;
	/* GETs without a byte that were taken to a fresh connection, GETs that were asked for a second
	 * time since they were slow, and bytes that came twice. */
	uint64_t moves, hedges, hedge_bytes;
	unsigned in_flight;
	unsigned limit;       /* GETs that it is found worth to run at once; 0 for file:// */
	bool ignores_ranges;  /* it answered one with the whole object */
	bool reachable;       /* false from a failed try until one is answered */
	char last_error[512]; /* "" when there never was one; no credentials */
	int64_t last_error_wall_ns;
};
void origin_stats(struct origin *origin, struct origin_stats *ret);
/* The same as limit of the stats. */
unsigned origin_limit(const struct origin *origin);
/* Its answers come late, as over a long way: what it is asked for one after the other takes long. */
bool origin_is_slow_to_answer(const struct origin *origin);
/* Whether its connections become slow as they are used; then short GETs, each on a connection of its
 * own, are faster than long ones. */
enum origin_aging { ORIGIN_AGING_UNKNOWN, ORIGIN_LASTS, ORIGIN_AGES };
enum origin_aging origin_aging(const struct origin *origin);
/* How long a GET took for a MiB lately, without its pauses; 0: unknown. */
uint64_t origin_mib_ns(const struct origin *origin);

#endif
