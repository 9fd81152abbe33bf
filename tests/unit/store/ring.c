#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/lock.h"
#include "scratch.h"
#include "store/ring.h"

#define BLOCK 4096u

struct waiting {
	struct ring_io io;
	struct lock lock;
	struct cond wake;
	bool done;
	int result;
};

static void wake_waiting(struct ring_io *io, int result)
{
	struct waiting *waiting = container_of(io, struct waiting, io);

	lock_take(&waiting->lock);
	waiting->result = result;
	waiting->done = true;
	cond_signal(&waiting->wake);
	lock_drop(&waiting->lock);
}

static int transfer(
	struct ring *ring, enum ring_op op, int fd, void *bytes, uint32_t size, uint64_t offset)
{
	struct waiting waiting = {.io = {.op = op,
					  .fd = fd,
					  .bytes = bytes,
					  .size_bytes = size,
					  .offset = offset,
					  .done = wake_waiting}};

	lock_init(&waiting.lock);
	cond_init(&waiting.wake);
	ring_submit(ring, &waiting.io);
	lock_take(&waiting.lock);
	while (!waiting.done)
		cond_wait(&waiting.wake, &waiting.lock);
	lock_drop(&waiting.lock);
	cond_destroy(&waiting.wake);
	lock_destroy(&waiting.lock);
	return waiting.result;
}

static int scratch_file(const char *scratch, int flags)
{
	int fd = open(scratch_path(scratch, "file"), O_RDWR | O_CREAT | O_CLOEXEC | flags, 0600);

	assert_true(fd >= 0);
	return fd;
}

static void *aligned(size_t size)
{
	void *bytes = NULL;

	assert_int_equal(posix_memalign(&bytes, BLOCK, size), 0);
	return bytes;
}

static void reads_end_with_the_file(void **state)
{
	int fd = scratch_file(*state, 0);
	uint8_t *bytes = aligned(4 * BLOCK);
	struct ring *ring;

	assert_int_equal(ring_new(4, &ring), 0);
	memset(bytes, 1, 4 * BLOCK);
	assert_int_equal(transfer(ring, RING_WRITE, fd, bytes, 10000, 0), 10000);
	assert_int_equal(transfer(ring, RING_READ, fd, bytes, 4 * BLOCK, 0), 10000);
	assert_int_equal(transfer(ring, RING_READ, fd, bytes, BLOCK, 9999), 1);
	assert_int_equal(transfer(ring, RING_READ, fd, bytes, BLOCK, 10000), 0);
	assert_int_equal(transfer(ring, RING_READ, fd, bytes, BLOCK, 1 << 30), 0);
	assert_int_equal(transfer(ring, RING_READ, fd, bytes, 0, 0), 0);
	ring_free(ring);
	free(bytes);
	close(fd);
}

static void direct_reads_end_with_the_file_too(void **state)
{
	int fd = open(scratch_path(*state, "file"), O_RDWR | O_CREAT | O_CLOEXEC | O_DIRECT, 0600);
	uint8_t *bytes = aligned(4 * BLOCK);
	struct ring *ring;

	if (fd < 0) {
		free(bytes);
		print_message("[  SKIP    ] no O_DIRECT on the file system of TMPDIR\n");
		skip();
	}
	assert_int_equal(ring_new(4, &ring), 0);
	memset(bytes, 2, 4 * BLOCK);
	assert_int_equal(transfer(ring, RING_WRITE, fd, bytes, 4 * BLOCK, 0), 4 * BLOCK);
	assert_int_equal(ftruncate(fd, 2 * BLOCK + 10), 0);
	memset(bytes, 0, 4 * BLOCK);
	assert_int_equal(transfer(ring, RING_READ, fd, bytes, 4 * BLOCK, 0), 2 * BLOCK + 10);
	assert_int_equal(bytes[2 * BLOCK + 9], 2);
	assert_int_equal(transfer(ring, RING_READ, fd, bytes, 2 * BLOCK, BLOCK), BLOCK + 10);
	ring_free(ring);
	free(bytes);
	close(fd);
}

