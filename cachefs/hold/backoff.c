#include "backoff.h"

#include "base/clock.h"

#define GOOD_LIFE_NS      (2 * NS_PER_SEC)
#define SHORT_LIVES_FREE  8u
#define DELAY_MIN_MS      50u
#define SHORT_LIFE_MAX_MS 1000u
#define FAILED_MAX_MS     5000u

/* 0 up to the free ones, then doubled each time. */
static uint64_t delay_ms(unsigned times, unsigned free, uint64_t max_ms)
{
	uint64_t ms = DELAY_MIN_MS;

	if (times <= free)
		return 0;
	for (unsigned i = free + 1; i < times && ms < max_ms; i++)
		ms *= 2;
	return ms < max_ms ? ms : max_ms;
}

uint64_t backoff_after(struct backoff *backoff, uint64_t ready_ns)
{
	if (!ready_ns) {
		backoff->failed_starts++;
		return delay_ms(backoff->failed_starts, 1, FAILED_MAX_MS);
	}
	backoff->failed_starts = 0;
	backoff->short_lives = ready_ns < GOOD_LIFE_NS ? backoff->short_lives + 1 : 0;
	return delay_ms(backoff->short_lives, SHORT_LIVES_FREE, SHORT_LIFE_MAX_MS);
}
