#include "store/ring.h"

#include <errno.h>
#include <limits.h>
#include <liburing.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/lock.h"
#include "base/work.h"

/* A transfer that came back short goes on from a multiple of this, or O_DIRECT would refuse it. */
#define RESUME_ALIGN 4096u

/*
 * An operation's way: incoming (any thread puts it there) -> backlog -> in flight -> done, or back
 * to backlog when it came back short. Everything but `incoming` and its two flags is the ring
 * thread's own. The thread learns of new operations by reading wake_fd through the ring itself;
 * that read has the user data NULL.
 */
struct ring {
	struct io_uring uring;
	pthread_t thread;
	unsigned entries;
	unsigned in_flight;    /* at most entries; the wake read not counted */
	struct list backlog;   /* in order */
	bool wake_armed;       /* the read of wake_fd is in flight */
	uint64_t wake_counter; /* where that read puts what nobody looks at */
	int wake_fd;

	struct lock lock;
	struct list incoming; /* lock */
	bool wake_written;    /* lock: the thread will look at incoming without another write */
	bool ending;          /* lock */
};

static uint32_t resume_at(const struct ring_io *io)
{
	return io->moved - io->moved % RESUME_ALIGN;
}

/* The caller holds the lock: so ring_free can't close wake_fd below a submitter's write, which
 * never blocks. */
static void wake(struct ring *ring)
{
	uint64_t one = 1;

	check(lock_held(&ring->lock));
	if (ring->wake_written)
		return;
	ring->wake_written = true;
	check(write(ring->wake_fd, &one, sizeof one) == sizeof one);
}

void ring_submit(struct ring *ring, struct ring_io *io)
{
	check(io->size_bytes <= INT_MAX && io->done);
	io->moved = 0;
	lock_take(&ring->lock);
	check(!ring->ending);
	list_append(&ring->incoming, &io->link);
	wake(ring);
	lock_drop(&ring->lock);
}

/* While the wake read is in flight the flag stays: the write that it stands for is still to be
 * read, and the thread comes here again after it. */
static void take_incoming(struct ring *ring)
{
	lock_take(&ring->lock);
	if (!ring->wake_armed)
		ring->wake_written = false;
	list_splice(&ring->backlog, &ring->incoming);
	lock_drop(&ring->lock);
}

static void arm_wake(struct ring *ring)
{
	struct io_uring_sqe *sqe;

	if (ring->wake_armed)
		return;
	sqe = io_uring_get_sqe(&ring->uring);
	check(sqe);
	io_uring_prep_read(sqe, ring->wake_fd, &ring->wake_counter, sizeof ring->wake_counter, 0);
	io_uring_sqe_set_data(sqe, NULL);
	ring->wake_armed = true;
}

static void start(struct ring *ring, struct ring_io *io)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->uring);
	uint32_t from = resume_at(io);
	uint8_t *bytes = io->bytes ? (uint8_t *)io->bytes + from : NULL;

	check(sqe);
	if (io->op == RING_READ)
		io_uring_prep_read(sqe, io->fd, bytes, io->size_bytes - from, io->offset + from);
	else
		io_uring_prep_write(sqe, io->fd, bytes, io->size_bytes - from, io->offset + from);
	io_uring_sqe_set_data(sqe, io);
	ring->in_flight++;
}

static void start_backlog(struct ring *ring)
{
	while (ring->in_flight < ring->entries) {
		struct list *link = list_pop(&ring->backlog);

		if (!link)
			return;
		start(ring, container_of(link, struct ring_io, link));
	}
}

static void again(struct ring *ring, struct ring_io *io)
{
	list_append(ring->backlog.next, &io->link); /* at the front: it waited already */
}

/* One completion: result is what the last piece of the transfer gave. */
static void complete(struct ring *ring, struct ring_io *io, int result)
{
	uint32_t total;

	ring->in_flight--;
	if (result == -EINTR || result == -EAGAIN) {
		again(ring, io);
		return;
	}
	if (result >= 0) {
		total = resume_at(io) + (uint32_t)result;
		if (total < io->size_bytes && total > io->moved) {
			io->moved = total;
			again(ring, io);
			return;
		}
		/* No progress: to a read the end of the file, to a write the end of the room. */
		result = io->op == RING_WRITE && total < io->size_bytes ? -ENOSPC : (int)total;
	}
	io->done(io, result);
}

static void reap(struct ring *ring)
{
	struct io_uring_cqe *cqe;

	while (io_uring_peek_cqe(&ring->uring, &cqe) == 0) {
		struct ring_io *io = io_uring_cqe_get_data(cqe);
		int result = cqe->res;

		io_uring_cqe_seen(&ring->uring, cqe);
		if (io)
			complete(ring, io, result);
		else
			ring->wake_armed = false;
	}
}

static bool finished(struct ring *ring)
{
	bool finished;

	lock_take(&ring->lock);
	finished = ring->ending && list_empty(&ring->incoming);
	lock_drop(&ring->lock);
	return finished && ring->in_flight == 0 && list_empty(&ring->backlog);
}

static void submit_and_wait(struct ring *ring)
{
	int r = io_uring_submit_and_wait(&ring->uring, 1);

	/* Short of memory: nothing is lost, the entries stay in the ring. */
	if (r == -EAGAIN || r == -EBUSY)
		sched_yield();
	else
		check(r >= 0 || r == -EINTR);
}

static void *ring_loop(void *arg)
{
	struct ring *ring = arg;

	for (;;) {
		take_incoming(ring);
		if (finished(ring))
			return NULL;
		arm_wake(ring);
		start_backlog(ring);
		submit_and_wait(ring);
		reap(ring);
	}
}

static int ring_start(struct ring *ring)
{
	int r;

	ring->wake_fd = eventfd(0, EFD_CLOEXEC);
	if (ring->wake_fd < 0)
		return -errno;
	r = io_uring_queue_init(ring->entries + 1, &ring->uring, 0);
	if (r < 0)
		goto close_wake;
	r = thread_start(&ring->thread, "store-ring", ring_loop, ring);
	if (r == 0)
		return 0;
	io_uring_queue_exit(&ring->uring);
close_wake:
	close(ring->wake_fd);
	return r;
}

int ring_new(unsigned entries, struct ring **ret)
{
	struct ring *ring = calloc(1, sizeof *ring);
	int r;

	check(entries > 0);
	if (!ring)
		return -ENOMEM;
	ring->entries = entries;
	list_init(&ring->backlog);
	list_init(&ring->incoming);
	lock_init(&ring->lock);
	r = ring_start(ring);
	if (r < 0) {
		lock_destroy(&ring->lock);
		free(ring);
		return r;
	}
	*ret = ring;
	return 0;
}

void ring_free(struct ring *ring)
{
	if (!ring)
		return;
	lock_take(&ring->lock);
	ring->ending = true;
	wake(ring);
	lock_drop(&ring->lock);
	pthread_join(ring->thread, NULL);
	io_uring_queue_exit(&ring->uring);
	close(ring->wake_fd);
	lock_destroy(&ring->lock);
	free(ring);
}
