#include "adapt.h"

#include "base/check.h"
#include "base/clock.h"

/* A sample: some round trips, within these bounds. */
#define SAMPLE_LATENCIES 4
#define SAMPLE_LEAST_NS  (50 * NS_PER_MS)
#define SAMPLE_MOST_NS   (1000 * NS_PER_MS)
/* A sample in which so much more time went by was not one: nothing ran in between. */
#define SAMPLE_VOID 4
/* Samples of one mean, of a trial and between trials. */
#define TRIAL_SAMPLES  2
#define STEADY_SAMPLES 8
/* What more GETs must give, while growing and later, and what fewer may lose. */
#define GROW_GAIN 1.10
#define UP_GAIN   1.03
#define DOWN_LOSS 0.99
/* The best rate fades with each sample, since links change. */
#define BEST_FADES      0.99
#define SATURATED_SHARE 0.85
#define LID_SAMPLES     128

void adapt_init(struct adapt *adapt, unsigned least, unsigned ceiling)
{
	check(least >= 1 && least <= ceiling);
	*adapt = (struct adapt){
		.least = least,
		.ceiling = ceiling,
		.limit = ceiling / 2 > least ? ceiling / 2 : least,
		.phase = ADAPT_GROW,
	};
}

static uint64_t sample_ns(const struct adapt *adapt)
{
	uint64_t ns = adapt->latency_ns * SAMPLE_LATENCIES;

	if (ns < SAMPLE_LEAST_NS)
		return SAMPLE_LEAST_NS;
	return ns < SAMPLE_MOST_NS ? ns : SAMPLE_MOST_NS;
}

static unsigned most(const struct adapt *adapt)
{
	return adapt->lid_left && adapt->lid < adapt->ceiling ? adapt->lid : adapt->ceiling;
}

/* A new phase begins to measure; its first sample still shows the limit before. */
static void enter(struct adapt *adapt, enum adapt_phase phase, unsigned limit)
{
	if (limit > most(adapt))
		limit = most(adapt);
	if (limit < adapt->least)
		limit = adapt->least;
	adapt->skip = limit != adapt->limit;
	adapt->limit = limit;
	adapt->phase = phase;
	adapt->n = 0;
	adapt->sum = 0;
}

/* Sets out from the limit that gave `rate`. */
static void try_limit(struct adapt *adapt, enum adapt_phase phase, double rate)
{
	unsigned up = phase == ADAPT_GROW ? adapt->limit : (adapt->limit + 3) / 4;
	unsigned down = (adapt->limit + 7) / 8;

	adapt->came_from = adapt->limit;
	adapt->rate = rate;
	adapt->went_up = phase != ADAPT_DOWN;
	if (phase == ADAPT_DOWN)
		enter(adapt, phase, adapt->limit > down ? adapt->limit - down : 1);
	else
		enter(adapt, phase, adapt->limit + up);
	if (adapt->limit == adapt->came_from)
		adapt->phase = ADAPT_STEADY;
}

static void decide(struct adapt *adapt, double rate)
{
	switch (adapt->phase) {
	case ADAPT_GROW:
		if (!adapt->came_from || rate > adapt->rate * GROW_GAIN)
			try_limit(adapt, ADAPT_GROW, rate);
		else
			enter(adapt, ADAPT_STEADY, adapt->came_from);
		break;
	case ADAPT_STEADY:
		try_limit(adapt, adapt->went_up ? ADAPT_DOWN : ADAPT_UP, rate);
		break;
	case ADAPT_UP:
		if (rate > adapt->rate * UP_GAIN)
			try_limit(adapt, ADAPT_UP, rate);
		else
			enter(adapt, ADAPT_STEADY, adapt->came_from);
		break;
	case ADAPT_DOWN:
		enter(adapt, ADAPT_STEADY,
			rate >= adapt->rate * DOWN_LOSS ? adapt->limit : adapt->came_from);
		break;
	}
}

static void note_rate(struct adapt *adapt, double rate)
{
	adapt->last = rate;
	adapt->best *= BEST_FADES;
	if (adapt->best < rate)
		adapt->best = rate;
}

/* A sample in which the limit was what held GETs back. */
static void take_sample(struct adapt *adapt, double rate)
{
	if (adapt->lid_left)
		adapt->lid_left--;
	if (adapt->skip) {
		adapt->skip--;
		return;
	}
	adapt->sum += rate;
	adapt->n++;
	if (adapt->n == (adapt->phase == ADAPT_STEADY ? STEADY_SAMPLES : TRIAL_SAMPLES))
		decide(adapt, adapt->sum / adapt->n);
}

bool adapt_bytes(struct adapt *adapt, uint64_t now_ns, uint64_t n, bool held)
{
	uint64_t length_ns = sample_ns(adapt), took_ns = now_ns - adapt->started_ns;
	unsigned before = adapt->limit;
	double rate;

	if (!adapt->started_ns || took_ns > SAMPLE_VOID * length_ns) {
		adapt->started_ns = now_ns;
		adapt->bytes = 0;
		adapt->held = held;
		return false;
	}
	adapt->bytes += n;
	if (took_ns < length_ns)
		return false;
	rate = (double)adapt->bytes * NS_PER_SEC / (double)took_ns;
	note_rate(adapt, rate);
	if (held && adapt->held)
		take_sample(adapt, rate);
	adapt->started_ns = now_ns;
	adapt->bytes = 0;
	adapt->held = held;
	return adapt->limit != before;
}

bool adapt_latency(struct adapt *adapt, uint64_t latency_ns)
{
	unsigned before = adapt->limit;

	if (!adapt->latency_ns && latency_ns >= ADAPT_FAR_NS && adapt->phase == ADAPT_GROW)
		enter(adapt, ADAPT_STEADY, adapt->ceiling);
	/* The least counts, with a way back up: what queues add is not the origin's distance. */
	if (!adapt->latency_ns || latency_ns < adapt->latency_ns)
		adapt->latency_ns = latency_ns;
	else
		adapt->latency_ns += (latency_ns - adapt->latency_ns) / 32;
	return adapt->limit != before;
}

bool adapt_refused(struct adapt *adapt, uint64_t now_ns)
{
	unsigned before = adapt->limit;

	/* What was under way at a refusal is refused too, and says nothing new. */
	if (adapt->refused_ns && now_ns - adapt->refused_ns < SAMPLE_MOST_NS)
		return false;
	adapt->refused_ns = now_ns;
	adapt->lid = before > adapt->least ? before - 1 : adapt->least;
	adapt->lid_left = LID_SAMPLES;
	adapt->went_up = false;
	enter(adapt, ADAPT_STEADY, before / 2);
	return adapt->limit != before;
}

bool adapt_saturated(const struct adapt *adapt, uint64_t now_ns)
{
	uint64_t took_ns = now_ns - adapt->started_ns;
	double rate = adapt->last;

	if (!adapt->started_ns)
		return false;
	if (took_ns >= sample_ns(adapt) / 2)
		rate = (double)adapt->bytes * NS_PER_SEC / (double)took_ns;
	return adapt->best > 0 && rate >= adapt->best * SATURATED_SHARE;
}
