#include "stale.h"

#include "base/clock.h"
#include "base/hash.h"

/* The lookup in between may wait for the origin. */
#define REMEMBER_NS (60 * NS_PER_SEC)

void stale_opens_init(struct stale_opens *opens)
{
	*opens = (struct stale_opens){.slots = {{0}}};
	lock_init(&opens->lock);
}

void stale_opens_destroy(struct stale_opens *opens)
{
	lock_destroy(&opens->lock);
}

static size_t slot_of(pid_t pid, uint64_t ino)
{
	const uint64_t key[] = {(uint64_t)pid, ino};

	return hash64(key, sizeof key) % STALE_SLOTS;
}

void stale_opens_note(struct stale_opens *opens, pid_t pid, uint64_t ino)
{
	size_t i = slot_of(pid, ino);

	lock_take(&opens->lock);
	opens->slots[i].pid = pid;
	opens->slots[i].ino = ino;
	opens->slots[i].until_ns = clock_now_ns() + REMEMBER_NS;
	lock_drop(&opens->lock);
}

bool stale_opens_take(struct stale_opens *opens, pid_t pid, uint64_t ino)
{
	size_t i = slot_of(pid, ino);
	bool mine;

	lock_take(&opens->lock);
	mine = opens->slots[i].pid == pid && opens->slots[i].ino == ino &&
	       opens->slots[i].until_ns > clock_now_ns();
	if (mine)
		opens->slots[i].until_ns = 0;
	lock_drop(&opens->lock);
	return mine;
}
