/*
 * adapt: how many GETs of one origin run at once.
 *
 * What counts is the throughput of all of them together, measured in samples that are as long as a
 * few round trips. A change of the limit is tried, and stays when it pays:
 *
 *     GROW   --> STEADY    more GETs gave no more, or the ceiling is reached
 *     STEADY --> UP, DOWN  in turn, after some samples
 *     UP     --> UP        a quarter more GETs gave more; else back to STEADY where it came from
 *     DOWN   --> STEADY    fewer GETs gave as much, or back to where it came from
 *     any    --> STEADY    the origin refused: half; for a while no more than was refused
 *
 * Samples in which the limit held nothing back say nothing and are skipped. No clock, no lock: the
 * caller gives the one and holds the other.
 */
#ifndef ORIGIN_ADAPT_H
#define ORIGIN_ADAPT_H

#include <stdbool.h>
#include <stdint.h>

/* From such a latency on an origin is far. */
#define ADAPT_FAR_NS 10000000ull

enum adapt_phase { ADAPT_GROW, ADAPT_STEADY, ADAPT_UP, ADAPT_DOWN };

struct adapt {
	unsigned limit; /* GETs that may run */
	unsigned least, ceiling;
	/* The rest is private. */
	enum adapt_phase phase;
	unsigned came_from;         /* the limit before a trial */
	bool went_up;               /* the last trial was UP */
	unsigned lid;               /* more than that was refused lately */
	unsigned lid_left;          /* samples for which it still is */
	unsigned skip;              /* samples until a new limit shows */
	unsigned n;                 /* samples in `sum` */
	double sum;                 /* of rates, bytes/s */
	double rate, best;          /* at came_from; the most that was seen lately */
	double last;                /* of the last whole sample */
	uint64_t latency_ns;        /* to the first byte, smoothed; 0: not known yet */
	uint64_t started_ns, bytes; /* the running sample; 0: none */
	bool held;                  /* at its start */
	uint64_t refused_ns;
};

/* 1 <= least <= ceiling. */
void adapt_init(struct adapt *adapt, unsigned least, unsigned ceiling);
/* n bytes arrived. held: GETs wait that the limit keeps from running. True when the limit changed. */
bool adapt_bytes(struct adapt *adapt, uint64_t now_ns, uint64_t n, bool held);
/* An answer's first byte came so long after it was asked for. The first one of an origin that is far
 * lets all GETs run at once: there one connection is slow, and trying takes long. True when the limit
 * changed. */
bool adapt_latency(struct adapt *adapt, uint64_t latency_ns);
/* The origin asked for less, or did not answer in time. True when the limit changed. */
bool adapt_refused(struct adapt *adapt, uint64_t now_ns);
/* The origin gives about as much as it ever did: a slow GET is slow because the others are fast. */
bool adapt_saturated(const struct adapt *adapt, uint64_t now_ns);

#endif
