#include "cache/stalls.h"

#include <string.h>

#include "base/check.h"
#include "cache/cache.h"

/* Two a decade: from a read of a fast disk to an origin's time-out. */
const uint64_t wait_bounds_ns[WAIT_BOUNDS] = {
	NS_PER_MS / 10,
	NS_PER_MS * 3 / 10,
	NS_PER_MS,
	NS_PER_MS * 3,
	NS_PER_MS * 10,
	NS_PER_MS * 30,
	NS_PER_MS * 100,
	NS_PER_MS * 300,
	NS_PER_SEC,
	NS_PER_SEC * 3,
	NS_PER_SEC * 10,
	NS_PER_SEC * 30,
	NS_PER_SEC * 100,
};

void waits_add(struct waits *waits, uint64_t wait_ns)
{
	unsigned i = 0;

	while (i < WAIT_BOUNDS && wait_ns > wait_bounds_ns[i])
		i++;
	atomic_fetch_add_explicit(&waits->counts[i], 1, memory_order_relaxed);
	if (wait_ns)
		atomic_fetch_add_explicit(&waits->sum_ns, wait_ns, memory_order_relaxed);
}

void stalls_init(struct stalls *stalls, uint64_t now_ns)
{
	*stalls = (struct stalls){.begun_ns = now_ns, .settled_ns = now_ns};
	lock_init(&stalls->lock);
}

void stalls_destroy(struct stalls *stalls)
{
	check(!stalls->waiting);
	lock_destroy(&stalls->lock);
}

static uint32_t *second_of(struct stalls *stalls, uint64_t second)
{
	return &stalls->seconds_ns[second % STALL_WINDOW_S];
}

/* The one of which there was something before this time. */
static uint64_t last_second(uint64_t now_ns)
{
	return (now_ns - 1) / NS_PER_SEC;
}

/* Counts what has passed, as stalled or not. Callers that took the time before the lock may come in
 * another order than their times: what is counted stays so. */
static void settle(struct stalls *stalls, uint64_t now_ns)
{
	uint64_t from = stalls->settled_ns, last = last_second(now_ns);

	check(lock_held(&stalls->lock));
	if (now_ns <= from)
		return;
	if (stalls->waiting)
		stalls->stalled_ns += now_ns - from;
	/* Of a long time only the window's seconds are of use. */
	if (from / NS_PER_SEC + STALL_WINDOW_S <= last)
		from = (last - STALL_WINDOW_S + 1) * NS_PER_SEC;
	while (from < now_ns) {
		uint64_t end = (from / NS_PER_SEC + 1) * NS_PER_SEC;
		uint32_t *counted = second_of(stalls, from / NS_PER_SEC);

		if (end > now_ns)
			end = now_ns;
		if (from % NS_PER_SEC == 0)
			*counted = 0; /* it was a second of a window ago */
		if (stalls->waiting)
			*counted += (uint32_t)(end - from);
		from = end;
	}
	stalls->settled_ns = now_ns;
}

void stalls_begin(struct stalls *stalls, uint64_t now_ns)
{
	lock_take(&stalls->lock);
	settle(stalls, now_ns);
	stalls->waiting++;
	lock_drop(&stalls->lock);
}

void stalls_end(struct stalls *stalls, uint64_t now_ns)
{
	lock_take(&stalls->lock);
	check(stalls->waiting);
	settle(stalls, now_ns);
	stalls->waiting--;
	lock_drop(&stalls->lock);
}

static double share_of(uint64_t stalled_ns, uint64_t whole_ns)
{
	return whole_ns ? (double)stalled_ns / (double)whole_ns : 0;
}

/* Of the last n seconds of the clock, the one that is not over included. */
static double window_share(struct stalls *stalls, uint64_t n)
{
	uint64_t last = last_second(stalls->settled_ns), stalled_ns = 0;
	uint64_t first = last + 1 > n ? last + 1 - n : 0;
	uint64_t from_ns = first * NS_PER_SEC;

	if (from_ns < stalls->begun_ns) {
		from_ns = stalls->begun_ns;
		first = from_ns / NS_PER_SEC;
	}
	for (uint64_t second = first; second <= last; second++)
		stalled_ns += *second_of(stalls, second);
	return share_of(stalled_ns, stalls->settled_ns - from_ns);
}

void stalls_look(struct stalls *stalls, uint64_t now_ns, struct stalls_seen *ret)
{
	lock_take(&stalls->lock);
	settle(stalls, now_ns);
	*ret = (struct stalls_seen){
		.waiting = stalls->waiting,
		.stalled_ns = stalls->stalled_ns,
		.share = share_of(stalls->stalled_ns, stalls->settled_ns - stalls->begun_ns),
		.share_1m = window_share(stalls, 60),
		.share_5m = window_share(stalls, STALL_WINDOW_S),
	};
	lock_drop(&stalls->lock);
}

void cache_account_init(struct cache_account *account)
{
	uint64_t now_ns = clock_now_ns();

	memset(account, 0, sizeof *account);
	stalls_init(&account->stalled_reads, now_ns);
	stalls_init(&account->stalled_names, now_ns);
}

void cache_account_destroy(struct cache_account *account)
{
	stalls_destroy(&account->stalled_reads);
	stalls_destroy(&account->stalled_names);
}
