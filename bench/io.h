/*
 * io: the timed reads of the benchmarks, and one write. Every mode reads with plain system calls, as applications
 * do, and knows nothing about what is mounted.
 *
 * Each adds one word of every page that it read to a sum that does not depend on the order, so that
 * the driver sees when two sides of a comparison read different bytes.
 */
#ifndef BENCH_IO_H
#define BENCH_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { IO_PAGE = 4096 };

struct io_range {
	uint64_t offset, size_bytes;
};

struct io_job {
	const char *path;
	bool direct;           /* O_DIRECT */
	uint64_t length_bytes; /* read only the first bytes; 0: all */
	size_t block_bytes;    /* of one read; a multiple of IO_PAGE */
	unsigned depth;        /* reads under way at once in one thread */
	unsigned workers;      /* threads, or processes, that read */
	unsigned loops;        /* how often the whole is read */
	uint64_t ops;          /* random reads in all */
	uint64_t seed;         /* equal seeds read equal offsets */
	struct io_range
		*ranges; /* what a mapping touches, in this order; NULL: all, in file order */
	size_t nr_ranges;
};

struct io_result {
	uint64_t bytes, ops, sum;
};

/* All return 0 or -errno; -EIO also for a read that ended before it should. They add to *result. */

/* The file from its first byte to its last: read(2) one after the other, or with depth > 1 that
 * many reads in an io_uring. */
int io_sequential(const struct io_job *job, struct io_result *result);
/* job->ops reads of aligned blocks at random: pread(2), or an io_uring when depth > 1. */
int io_random(const struct io_job *job, struct io_result *result);
/* Maps the file, anew in each loop, and touches one word of every page. */
int io_mapped(const struct io_job *job, struct io_result *result);
/* job->workers threads share one descriptor and pread(2) a slice each. */
int io_parallel(const struct io_job *job, struct io_result *result);
/* job->workers processes open the file at one moment and read all of it; -EILSEQ when two of them
 * got different bytes. */
int io_openers(const struct io_job *job, struct io_result *result);

/* job->workers threads fill the file, made anew, with length_bytes by O_DIRECT, as a store keeps what
 * arrives. No sum: nothing is read. */
int io_fill(const struct io_job *job, struct io_result *result);

/* Opens job->path and tells how many bytes the job covers. The descriptor, or -errno. */
int io_open(const struct io_job *job, uint64_t *ret_size_bytes);
uint64_t io_sum(const void *data, size_t size_bytes);

#endif
