#include "stale.h"

#include "base/clock.h"
#include "base/hash.h"

/* The lookup in between may wait for the origin. */
#define REMEMBER_S 60
#define SETTLING   1ull

void stale_opens_init(struct stale_opens *opens, struct stale_slot *slots)
{
	opens->slots = slots;
	lock_init(&opens->lock);
}

void stale_opens_destroy(struct stale_opens *opens)
{
	lock_destroy(&opens->lock);
}

/* Of the machine, so that it means the same to a successor. */
static uint32_t now_s(void)
{
	return (uint32_t)(clock_now_ns() / NS_PER_SEC);
}

static uint64_t hash_of(pid_t pid, uint64_t ino)
{
	const uint64_t key[] = {(uint64_t)pid, ino};

	return hash64(key, sizeof key);
}

static bool is_over(uint64_t tag)
{
	return (uint32_t)tag <= now_s();
}

static struct stale_slot *set_of(struct stale_opens *opens, uint64_t hash)
{
	return &opens->slots[hash % (STALE_SLOTS / STALE_WAYS) * STALE_WAYS];
}

static struct stale_slot *find(struct stale_opens *opens, uint64_t hash)
{
	struct stale_slot *set = set_of(opens, hash);

	for (unsigned i = 0; i < STALE_WAYS; i++) {
		uint64_t tag = atomic_load(&set[i].tag);

		if (tag && tag >> 32 == hash >> 32 && !is_over(tag))
			return &set[i];
	}
	return NULL;
}

/* A free one, else the one that ends first: forgotten too early, it costs an ESTALE that an
 * application sees only if its second try has a reason of its own. */
static struct stale_slot *place(struct stale_opens *opens, uint64_t hash)
{
	struct stale_slot *set = set_of(opens, hash), *best = set;

	for (unsigned i = 1; i < STALE_WAYS; i++) {
		if ((uint32_t)atomic_load(&set[i].tag) < (uint32_t)atomic_load(&best->tag))
			best = &set[i];
	}
	return best;
}

void stale_opens_note(struct stale_opens *opens, pid_t pid, uint64_t ino, uint64_t unique)
{
	uint64_t hash = hash_of(pid, ino);
	struct stale_slot *slot;

	lock_take(&opens->lock);
	slot = find(opens, hash);
	if (!slot)
		slot = place(opens, hash);
	atomic_store(&slot->tag, 0);
	atomic_store(&slot->unique, unique);
	atomic_store(&slot->tag, hash >> 32 << 32 | (now_s() + REMEMBER_S));
	lock_drop(&opens->lock);
}

static enum stale_try try_of(struct stale_slot *slot, uint64_t unique)
{
	uint64_t known = slot ? atomic_load(&slot->unique) : 0;

	if (!slot)
		return STALE_FIRST;
	if ((known & ~SETTLING) == unique)
		return known & SETTLING ? STALE_SECOND : STALE_SAME;
	if (known & SETTLING) {
		/* That try has had its answer. */
		atomic_store(&slot->tag, 0);
		return STALE_FIRST;
	}
	atomic_store(&slot->unique, unique | SETTLING);
	return STALE_SECOND;
}

enum stale_try stale_opens_try(struct stale_opens *opens, pid_t pid, uint64_t ino, uint64_t unique)
{
	enum stale_try result;

	lock_take(&opens->lock);
	result = try_of(find(opens, hash_of(pid, ino)), unique);
	lock_drop(&opens->lock);
	return result;
}
