/*
 * stragglers: running GETs that fall behind the others of their origin.
 *
 * One without a byte for long, while others get theirs, is moved to a fresh connection. One that
 * trickles is hedged: a second request asks for what is missing, on another connection; whichever
 * has the next byte gives it, and whoever gives the last one ends both. A link that the others fill
 * makes no stragglers. What is asked for twice stays below a twentieth of all bytes.
 */
#ifndef ORIGIN_STRAGGLERS_H
#define ORIGIN_STRAGGLERS_H

#include "loop.h"

/* Looks at the loop's running GETs, if it is time. Calls nobody back. Loop thread. */
void stragglers_look(struct loop *loop, uint64_t now_ns);
/* When it is time again; UINT64_MAX: nothing runs. */
uint64_t stragglers_due_ns(const struct loop *loop);

#endif
