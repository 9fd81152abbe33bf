#include "trouble.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "whole.h"

#define TROUBLE_NS (10 * NS_PER_SEC)

/* Not the disk's: too little of something, which passes, or which eviction sees to. */
static bool is_shortage(int error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM || error == -ENOSPC ||
	       error == -EDQUOT;
}

static bool is_of_medium(int error)
{
	switch (error) {
	case -EIO:
	case -ENODEV:
	case -ENXIO:
	case -ESHUTDOWN:
		return true;
	default:
		return false;
	}
}

void trouble_note(struct cache *cache, const char *event, const char *object, int error)
{
	struct trouble *trouble = &cache->trouble;
	uint64_t now = clock_now_ns();
	bool silent = false;

	atomic_fetch_add(&cache->counters.store_errors, 1);
	if (is_shortage(error))
		silent = atomic_exchange(&trouble->short_until_ns, now + TROUBLE_NS) > now;
	else
		silent = atomic_exchange(&trouble->unwritable_until_ns, now + TROUBLE_NS) > now;
	if (is_of_medium(error))
		silent &= atomic_exchange(&trouble->unreadable_until_ns, now + TROUBLE_NS) > now;
	if (!silent)
		log_error(event, "object=%s error=%s", object, strerror(-error));
}

bool trouble_forbids_writes(struct cache *cache)
{
	return clock_now_ns() < atomic_load(&cache->trouble.unwritable_until_ns);
}

bool trouble_forbids_passthrough(struct cache *cache)
{
	return clock_now_ns() < atomic_load(&cache->trouble.unreadable_until_ns);
}
