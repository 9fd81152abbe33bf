#include "base/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/lock.h"

#define HUGE_PAGE (2u << 20)

struct pool {
	struct lock lock;
	struct list free;       /* lock */
	struct list waiters[2]; /* lock; by enum pool_use */
	size_t held[2];         /* lock; by enum pool_use */
	size_t n_waiters;       /* lock */
	size_t n_buffers, fetch_limit;
	uint8_t *memory; /* in mapped, from a huge page's begin on */
	void *mapped;
	size_t mapped_size;
	struct pool_buffer buffers[];
};

/* In huge pages where the kernel has them: every byte is taken apart into pages twice, for FUSE and
 * for O_DIRECT. */
static int map_memory(struct pool *pool, size_t n_buffers)
{
	size_t size = n_buffers * POOL_BUFFER_SIZE + HUGE_PAGE;
	uint8_t *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (mapped == MAP_FAILED)
		return -errno;
	pool->mapped = mapped;
	pool->mapped_size = size;
	pool->memory = mapped + (-(uintptr_t)mapped & (HUGE_PAGE - 1));
	madvise(pool->memory, n_buffers * POOL_BUFFER_SIZE, MADV_HUGEPAGE);
	return 0;
}

int pool_new(size_t n_buffers, struct pool **ret)
{
	struct pool *pool;
	int r;

	check(n_buffers >= 8);
	pool = calloc(1, sizeof *pool + n_buffers * sizeof pool->buffers[0]);
	if (!pool)
		return -ENOMEM;
	r = map_memory(pool, n_buffers);
	if (r) {
		free(pool);
		return r;
	}
	lock_init(&pool->lock);
	list_init(&pool->free);
	list_init(&pool->waiters[POOL_FETCH]);
	list_init(&pool->waiters[POOL_READ]);
	pool->n_buffers = n_buffers;
	pool->fetch_limit = n_buffers - n_buffers / 4;
	for (size_t i = 0; i < n_buffers; i++) {
		struct pool_buffer *buffer = &pool->buffers[i];

		buffer->pool = pool;
		buffer->bytes = pool->memory + i * POOL_BUFFER_SIZE;
		list_append(&pool->free, &buffer->link);
	}
	*ret = pool;
	return 0;
}

void pool_free(struct pool *pool)
{
	if (!pool)
		return;
	check(pool->held[POOL_FETCH] == 0 && pool->held[POOL_READ] == 0 && pool->n_waiters == 0);
	munmap(pool->mapped, pool->mapped_size);
	lock_destroy(&pool->lock);
	free(pool);
}

/* A share that holds nothing gets one if there is any, however many others there are. */
static bool is_allowed(struct pool *pool, enum pool_use use, const struct pool_share *share)
{
	size_t left = pool->fetch_limit - pool->held[POOL_FETCH];

	check(lock_held(&pool->lock));
	return use == POOL_READ || share->held < left || (!share->held && left);
}

static struct pool_buffer *take(struct pool *pool, enum pool_use use, struct pool_share *share)
{
	struct pool_buffer *buffer;
	struct list *link;

	if (!is_allowed(pool, use, share))
		return NULL;
	link = list_pop(&pool->free);
	if (!link)
		return NULL;
	buffer = container_of(link, struct pool_buffer, link);
	check(buffer->refs == 0);
	buffer->refs = 1;
	buffer->use = use;
	buffer->share = share;
	pool->held[use]++;
	if (share)
		share->held++;
	return buffer;
}

/* The buffer is no longer held for its use. */
static void give_back(struct pool *pool, struct pool_buffer *buffer)
{
	check(lock_held(&pool->lock));
	pool->held[buffer->use]--;
	if (buffer->share)
		buffer->share->held--;
	buffer->share = NULL;
}

static void dequeue(struct pool *pool, struct pool_waiter *waiter)
{
	check(lock_held(&pool->lock));
	list_remove(&waiter->link);
	pool->n_waiters--;
	if (waiter->share)
		waiter->share->waiting--;
}

/* The next waiter that can be served, with its buffer; reads first. NULL when there is none. */
static struct pool_waiter *serve(struct pool *pool, struct pool_buffer **ret_buffer)
{
	static const enum pool_use order[] = {POOL_READ, POOL_FETCH};

