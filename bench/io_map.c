/* Reads by page fault. */
#include "io.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

static int touch(
	const char *map, uint64_t size_bytes, struct io_range range, struct io_result *result)
{
	if (range.offset > size_bytes || range.size_bytes > size_bytes - range.offset)
		return -ERANGE;
	/* From page to page, whatever the alignment of the range. */
	uint64_t first = range.offset / IO_PAGE * IO_PAGE;
	uint64_t end = range.offset + range.size_bytes;

	result->sum += io_sum(map + first, end - first);
	result->bytes += range.size_bytes;
	result->ops += (end - first + IO_PAGE - 1) / IO_PAGE;
	return 0;
}

static int touch_all(
	const struct io_job *job, const char *map, uint64_t size_bytes, struct io_result *result)
{
	int r = 0;

	if (!job->ranges)
		return touch(map, size_bytes, (struct io_range){0, size_bytes}, result);
	for (size_t i = 0; r == 0 && i < job->nr_ranges; i++)
		r = touch(map, size_bytes, job->ranges[i], result);
	return r;
}

static int map_once(const struct io_job *job, int fd, uint64_t size_bytes, struct io_result *result)
{
	char *map = mmap(NULL, size_bytes, PROT_READ, MAP_SHARED, fd, 0);

	if (map == MAP_FAILED)
		return -errno;
	int r = touch_all(job, map, size_bytes, result);
	munmap(map, size_bytes);
	return r;
}

int io_mapped(const struct io_job *job, struct io_result *result)
{
	uint64_t size_bytes = 0;
	int fd = io_open(job, &size_bytes);
	int r = 0;

	if (fd < 0)
		return fd;
	for (unsigned loop = 0; r == 0 && loop < job->loops; loop++)
		r = map_once(job, fd, size_bytes, result);
	close(fd);
	return r;
}
