#include "flow.h"

#include "base/clock.h"

/* Before that a rate says nothing. */
#define RATE_LEAST_NS NS_PER_SEC

void flow_init(struct flow *flow)
{
	*flow = (struct flow){0};
	lock_init(&flow->lock);
}

void flow_set(struct flow *flow, unsigned least, unsigned ceiling)
{
	adapt_init(&flow->adapt, least, ceiling);
	atomic_store(&flow->limit, flow->adapt.limit);
}

void flow_destroy(struct flow *flow)
{
	lock_destroy(&flow->lock);
}

bool flow_bytes(struct flow *flow, struct progress *progress, uint64_t now_ns, size_t n, bool held)
{
	bool changed = false;

	lock_take(&flow->lock);
	if (!progress->last_ns) {
		changed = adapt_latency(&flow->adapt, now_ns - progress->started_ns);
		atomic_store(&flow->far, flow->adapt.latency_ns >= ADAPT_FAR_NS);
		peers_latency(&flow->peers, now_ns - progress->started_ns);
	}
	peers_bytes(&flow->peers, now_ns, n);
	changed |= adapt_bytes(&flow->adapt, now_ns, n, held);
	atomic_store(&flow->limit, flow->adapt.limit);
	lock_drop(&flow->lock);
	progress->last_ns = now_ns;
	progress->bytes += n;
	return changed;
}

bool flow_begin(struct flow *flow)
{
	bool fresh;

	if (!atomic_load(&flow->far))
		return false;
	lock_take(&flow->lock);
	fresh = aging_next(&flow->aging);
	lock_drop(&flow->lock);
	return fresh;
}

static uint64_t busy_ns(const struct progress *progress, uint64_t now_ns)
{
	uint64_t ns = now_ns - progress->started_ns;

	return ns > progress->idle_ns ? ns - progress->idle_ns : 0;
}

void flow_done(struct flow *flow, const struct progress *progress, uint64_t now_ns)
{
	uint64_t took_ns = busy_ns(progress, now_ns), mib_ns;

	lock_take(&flow->lock);
	peers_part(&flow->peers, progress->bytes, took_ns);
	if (progress->bytes >= PEERS_PART_BYTES) {
		mib_ns = took_ns / (progress->bytes >> 20);
		flow->mib_ns = flow->mib_ns ? (flow->mib_ns * 7 + mib_ns) / 8 : mib_ns;
		aging_part(&flow->aging, progress->fresh, mib_ns);
		atomic_store(&flow->ages, flow->aging.fresh);
		atomic_store(&flow->lasts, aging_is_known(&flow->aging) && !flow->aging.fresh);
	}
	lock_drop(&flow->lock);
}

bool flow_refused(struct flow *flow, uint64_t now_ns)
{
	bool changed;

	lock_take(&flow->lock);
	changed = adapt_refused(&flow->adapt, now_ns);
	atomic_store(&flow->limit, flow->adapt.limit);
	lock_drop(&flow->lock);
	return changed;
}

uint64_t flow_silent_ns(const struct progress *progress, uint64_t now_ns)
{
	uint64_t since_ns = progress->last_ns ? progress->last_ns : progress->started_ns;

	if (since_ns < progress->resumed_ns)
		since_ns = progress->resumed_ns;
	return now_ns - since_ns;
}

static bool is_stalled(const struct peers *peers, const struct progress *progress, uint64_t now_ns)
{
	uint64_t silent_ns = flow_silent_ns(progress, now_ns);
	uint64_t stall_ns = peers_stall_ns(peers);

	return silent_ns >= stall_ns && peers->last_byte_ns > now_ns - silent_ns + stall_ns / 2;
}

static bool is_slow(const struct flow *flow, const struct progress *progress, uint64_t now_ns)
{
	uint64_t ns = busy_ns(progress, now_ns);

	return progress->last_ns && ns >= RATE_LEAST_NS &&
	       (double)progress->bytes * NS_PER_SEC / (double)ns <
		       (double)peers_slow_rate(&flow->peers) &&
	       !adapt_saturated(&flow->adapt, now_ns);
}

enum pace flow_pace(struct flow *flow, const struct progress *progress, uint64_t now_ns)
{
	enum pace pace = PACE_FINE;

	lock_take(&flow->lock);
	if (is_stalled(&flow->peers, progress, now_ns))
		pace = PACE_STALLED;
	else if (is_slow(flow, progress, now_ns))
		pace = PACE_SLOW;
	lock_drop(&flow->lock);
	return pace;
}

bool flow_hedge(struct flow *flow, uint64_t bytes)
{
	bool taken;

	lock_take(&flow->lock);
	taken = peers_hedge(&flow->peers, bytes);
	lock_drop(&flow->lock);
	return taken;
}

void flow_hedge_back(struct flow *flow, uint64_t bytes)
{
	lock_take(&flow->lock);
	peers_hedge_back(&flow->peers, bytes);
	lock_drop(&flow->lock);
}
