#include "aging.h"

#include "base/clock.h"

/* Every how many GETs take the other kind. */
#define TRIAL_EVERY 16
/* A used connection that gives a MiB within that is fast enough. */
#define FAST_MIB_NS (300 * NS_PER_MS)
/* How a mean follows what comes: an eighth. */
#define SMOOTH 8

bool aging_is_known(const struct aging *aging)
{
	return aging->used_ns;
}

bool aging_next(struct aging *aging)
{
	bool trial = aging->n + 1 >= TRIAL_EVERY && (aging->fresh || aging->used_ns > FAST_MIB_NS);

	aging->n = trial ? 0 : aging->n + 1;
	return aging->fresh != trial;
}

static void smooth(uint64_t *mean, uint64_t value)
{
	*mean = *mean ? (*mean * (SMOOTH - 1) + value) / SMOOTH : value;
}

void aging_part(struct aging *aging, bool fresh, uint64_t mib_ns)
{
	smooth(fresh ? &aging->fresh_ns : &aging->used_ns, mib_ns);
	if (!aging->fresh_ns || !aging->used_ns)
		return;
	/* A quarter better, so that nothing changes for a difference that is noise. */
	if (aging->fresh)
		aging->fresh = aging->used_ns > aging->fresh_ns;
	else
		aging->fresh = aging->used_ns > FAST_MIB_NS &&
			       aging->fresh_ns + aging->fresh_ns / 4 < aging->used_ns;
}
