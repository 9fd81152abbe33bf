/* What a disk takes: the bound of whatever keeps what it reads. */
#include "io.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

struct fill {
	const struct io_job *job;
	int fd;
	char *block;           /* what all of them write; no zeros, which a disk might not keep */
	_Atomic uint64_t next; /* offset of the block that nobody writes yet */
	_Atomic uint64_t nr_written;
	_Atomic int r;
};

static void *fill_main(void *arg)
{
	struct fill *fill = arg;
	size_t block_bytes = fill->job->block_bytes;

	for (;;) {
		uint64_t at = atomic_fetch_add(&fill->next, block_bytes);
		if (at >= fill->job->length_bytes)
			return NULL;
		ssize_t put = pwrite(fill->fd, fill->block, block_bytes, (off_t)at);
		if (put < 0 || (size_t)put < block_bytes) {
			atomic_store(&fill->r, put < 0 ? -errno : -EIO);
			return NULL;
		}
		atomic_fetch_add(&fill->nr_written, 1);
	}
}

static int fill_all(struct fill *fill, struct io_result *result)
{
	pthread_t *threads = calloc(fill->job->workers, sizeof(*threads));
	unsigned started = 0;
	int r = threads ? 0 : -ENOMEM;

	while (r == 0 && started < fill->job->workers) {
		r = -pthread_create(&threads[started], NULL, fill_main, fill);
		started += r == 0;
	}
	for (unsigned i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	free(threads);
	if (r == 0)
		r = atomic_load(&fill->r);
	if (r == 0 && fdatasync(fill->fd) < 0)
		r = -errno;
	result->bytes = fill->job->length_bytes;
	result->ops = atomic_load(&fill->nr_written);
	return r;
}

int io_fill(const struct io_job *job, struct io_result *result)
{
	struct fill fill = {.job = job};
	int r = 0;

	fill.fd = open(job->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_DIRECT, 0600);
	if (fill.fd < 0)
		return -errno;
	fill.block = aligned_alloc(IO_PAGE, job->block_bytes);
	for (size_t i = 0; fill.block && i < job->block_bytes; i++)
		fill.block[i] = (char)(i * 31 + i / IO_PAGE + 1);
	if (!fill.block)
		r = -ENOMEM;
	else if (ftruncate(fill.fd, (off_t)job->length_bytes) < 0)
		r = -errno;
	else
		r = fill_all(&fill, result);
	free(fill.block);
	close(fill.fd);
	return r;
}
