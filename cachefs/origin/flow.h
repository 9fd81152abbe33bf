/*
 * flow: what the traffic of one origin on all loops says: how many GETs it is worth running, and
 * which of them are slower than they should be.
 *
 * Any thread; its lock is a leaf.
 */
#ifndef ORIGIN_FLOW_H
#define ORIGIN_FLOW_H

#include <stdatomic.h>

#include "base/lock.h"

#include "adapt.h"
#include "aging.h"
#include "peers.h"

struct flow {
	struct lock lock;
	struct adapt adapt;       /* lock */
	struct peers peers;       /* lock */
	struct aging aging;       /* lock */
	_Atomic unsigned limit;   /* adapt's */
	_Atomic bool far;         /* its latency is an origin's that is far */
	_Atomic bool ages, lasts; /* its connections become slow, or don't; neither: unknown */
	_Atomic uint64_t mib_ns;  /* that a GET takes for a MiB, smoothed; 0: unknown */
};

/* The bytes of one try of a GET. The loop thread's. */
struct progress {
	uint64_t started_ns;
	uint64_t last_ns;    /* of the last byte; 0: none came */
	uint64_t idle_ns;    /* paused, all in all */
	uint64_t resumed_ns; /* the end of the last pause; 0: there was none */
	uint64_t bytes;
	bool fresh; /* at its end: it had a connection of its own */
};

enum pace { PACE_FINE, PACE_STALLED, PACE_SLOW };

void flow_init(struct flow *flow);
/* Before any GET: how few and how many GETs may run. */
void flow_set(struct flow *flow, unsigned least, unsigned ceiling);
void flow_destroy(struct flow *flow);

/* A GET's try begins: true when it is to have a fresh connection. */
bool flow_begin(struct flow *flow);
/* n bytes of a GET's try arrived. True when the limit changed. */
bool flow_bytes(struct flow *flow, struct progress *progress, uint64_t now_ns, size_t n, bool held);
/* A GET's part is whole with this try, or the try failed since the origin wants fewer or gave no
 * answer in time. flow_refused: true when the limit changed. */
void flow_done(struct flow *flow, const struct progress *progress, uint64_t now_ns);
bool flow_refused(struct flow *flow, uint64_t now_ns);
/* For how long a running try that is not paused has had no byte. */
uint64_t flow_silent_ns(const struct progress *progress, uint64_t now_ns);
/* How a running try that is not paused does, beside the others. */
enum pace flow_pace(struct flow *flow, const struct progress *progress, uint64_t now_ns);
/* As peers_hedge and peers_hedge_back. */
bool flow_hedge(struct flow *flow, uint64_t bytes);
void flow_hedge_back(struct flow *flow, uint64_t bytes);

#endif
