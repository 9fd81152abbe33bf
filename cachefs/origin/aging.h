/*
 * aging: whether the connections to an origin become slow as they are used.
 *
 * On a way that is long and loses packets now and then, a connection sends more and more until it
 * loses the first one, and a fraction of that from then on. There a GET is faster on a connection of
 * its own, with all that making one costs. Elsewhere it is slower: so both are measured, and the
 * faster is used. Now and then a GET takes the other kind, since ways change; not where used
 * connections are fast.
 *
 * No clock, no lock: as in adapt.h.
 */
#ifndef ORIGIN_AGING_H
#define ORIGIN_AGING_H

#include <stdbool.h>
#include <stdint.h>

struct aging {
	/* The rest is private but for `fresh`. */
	uint64_t fresh_ns, used_ns; /* that a MiB takes, smoothed; 0: unknown */
	unsigned n;                 /* GETs since one of the other kind */
	bool fresh;                 /* GETs are faster on connections of their own */
};

/* Zeroed at first. */

/* A used connection was measured. */
bool aging_is_known(const struct aging *aging);
/* A GET begins: true when it is to have a fresh connection. */
bool aging_next(struct aging *aging);
/* A part of a MiB or more came in whole, on a fresh connection or a used one. */
void aging_part(struct aging *aging, bool fresh, uint64_t mib_ns);

#endif
