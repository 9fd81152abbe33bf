/* Many readers of one file: threads that share a descriptor, processes that open it at once. */
#include "io.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct slice {
	pthread_t thread;
	const struct io_job *job;
	int fd;
	struct io_range range;
	struct io_result result; /* the thread's until it is joined */
	int r;
};

static int read_slice(struct slice *slice, void *buf)
{
	uint64_t at = slice->range.offset, end = at + slice->range.size_bytes;

	while (at < end) {
		size_t ask =
			end - at < slice->job->block_bytes ? end - at : slice->job->block_bytes;
		ssize_t got = pread(slice->fd, buf, ask, (off_t)at);

		if (got < 0)
			return -errno;
		if ((size_t)got < ask)
			return -EIO;
		slice->result.sum += io_sum(buf, ask);
		slice->result.bytes += ask;
		slice->result.ops++;
		at += ask;
	}
	return 0;
}

static void *slice_main(void *arg)
{
	struct slice *slice = arg;
	void *buf = aligned_alloc(IO_PAGE, slice->job->block_bytes);

	slice->r = buf ? read_slice(slice, buf) : -ENOMEM;
	free(buf);
	return NULL;
}

/* Slices of whole blocks; the last one takes the rest. */
static struct io_range slice_of(const struct io_job *job, uint64_t size_bytes, unsigned i)
{
	uint64_t blocks = (size_bytes + job->block_bytes - 1) / job->block_bytes;
	uint64_t first = blocks * i / job->workers * job->block_bytes;
	uint64_t end = blocks * (i + 1) / job->workers * job->block_bytes;

	return (struct io_range){first, (end < size_bytes ? end : size_bytes) - first};
}

int io_parallel(const struct io_job *job, struct io_result *result)
{
	uint64_t size_bytes = 0;
	int fd = io_open(job, &size_bytes);
	unsigned started = 0;
	int r = 0;

	if (fd < 0)
		return fd;
	struct slice *slices = calloc(job->workers, sizeof(*slices));
	if (!slices)
		r = -ENOMEM;
	for (; r == 0 && started < job->workers; started++) {
		struct slice *slice = &slices[started];

		*slice = (struct slice){
			.job = job, .fd = fd, .range = slice_of(job, size_bytes, started)};
		r = -pthread_create(&slice->thread, NULL, slice_main, slice);
		if (r < 0)
			break;
	}
	for (unsigned i = 0; i < started; i++) {
		pthread_join(slices[i].thread, NULL);
		result->bytes += slices[i].result.bytes;
		result->ops += slices[i].result.ops;
		result->sum += slices[i].result.sum;
		r = r < 0 ? r : slices[i].r;
	}
	free(slices);
	close(fd);
	return r;
}

/* A child waits until the parent closes the other end of the gate, so that all open at once. */
static void opener_main(const struct io_job *job, const int gate[2], struct io_result *result)
	__attribute__((noreturn));

static void opener_main(const struct io_job *job, const int gate[2], struct io_result *result)
{
	char none;

	/* A driver that is stopped kills our parent only. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(gate[1]);
	if (read(gate[0], &none, 1) != 0)
		_exit(EXIT_FAILURE);
	int r = io_sequential(job, result);
	_exit(r < 0 ? -r : EXIT_SUCCESS);
}

static int wait_for(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	if (!WIFEXITED(status))
		return -EINTR;
	return -WEXITSTATUS(status);
}

static int add_openers(
	const struct io_job *job, const struct io_result *each, struct io_result *result)
{
	for (unsigned i = 0; i < job->workers; i++) {
		if (each[i].sum != each[0].sum || each[i].bytes != each[0].bytes)
			return -EILSEQ;
		result->bytes += each[i].bytes;
		result->ops += each[i].ops;
	}
	result->sum = each[0].sum;
	return 0;
}

/* Starts the processes, opens the gate, and waits for all that were started. */
static int run_openers(const struct io_job *job, pid_t *pids, struct io_result *each)
{
	unsigned started = 0;
	int gate[2];
	int r = 0;

	if (pipe(gate) < 0)
		return -errno;
	for (; started < job->workers; started++) {
		pids[started] = fork();
		if (pids[started] == 0)
			opener_main(job, gate, &each[started]);
		if (pids[started] < 0) {
			r = -errno;
			break;
		}
	}
	close(gate[0]);
	close(gate[1]);
	for (unsigned i = 0; i < started; i++) {
		int s = wait_for(pids[i]);

		r = r < 0 ? r : s;
	}
	return r;
}

int io_openers(const struct io_job *job, struct io_result *result)
{
	size_t each_bytes = job->workers * sizeof(struct io_result);
	struct io_result *each =
		mmap(NULL, each_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t *pids = calloc(job->workers, sizeof(*pids));
	int r = each == MAP_FAILED || !pids ? -ENOMEM : run_openers(job, pids, each);

	if (r == 0)
		r = add_openers(job, each, result);
	free(pids);
	if (each != MAP_FAILED)
		munmap(each, each_bytes);
	return r;
}