static void errors_come_back(void **state)
{
	int fd = open(scratch_path(*state, "file"), O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
	char bytes[16] = "";
	struct ring *ring;

	assert_int_equal(ring_new(1, &ring), 0);
	assert_int_equal(transfer(ring, RING_READ, -1, bytes, 16, 0), -EBADF);
	assert_int_equal(transfer(ring, RING_WRITE, fd, bytes, 16, 0), -EBADF);
	assert_int_equal(
		transfer(ring, RING_READ, fd, NULL, 16, 0), 0); /* empty: nothing to store */
	close(fd);
	fd = open("/dev/full", O_RDWR | O_CLOEXEC);
	assert_int_equal(transfer(ring, RING_WRITE, fd, bytes, 16, 0), -ENOSPC);
	close(fd);
	fd = open(*state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(transfer(ring, RING_READ, fd, bytes, 16, 0), -EISDIR);
	close(fd);
	ring_free(ring);
}

/* A pipe gives what it has: the rest is asked for until it ends. */
static void a_short_read_goes_on(void **state)
{
	uint8_t *bytes = aligned(2 * BLOCK), *pattern = aligned(2 * BLOCK);
	int fds[2];
	struct ring *ring;

	(void)state;
	for (unsigned i = 0; i < 2 * BLOCK; i++)
		pattern[i] = (uint8_t)(i * 7);
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(write(fds[1], pattern, BLOCK), BLOCK);
	close(fds[1]);
	assert_int_equal(ring_new(2, &ring), 0);
	assert_int_equal(transfer(ring, RING_READ, fds[0], bytes, 2 * BLOCK, (uint64_t)-1), BLOCK);
	assert_memory_equal(bytes, pattern, BLOCK);
	close(fds[0]);
	ring_free(ring);
	free(bytes);
	free(pattern);
}

/* A limit of file sizes stops a write in the middle, as a full disk does. */
static void a_write_that_finds_no_room_fails(void **state)
{
	int fd = scratch_file(*state, 0);
	uint8_t *bytes = aligned(4 * BLOCK);
	struct rlimit before, limit;
	struct ring *ring;

	memset(bytes, 3, 4 * BLOCK);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	limit = (struct rlimit){.rlim_cur = 2 * BLOCK, .rlim_max = before.rlim_max};
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(ring_new(2, &ring), 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_int_equal(transfer(ring, RING_WRITE, fd, bytes, 4 * BLOCK, 0), -EFBIG);
	limit.rlim_cur = 2 * BLOCK + 100;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_int_equal(transfer(ring, RING_WRITE, fd, bytes, 4 * BLOCK, 0), -ENOSPC);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(transfer(ring, RING_WRITE, fd, bytes, 4 * BLOCK, 0), 4 * BLOCK);
	signal(SIGXFSZ, SIG_DFL);
	ring_free(ring);
	free(bytes);
	close(fd);
}

#define SUBMITTERS  4
#define TRANSFERS   2000
#define REGION_SIZE (64u * BLOCK)

struct submitter {
	struct ring *ring;
	int fd;
	uint64_t base;
	unsigned seed;
	uint8_t *region; /* what the file should have at base */
	uint8_t *bytes;
	const char *wrong;
};

/* Random reads and writes of its own region, compared with a copy in memory. */
static void *submit_random(void *arg)
{
	struct submitter *s = arg;

	for (unsigned i = 0; i < TRANSFERS && !s->wrong; i++) {
		uint32_t offset = (uint32_t)rand_r(&s->seed) % REGION_SIZE;
		uint32_t size = (uint32_t)rand_r(&s->seed) % (REGION_SIZE - offset) % 20000;

		if (rand_r(&s->seed) % 2) {
			for (uint32_t j = 0; j < size; j++)
				s->region[offset + j] = (uint8_t)rand_r(&s->seed);
			if (transfer(s->ring, RING_WRITE, s->fd, s->region + offset, size,
				    s->base + offset) != (int)size)
				s->wrong = "write";
		} else if (transfer(s->ring, RING_READ, s->fd, s->bytes, size, s->base + offset) !=
				   (int)size ||
			   memcmp(s->bytes, s->region + offset, size) != 0) {
			s->wrong = "read";
		}
	}
	return NULL;
}

static void many_submitters_get_their_own_bytes(void **state)
{
	int fd = scratch_file(*state, 0);
	struct submitter submitters[SUBMITTERS];
	pthread_t threads[SUBMITTERS];
	struct ring *ring;

	assert_int_equal(ftruncate(fd, SUBMITTERS * REGION_SIZE), 0);
	assert_int_equal(ring_new(3, &ring), 0); /* fewer than submitters: some must wait */
	for (unsigned i = 0; i < SUBMITTERS; i++) {
		submitters[i] = (struct submitter){
			.ring = ring, .fd = fd, .base = i * (uint64_t)REGION_SIZE, .seed = i + 1};
		submitters[i].region = calloc(1, REGION_SIZE);
		submitters[i].bytes = calloc(1, REGION_SIZE);
		assert_int_equal(
			pthread_create(&threads[i], NULL, submit_random, &submitters[i]), 0);
	}
	for (unsigned i = 0; i < SUBMITTERS; i++) {
		pthread_join(threads[i], NULL);
		if (submitters[i].wrong)
			fail_msg("submitter %u: %s", i, submitters[i].wrong);
		free(submitters[i].region);
		free(submitters[i].bytes);
	}
	ring_free(ring);
	close(fd);
}

#define CHAINS      64
#define CHAIN_LINKS 50

struct chain {
	struct ring_io io;
	struct ring *ring;
	_Atomic unsigned *written; /* links of all chains */
	unsigned links;
	int error;
	uint8_t bytes[512];
};

/* Submits itself again from its own done, at the next offset. */
static void next_link(struct ring_io *io, int result)
{
	struct chain *chain = container_of(io, struct chain, io);

	if (result != (int)sizeof chain->bytes)
		chain->error = result;
	atomic_fetch_add(chain->written, 1);
	if (++chain->links == CHAIN_LINKS || chain->error)
		return;
	io->offset += CHAINS * sizeof chain->bytes;
	ring_submit(chain->ring, io);
}

static void done_may_submit_and_free_drains(void **state)
{
	int fd = scratch_file(*state, 0);
	struct chain *chains = calloc(CHAINS, sizeof *chains);
	_Atomic unsigned written = 0;
	struct ring *ring;
	struct stat st;

	assert_int_equal(ring_new(8, &ring), 0);
	for (unsigned i = 0; i < CHAINS; i++) {
		struct chain *chain = &chains[i];

		chain->ring = ring;
		chain->written = &written;
		memset(chain->bytes, (int)i, sizeof chain->bytes);
		chain->io = (struct ring_io){.op = RING_WRITE,
			.fd = fd,
			.bytes = chain->bytes,
			.size_bytes = sizeof chain->bytes,
			.offset = i * sizeof chain->bytes,
			.done = next_link};
		ring_submit(ring, &chain->io);
	}
	while (atomic_load(&written) < CHAINS * CHAIN_LINKS)
		sched_yield();
	ring_free(ring);
	for (unsigned i = 0; i < CHAINS; i++) {
		assert_int_equal(chains[i].error, 0);
		assert_int_equal(chains[i].links, CHAIN_LINKS);
	}
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, CHAINS * CHAIN_LINKS * sizeof chains[0].bytes);
	free(chains);
	close(fd);
}

#define scratch_test(function)                                                                     \
	cmocka_unit_test_setup_teardown(function, scratch_make, scratch_remove)

int main(void)
{
	const struct CMUnitTest tests[] = {
		scratch_test(reads_end_with_the_file),
		scratch_test(direct_reads_end_with_the_file_too),
		scratch_test(errors_come_back),
		scratch_test(a_short_read_goes_on),
		scratch_test(a_write_that_finds_no_room_fails),
		scratch_test(many_submitters_get_their_own_bytes),
		scratch_test(done_may_submit_and_free_drains),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
