/*
 * peers: what is usual for the GETs of one origin, so that one of them that isn't can be told.
 *
 * No clock, no lock: as in adapt.h.
 */
#ifndef ORIGIN_PEERS_H
#define ORIGIN_PEERS_H

#include <stdbool.h>
#include <stdint.h>

#define PEERS_KEPT  128
#define PEERS_LEAST 16 /* samples below which nothing is usual */
/* Parts below this have no rate: they are all latency. */
#define PEERS_PART_BYTES (1u << 20)

struct peers_samples {
	uint64_t values[PEERS_KEPT]; /* the last ones, in any order */
	unsigned n, next;
};

struct peers {
	struct peers_samples latency_ns; /* to the first byte */
	struct peers_samples rates;      /* of parts that finished, bytes/s */
	uint64_t spare_bytes;            /* that may be asked for twice; see peers_hedge */
	uint64_t last_byte_ns;           /* of any GET */
};

void peers_latency(struct peers *peers, uint64_t latency_ns);
void peers_part(struct peers *peers, uint64_t bytes, uint64_t took_ns);
void peers_bytes(struct peers *peers, uint64_t now_ns, uint64_t n);

/* How long a GET may be without a byte while others get theirs. */
uint64_t peers_stall_ns(const struct peers *peers);
/* A rate below which a GET is no peer of the others; 0: too few are known. */
uint64_t peers_slow_rate(const struct peers *peers);
/* Takes `bytes` of what may be asked for twice, a twentieth of all bytes; false: too few are left.
 * What was not needed of them is given back. */
bool peers_hedge(struct peers *peers, uint64_t bytes);
void peers_hedge_back(struct peers *peers, uint64_t bytes);

#endif
