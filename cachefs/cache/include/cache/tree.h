/*
 * tree: the names of one volume, as the origin lists them, remembered for a time.
 *
 * A directory is known by its whole listing: immutable, sorted, shared by reference. Who reads a
 * large one for the first time gets its names as they come. A lookup in a directory whose first LIST
 * page is all of it costs that one LIST; in a larger one, that was not listed yet, a stat of the name.
 * Concurrent requests for one directory make one LIST.
 *
 * Freshness: a listing is used for ttl; then it is asked for again. When the origin can't be
 * reached an older one goes on being used and counts as stale; an error never becomes -ENOENT, and
 * a listing ends whole or in an error, never short.
 */
#ifndef CACHE_TREE_H
#define CACHE_TREE_H

#include "base/list.h"
#include "cache/cache.h"
#include "origin/origin.h"

struct tree_config {
	uint64_t ttl_ms;          /* UINT64_MAX: immutable */
	uint64_t negative_ttl_ms; /* how long a name is remembered as missing */
};

struct tree;

int tree_new(struct cache *cache, struct origin *origin, const struct tree_config *config,
	struct tree **ret);
/* No request may be under way. NULL is allowed. */
void tree_free(struct tree *tree);

struct tree_lookup {
	struct tree *tree;
	const char *path;              /* "" is the root; the caller's until done */
	struct cache_account *account; /* whose wait it is for the origin; NULL: nobody's */
	bool revalidate; /* asks the origin whatever is remembered (option strict; an open that met
			     -ESTALE) */
	/* error: 0, -ENOENT, -EACCES, -EIO; -ENOMEM; -ECANCELED: the volume ends. */
	void (*done)(struct tree_lookup *lookup, int error);
	struct origin_attr attr; /* result */
	uint64_t fresh_ms;       /* how long this may be believed, also of -ENOENT */
	struct list link;        /* private from here */
	uint64_t waits_since_ns; /* 0: it didn't wait */
	int result;
};
void tree_lookup_start(struct tree_lookup *lookup);

/* What is remembered and fresh of a file, without asking anybody: 0, or -EAGAIN when the origin
 * would have to be asked, or -ENOENT. Never blocks. */
int tree_peek(struct tree *tree, const char *path, struct origin_attr *ret);
/* A read met another version: the path's directory is to be asked again. */
void tree_forget(struct tree *tree, const char *path);

/*
 * Names of one directory, reference counted: what is there of it never changes. One that grows gets
 * more at its end, until it is whole or fails.
 */
struct listing;
struct listing_entry {
	const char *name; /* NUL-terminated; lives as long as the listing */
	size_t name_size;
	struct origin_attr attr;
	bool attr_known; /* false: only kind is */
};

struct tree_list {
	struct tree *tree;
	const char *path;              /* of a directory; the caller's until done */
	struct cache_account *account; /* whose wait it is for the origin; NULL: nobody's */
	/* Names are wanted as they come: done may get a listing that grows. */
	bool streams;
	/* Goes on in a listing that was read before: what is remembered will do, however old. */
	bool goes_on;
	/* error: 0, -ENOENT, -ENOTDIR, -EACCES, -EIO; -EFBIG: more names than memory may hold, -ENOMEM:
	 * more than it has room for now; -ECANCELED: the volume ends. */
	void (*done)(struct tree_list *list, int error);
	struct listing *listing; /* result: one reference */
	uint64_t fresh_ms;
	struct list link; /* private from here */
	uint64_t waits_since_ns;
	int result;
};
void tree_list_start(struct tree_list *list);

/* Waits until a listing that grows has an entry of this number, or no more are to come. */
struct tree_more {
	struct tree *tree;
	struct listing *listing; /* the caller's, until done */
	size_t entry;
	struct cache_account *account; /* as of a tree_list */
	void (*done)(struct tree_more *more);
	struct list link; /* private from here */
	uint64_t waits_since_ns;
};
void tree_more_start(struct tree_more *more);

struct listing *listing_ref(struct listing *listing);
/* NULL is allowed. */
void listing_unref(struct listing *listing);
#define LISTING_GROWING 1
/* LISTING_GROWING; 0: it is whole; -errno: it is what came before the origin failed. Ask before
 * listing_count, which grows before this changes. */
int listing_state(const struct listing *listing);
size_t listing_count(const struct listing *listing);
void listing_get(const struct listing *listing, size_t i, struct listing_entry *ret);
/*
 * A place in a directory stream: behind entry i. It is found again in every listing of the directory
 * that has the entry's name, also in another life of the daemon: all names come in one order.
 * LISTING_COOKIE_MIN <= cookie <= INT64_MAX.
 */
#define LISTING_COOKIE_MIN 3
uint64_t listing_cookie(const struct listing *listing, size_t i);
/* The entry that follows the place; below LISTING_COOKIE_MIN the first. 0, or -ESTALE: this listing
 * doesn't have the name. */
int listing_seek(const struct listing *listing, uint64_t cookie, size_t *ret);

struct tree_stats {
	uint64_t hits, misses; /* lookups and lists answered from memory or index; and after asking
				  the origin */
	uint64_t stale; /* answered by a listing older than its ttl since the origin was out of
			   reach */
	uint64_t
		hidden_keys; /* keys that can't be shown as names, in the listings now remembered */
	uint64_t refused;    /* listings for which memory had no room */
	uint64_t directories, bytes; /* remembered */
};
void tree_stats(struct tree *tree, struct tree_stats *ret);

#endif
