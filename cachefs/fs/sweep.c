#include "sweep.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/work.h"
#include "fs.h"

#define EVERY_NS           (60 * NS_PER_SEC)
#define AT_ONCE            256
#define PRUNE_PAUSE_NS     (50 * NS_PER_MS)
#define PRUNE_PAUSE_MAX_NS (10 * NS_PER_SEC)
/* The kernel counts ids up, so one that was given out and not noted is near the last that was. */
#define BACKING_MARGIN 4096

static int int_order(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;

	return (x > y) - (x < y);
}

int sweep_backing(struct fs *fs)
{
	int last = table_last_backing(fs->table), id;
	int from = last > BACKING_MARGIN ? last - BACKING_MARGIN : 1;
	int to = last < INT_MAX - BACKING_MARGIN ? last + BACKING_MARGIN : INT_MAX - 1;
	_cleanup_(freep) int *owned = NULL;
	size_t n;
	int r = nodes_backing_ids(&fs->nodes, &owned, &n);

	if (r)
		return r;
	qsort(owned, n, sizeof *owned, int_order);
	for (id = from; id <= to; id++) {
		if (!bsearch(&id, owned, n, sizeof *owned, int_order))
			session_backing_close(fs->session, id);
	}
	while ((id = table_closing_take(fs->table))) {
		if (!bsearch(&id, owned, n, sizeof *owned, int_order))
			session_backing_close(fs->session, id);
	}
	return 0;
}

/* The kernel has no inode of it: nothing of it is open, and nobody will forget it. */
static void drop_node(struct fs *fs, struct node *node)
{
	struct handle *handle;

	while ((handle = handles_take_of(&fs->handles, node))) {
		fs_unclaim(fs, node, handle->mode);
		handle_put(&fs->handles, handle);
	}
	node_put(&fs->nodes, node);
}

void sweep_nodes(struct fs *fs)
{
	struct doubt doubts[AT_ONCE];
	uint64_t dropped = 0;
	uint32_t at = 0;
	size_t n;

	while ((n = nodes_pick_doubtful(&fs->nodes, &at, doubts, AT_ONCE))) {
		for (size_t i = 0; i < n; i++) {
			struct node *node = NULL;

			if (session_probe_node(fs->session, doubts[i].id) == -ENOENT)
				node = nodes_take_unknown(&fs->nodes, &doubts[i]);
			if (!node)
				continue;
			drop_node(fs, node);
			dropped++;
		}
	}
	table_drop_old_results(fs->table);
	if (dropped)
		log_info("nodes_swept", "count=%llu", (unsigned long long)dropped);
}

/* False: nodes can't be pruned. */
static bool work(struct fs *fs, bool crowded, bool due)
{
	if (due)
		sweep_nodes(fs);
	return !crowded || prune_nodes(fs);
}

/* After a prune: FORGETs take a moment to come. As long as it helps the next one comes soon; what the
 * kernel has in use it can't forget. The caller holds the sweeper's lock. */
static void pause_pruning(struct fs *fs, uint64_t *pause_ns)
{
	struct sweeper *sweeper = &fs->sweeper;
	uint64_t until_ns = clock_now_ns() + *pause_ns;

	while (!sweeper->ending && !cond_wait_until(&sweeper->changed, &sweeper->lock, until_ns))
		continue;
	sweeper->crowded = !nodes_are_plenty(&fs->nodes);
	if (!sweeper->crowded)
		*pause_ns = PRUNE_PAUSE_NS;
	else if (*pause_ns < PRUNE_PAUSE_MAX_NS)
		*pause_ns *= 2;
}

static void *sweep(void *arg)
{
	struct fs *fs = arg;
	struct sweeper *sweeper = &fs->sweeper;
	bool can_prune = true;
	/* Of the first daemon that serves a mount nothing is in doubt. */
	uint64_t next_ns = fs->taken_over ? clock_now_ns() + EVERY_NS : UINT64_MAX;
	uint64_t pause_ns = PRUNE_PAUSE_NS;

	lock_take(&sweeper->lock);
	while (!sweeper->ending) {
		bool crowded = sweeper->crowded && can_prune, due = clock_now_ns() >= next_ns;

		if (!crowded && !due) {
			cond_wait_until(&sweeper->changed, &sweeper->lock, next_ns);
			continue;
		}
		lock_drop(&sweeper->lock);
		if (due)
			next_ns += EVERY_NS;
		can_prune = work(fs, crowded, due) && can_prune;
		lock_take(&sweeper->lock);
		if (crowded)
			pause_pruning(fs, &pause_ns);
	}
	sweeper->running = false;
	cond_broadcast(&sweeper->changed);
	lock_drop(&sweeper->lock);
	return NULL;
}

void sweeper_wake(struct sweeper *sweeper)
{
	lock_take(&sweeper->lock);
	if (!sweeper->crowded)
		cond_broadcast(&sweeper->changed);
	sweeper->crowded = true;
	lock_drop(&sweeper->lock);
}

void sweeper_init(struct sweeper *sweeper)
{
	*sweeper = (struct sweeper){0};
	lock_init(&sweeper->lock);
	cond_init(&sweeper->changed);
}

int sweeper_start(struct sweeper *sweeper, struct fs *fs)
{
	int r;

	lock_take(&sweeper->lock);
	r = thread_start(&sweeper->thread, "cachefs-sweep", sweep, fs);
	sweeper->started = sweeper->running = !r;
	lock_drop(&sweeper->lock);
	return r;
}

void sweeper_end(struct sweeper *sweeper)
{
	lock_take(&sweeper->lock);
	sweeper->ending = true;
	cond_broadcast(&sweeper->changed);
	while (sweeper->running)
		cond_wait(&sweeper->changed, &sweeper->lock);
	lock_drop(&sweeper->lock);
}

void sweeper_free(struct sweeper *sweeper)
{
	if (sweeper->started)
		pthread_join(sweeper->thread, NULL);
	cond_destroy(&sweeper->changed);
	lock_destroy(&sweeper->lock);
}
