/* Reads by read(2), pread(2) and io_uring. */
#include "io.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

uint64_t io_sum(const void *data, size_t size_bytes)
{
	uint64_t sum = 0;

	for (size_t at = 0; at + sizeof(uint64_t) <= size_bytes; at += IO_PAGE)
		sum += *(const uint64_t *)((const char *)data + at);
	return sum;
}

int io_open(const struct io_job *job, uint64_t *ret_size_bytes)
{
	int fd = open(job->path, O_RDONLY | O_CLOEXEC | (job->direct ? O_DIRECT : 0));
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0) {
		int r = -errno;

		close(fd);
		return r;
	}
	*ret_size_bytes = (uint64_t)st.st_size;
	if (job->length_bytes > 0 && job->length_bytes < *ret_size_bytes)
		*ret_size_bytes = job->length_bytes;
	return fd;
}

static void count(struct io_result *result, const void *data, size_t size_bytes)
{
	result->bytes += size_bytes;
	result->ops++;
	result->sum += io_sum(data, size_bytes);
}

/* Which block a job reads next. */
struct walk {
	uint64_t size_bytes, block_bytes;
	uint64_t blocks; /* whole ones; what random reads choose from */
	bool random;
	uint64_t left; /* reads still to be made */
	uint64_t next; /* the offset, or the state of the generator (xorshift64, never 0) */
};

static struct walk walk_over(const struct io_job *job, uint64_t size_bytes, bool random)
{
	struct walk walk = {
		.size_bytes = size_bytes, .block_bytes = job->block_bytes, .random = random};

	walk.blocks = size_bytes / job->block_bytes;
	walk.left = random ? job->ops : (size_bytes + job->block_bytes - 1) / job->block_bytes;
	walk.next = random ? job->seed * 2 + 1 : 0;
	return walk;
}

static struct io_range walk_next(struct walk *walk)
{
	uint64_t offset = walk->next;

	walk->left--;
	if (walk->random) {
		walk->next ^= walk->next << 13;
		walk->next ^= walk->next >> 7;
		walk->next ^= walk->next << 17;
		offset = walk->next % walk->blocks * walk->block_bytes;
	} else {
		walk->next += walk->block_bytes;
	}
	uint64_t rest = walk->size_bytes - offset;
	return (struct io_range){.offset = offset,
		.size_bytes = rest < walk->block_bytes ? rest : walk->block_bytes};
}

/* With O_DIRECT a read asks for whole blocks also at the end of the file, and gets less. */
static size_t ask_bytes(const struct io_job *job, struct io_range range)
{
	return job->direct ? job->block_bytes : range.size_bytes;
}

static int read_blocks(
	int fd, const struct io_job *job, struct walk walk, void *buf, struct io_result *result)
{
	while (walk.left > 0) {
		struct io_range range = walk_next(&walk);
		size_t ask = ask_bytes(job, range);
		ssize_t got =
			walk.random ? pread(fd, buf, ask, (off_t)range.offset) : read(fd, buf, ask);

		if (got < 0)
			return -errno;
		if ((size_t)got < range.size_bytes)
			return -EIO;
		count(result, buf, range.size_bytes);
	}
	return 0;
}

struct slot {
	void *buf;
	struct io_range range;
};

static void ring_put(struct io_uring *ring, int fd, const struct io_job *job, struct slot *slot,
	struct walk *walk)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring); /* one a slot: there is always one */

	slot->range = walk_next(walk);
	io_uring_prep_read(
		sqe, fd, slot->buf, (unsigned)ask_bytes(job, slot->range), slot->range.offset);
	io_uring_sqe_set_data(sqe, slot);
}

/* Takes one completion that is there; the slot's next read is queued when one is left. */
static int ring_take(struct io_uring *ring, struct io_uring_cqe *cqe, int fd,
	const struct io_job *job, struct walk *walk, struct io_result *result, unsigned *under_way)
{
	struct slot *slot = io_uring_cqe_get_data(cqe);
	int got = cqe->res;

	io_uring_cqe_seen(ring, cqe);
	(*under_way)--;
	if (got < 0)
		return got;
	if ((size_t)got < slot->range.size_bytes)
		return -EIO;
	count(result, slot->buf, slot->range.size_bytes);
	if (walk->left > 0) {
		ring_put(ring, fd, job, slot, walk);
		(*under_way)++;
	}
	return 0;
}

static int ring_blocks(struct io_uring *ring, int fd, const struct io_job *job, struct walk walk,
	struct slot *slots, struct io_result *result)
{
	unsigned under_way = 0;
	int r = 0;

	for (; under_way < job->depth && walk.left > 0; under_way++)
		ring_put(ring, fd, job, &slots[under_way], &walk);
	while (under_way > 0) {
		struct io_uring_cqe *cqe;
		int s = io_uring_submit_and_wait(ring, 1);

		if (s < 0 && s != -EINTR)
			return s;
		while (io_uring_peek_cqe(ring, &cqe) == 0) {
			int t = ring_take(ring, cqe, fd, job, &walk, result, &under_way);

			if (t < 0) {
				r = r < 0 ? r : t;
				walk.left =
					0; /* let those under way end: they write to our memory */
			}
		}
	}
	return r;
}

static int blocks(const struct io_job *job, bool random, struct slot *slots, struct io_uring *ring,
	struct io_result *result)
{
	uint64_t size_bytes = 0;
	int fd = io_open(job, &size_bytes);
	int r = 0;

	if (fd < 0)
		return fd;
	for (unsigned loop = 0; r == 0 && loop < job->loops; loop++) {
		struct walk walk = walk_over(job, size_bytes, random);

		if (random && walk.blocks == 0)
			r = -EINVAL;
		else if (lseek(fd, 0, SEEK_SET) < 0)
			r = -errno;
		else if (ring)
			r = ring_blocks(ring, fd, job, walk, slots, result);
		else
			r = read_blocks(fd, job, walk, slots[0].buf, result);
	}
	close(fd);
	return r;
}

static int with_buffers(const struct io_job *job, bool random, struct io_result *result)
{
	struct slot *slots = calloc(job->depth, sizeof(*slots));
	char *memory = aligned_alloc(IO_PAGE, job->depth * job->block_bytes);
	struct io_uring ring;
	bool deep = job->depth > 1;
	int r = slots && memory ? 0 : -ENOMEM;

	for (unsigned i = 0; r == 0 && i < job->depth; i++)
		slots[i].buf = memory + i * job->block_bytes;
	if (r == 0 && deep)
		r = io_uring_queue_init(job->depth, &ring, 0);
	if (r == 0) {
		r = blocks(job, random, slots, deep ? &ring : NULL, result);
		if (deep)
			io_uring_queue_exit(&ring);
	}
	free(memory);
	free(slots);
	return r;
}

int io_sequential(const struct io_job *job, struct io_result *result)
{
	return with_buffers(job, false, result);
}

int io_random(const struct io_job *job, struct io_result *result)
{
	return with_buffers(job, true, result);
}
