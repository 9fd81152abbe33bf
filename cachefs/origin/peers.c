#include "peers.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define STALL_LEAST_NS  (2 * NS_PER_SEC)
#define STALL_MOST_NS   (15 * NS_PER_SEC)
#define STALL_LATENCIES 8
#define HEDGE_SHARE     20 /* one byte of so many */
#define HEDGE_MOST      (64u << 20)
#define SLOW_PART       2 /* of the slowest of a hundred */

static void add(struct peers_samples *samples, uint64_t value)
{
	samples->values[samples->next] = value;
	samples->next = (samples->next + 1) % PEERS_KEPT;
	if (samples->n < PEERS_KEPT)
		samples->n++;
}

static int compare(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

/* The value that so many percent of the samples don't exceed. */
static uint64_t percentile(const struct peers_samples *samples, unsigned percent)
{
	uint64_t sorted[PEERS_KEPT];

	memcpy(sorted, samples->values, samples->n * sizeof sorted[0]);
	qsort(sorted, samples->n, sizeof sorted[0], compare);
	return sorted[(samples->n - 1) * percent / 100];
}

void peers_latency(struct peers *peers, uint64_t latency_ns)
{
	add(&peers->latency_ns, latency_ns);
}

void peers_part(struct peers *peers, uint64_t bytes, uint64_t took_ns)
{
	if (bytes >= PEERS_PART_BYTES && took_ns)
		add(&peers->rates, (uint64_t)((double)bytes * NS_PER_SEC / (double)took_ns));
}

void peers_bytes(struct peers *peers, uint64_t now_ns, uint64_t n)
{
	peers->last_byte_ns = now_ns;
	/* In twentieths, so that small pieces count too. */
	peers->spare_bytes += n;
	if (peers->spare_bytes > (uint64_t)HEDGE_MOST * HEDGE_SHARE)
		peers->spare_bytes = (uint64_t)HEDGE_MOST * HEDGE_SHARE;
}

uint64_t peers_stall_ns(const struct peers *peers)
{
	uint64_t ns;

	if (peers->latency_ns.n < PEERS_LEAST)
		return STALL_MOST_NS;
	ns = percentile(&peers->latency_ns, 99) * STALL_LATENCIES;
	if (ns < STALL_LEAST_NS)
		return STALL_LEAST_NS;
	return ns < STALL_MOST_NS ? ns : STALL_MOST_NS;
}

uint64_t peers_slow_rate(const struct peers *peers)
{
	if (peers->rates.n < PEERS_LEAST)
		return 0;
	return percentile(&peers->rates, 1) / SLOW_PART;
}

bool peers_hedge(struct peers *peers, uint64_t bytes)
{
	if (bytes > peers->spare_bytes / HEDGE_SHARE)
		return false;
	peers->spare_bytes -= bytes * HEDGE_SHARE;
	return true;
}

void peers_hedge_back(struct peers *peers, uint64_t bytes)
{
	peers->spare_bytes += bytes * HEDGE_SHARE;
}