	check(lock_held(&pool->lock));
	for (int i = 0; i < 2; i++) {
		if (list_empty(&pool->free))
			return NULL;
		list_for_each (link, &pool->waiters[order[i]]) {
			struct pool_waiter *waiter = container_of(link, struct pool_waiter, link);

			*ret_buffer = take(pool, waiter->use, waiter->share);
			if (!*ret_buffer)
				continue;
			dequeue(pool, waiter);
			return waiter;
		}
	}
	return NULL;
}

static void serve_all(struct pool *pool)
{
	for (;;) {
		struct pool_buffer *buffer = NULL;
		struct pool_waiter *waiter;

		lock_take(&pool->lock);
		waiter = serve(pool, &buffer);
		lock_drop(&pool->lock);
		if (!waiter)
			return;
		waiter->got(waiter, buffer);
	}
}

struct pool_buffer *pool_try_get(struct pool *pool, enum pool_use use, struct pool_share *share)
{
	struct pool_buffer *buffer = NULL;

	check((use == POOL_FETCH) == !!share);
	lock_take(&pool->lock);
	if (share ? !share->waiting : list_empty(&pool->waiters[use]))
		buffer = take(pool, use, share);
	lock_drop(&pool->lock);
	return buffer;
}

bool pool_lacks_free(struct pool *pool, enum pool_use use, const struct pool_share *share)
{
	bool lacks;

	lock_take(&pool->lock);
	lacks = is_allowed(pool, use, share);
	lock_drop(&pool->lock);
	return lacks;
}

void pool_wait(struct pool *pool, struct pool_waiter *waiter)
{
	check((waiter->use == POOL_FETCH) == !!waiter->share);
	lock_take(&pool->lock);
	list_append(&pool->waiters[waiter->use], &waiter->link);
	pool->n_waiters++;
	if (waiter->share)
		waiter->share->waiting++;
	lock_drop(&pool->lock);
	serve_all(pool);
}

bool pool_cancel(struct pool *pool, struct pool_waiter *waiter)
{
	bool queued = false;

	lock_take(&pool->lock);
	list_for_each (link, &pool->waiters[waiter->use]) {
		if (link == &waiter->link) {
			queued = true;
			break;
		}
	}
	if (queued)
		dequeue(pool, waiter);
	lock_drop(&pool->lock);
	return queued;
}

bool pool_wanted(struct pool *pool)
{
	bool wanted;

	lock_take(&pool->lock);
	wanted = !list_empty(&pool->waiters[POOL_READ]);
	if (!wanted) {
		list_for_each (link, &pool->waiters[POOL_FETCH]) {
			struct pool_waiter *waiter = container_of(link, struct pool_waiter, link);

			wanted = is_allowed(pool, POOL_FETCH, waiter->share);
			if (wanted)
				break;
		}
	}
	lock_drop(&pool->lock);
	return wanted;
}

struct pool_buffer *pool_buffer_ref(struct pool_buffer *buffer)
{
	struct pool *pool = buffer->pool;

	lock_take(&pool->lock);
	check(buffer->refs > 0);
	buffer->refs++;
	lock_drop(&pool->lock);
	return buffer;
}

void pool_buffer_unref(struct pool_buffer *buffer)
{
	struct pool *pool;
	bool last;

	if (!buffer)
		return;
	pool = buffer->pool;
	lock_take(&pool->lock);
	check(buffer->refs > 0);
	last = --buffer->refs == 0;
	if (last) {
		give_back(pool, buffer);
		/* First out again: it is in the processor's cache. */
		list_append(pool->free.next, &buffer->link);
	}
	lock_drop(&pool->lock);
	if (last)
		serve_all(pool);
}

void pool_buffer_fetched(struct pool_buffer *buffer)
{
	struct pool *pool = buffer->pool;

	lock_take(&pool->lock);
	check(buffer->refs > 0 && buffer->use == POOL_FETCH);
	give_back(pool, buffer);
	buffer->use = POOL_READ;
	pool->held[POOL_READ]++;
	lock_drop(&pool->lock);
	serve_all(pool);
}

void pool_stats(struct pool *pool, struct pool_stats *ret)
{
	lock_take(&pool->lock);
	*ret = (struct pool_stats){
		.buffers = pool->n_buffers,
		.in_use = pool->held[POOL_FETCH] + pool->held[POOL_READ],
		.in_fetch = pool->held[POOL_FETCH],
		.waiters = pool->n_waiters,
	};
	lock_drop(&pool->lock);
}
