/*
 * places: what an origin at a hub remembers: the commits that its revision has been, and where the
 * hub sent GETs of a version, so that not each range asks the hub.
 *
 * The caller's lock guards both.
 */
#ifndef HF_PLACES_H
#define HF_PLACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "origin/origin.h"

#define COMMIT_SIZE   41 /* SHA-1 in hexadecimal, and a NUL */
#define COMMITS_MAX   8
#define PLACES_MAX    256
#define PLACE_URL_MAX 16384

/* Lower-case hexadecimal of just that length. */
bool commit_valid(const char *text);

/* Newest first. */
struct commits {
	char sha[COMMITS_MAX][COMMIT_SIZE];
	unsigned n;
	uint64_t asked_ns; /* when the first was known to be the newest */
};
/* sha is what the revision was at asked_ns; an answer that is older than one before is not taken. */
void commits_learn(struct commits *commits, const char *sha, uint64_t asked_ns);

struct place {
	char *path, *url; /* NULL: free */
	char version[ORIGIN_VERSION_MAX];
	uint64_t used;   /* counts up: which place was needed last */
	uint64_t number; /* of this URL; never 0, never given again */
	/* The redirect said that this is the version; else the place's first answer must. */
	bool proven;
	char etag[ORIGIN_VERSION_MAX]; /* the place's own, of its first answer */
};

struct places {
	struct place all[PLACES_MAX];
	uint64_t uses;
};
void places_free(struct places *places);
/* NULL when there is none. Valid until the next put or drop. */
struct place *places_find(struct places *places, const char *path, const char *version);
/* Replaces one for the same, or the one not needed for longest. NULL: no memory. */
struct place *places_put(
	struct places *places, const char *path, const char *version, const char *url);
/* Unless it was replaced: number is the one that was found. */
void places_drop(struct places *places, const char *path, const char *version, uint64_t number);

#endif
