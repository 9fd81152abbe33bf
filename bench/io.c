/* cachefs-bench-io MODE FILE [options]: reads FILE and prints what it took as JSON. */
#include "io.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum {
	MAX_BLOCK_BYTES = 64 << 20,
	MAX_DEPTH = 256,
	MAX_WORKERS = 1024,
	MAX_RANGES = 1 << 20,
};

static const char usage_text[] =
	"usage: cachefs-bench-io seq|rand|mmap|parallel|openers|fill FILE [options]\n"
	"  --direct       O_DIRECT\n"
	"  --block N      bytes of one read (1048576)\n"
	"  --length N     read only the first N bytes; fill: write so many\n"
	"  --depth N      reads under way at once, by io_uring when above 1 (1)\n"
	"  --ops N        random reads (1024)\n"
	"  --seed N       of the random offsets (1)\n"
	"  --loops N      how often all of it is read (1)\n"
	"  --workers N    threads (parallel, fill) or processes (openers) (4)\n"
	"  --ranges       mmap touches the lines \"OFFSET SIZE\" of standard input, in their "
	"order\n"
	"example: cachefs-bench-io seq model.safetensors --direct --depth 4\n";

static const struct mode {
	const char *name;
	int (*run)(const struct io_job *job, struct io_result *result);
} modes[] = {
	{"seq", io_sequential},
	{"rand", io_random},
	{"mmap", io_mapped},
	{"parallel", io_parallel},
	{"openers", io_openers},
	{"fill", io_fill},
};

static const struct mode *mode_named(const char *name)
{
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		if (strcmp(modes[i].name, name) == 0)
			return &modes[i];
	return NULL;
}

static int number(const char *text, uint64_t min, uint64_t max, uint64_t *ret)
{
	char *end;

	errno = 0;
	uint64_t value = strtoull(text, &end, 10);
	if (errno || end == text || *end || value < min || value > max) {
		fprintf(stderr,
			"cachefs-bench-io: \"%s\" is no number from %" PRIu64 " to %" PRIu64 "\n",
			text, min, max);
		return -EINVAL;
	}
	*ret = value;
	return 0;
}

/* "OFFSET SIZE" */
static int parse_range(const char *line, struct io_range *ret)
{
	char *end;

	errno = 0;
	ret->offset = strtoull(line, &end, 10);
	if (errno || *end != ' ')
		return -EINVAL;
	ret->size_bytes = strtoull(end + 1, &end, 10);
	return errno || *end != '\n' ? -EINVAL : 0;
}

static int read_ranges(struct io_job *job)
{
	char line[64];

	job->ranges = calloc(MAX_RANGES, sizeof(*job->ranges));
	if (!job->ranges)
		return -ENOMEM;
	while (fgets(line, sizeof(line), stdin)) {
		if (job->nr_ranges == MAX_RANGES)
			return -E2BIG;
		if (parse_range(line, &job->ranges[job->nr_ranges++]) < 0)
			return -EINVAL;
	}
	return job->nr_ranges > 0 ? 0 : -EINVAL;
}

static int parse_option(int option, struct io_job *job)
{
	uint64_t value = 0;
	int r = 0;

	switch (option) {
	case 'D':
		job->direct = true;
		break;
	case 'b':
		r = number(optarg, IO_PAGE, MAX_BLOCK_BYTES, &value);
		job->block_bytes = value / IO_PAGE * IO_PAGE;
		break;
	case 'l':
		r = number(optarg, 1, INT64_MAX, &job->length_bytes);
		break;
	case 'd':
		r = number(optarg, 1, MAX_DEPTH, &value);
		job->depth = (unsigned)value;
		break;
	case 'o':
		r = number(optarg, 1, UINT32_MAX, &job->ops);
		break;
	case 's':
		r = number(optarg, 0, UINT32_MAX, &job->seed);
		break;
	case 'n':
		r = number(optarg, 1, UINT32_MAX, &value);
		job->loops = (unsigned)value;
		break;
	case 'w':
		r = number(optarg, 1, MAX_WORKERS, &value);
		job->workers = (unsigned)value;
		break;
	case 'r':
		r = read_ranges(job);
		break;
	default:
		r = -EINVAL;
	}
	return r;
}

static int parse(int argc, char **argv, const struct mode **ret_mode, struct io_job *job)
{
	static const struct option options[] = {
		{"direct", no_argument, NULL, 'D'},
		{"block", required_argument, NULL, 'b'},
		{"length", required_argument, NULL, 'l'},
		{"depth", required_argument, NULL, 'd'},
		{"ops", required_argument, NULL, 'o'},
		{"seed", required_argument, NULL, 's'},
		{"loops", required_argument, NULL, 'n'},
		{"workers", required_argument, NULL, 'w'},
		{"ranges", no_argument, NULL, 'r'},
		{NULL, 0, NULL, 0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
		if (parse_option(option, job) < 0)
			return -EINVAL;
	if (argc - optind != 2)
		return -EINVAL;
	*ret_mode = mode_named(argv[optind]);
	job->path = argv[optind + 1];
	return *ret_mode ? 0 : -EINVAL;
}

static double seconds(struct timeval self, struct timeval children)
{
	return (double)(self.tv_sec + children.tv_sec) +
	       (double)(self.tv_usec + children.tv_usec) / 1e6;
}

static void print_result(const struct io_result *result, bool has_sum, double wall_s)
{
	struct rusage self, children;

	getrusage(RUSAGE_SELF, &self);
	getrusage(RUSAGE_CHILDREN, &children);
	printf("{\"bytes\": %" PRIu64 ", \"ops\": %" PRIu64 ", ", result->bytes, result->ops);
	if (has_sum)
		printf("\"sum\": \"%016" PRIx64 "\", ", result->sum);
	printf("\"wall_s\": %.9f, \"user_s\": %.6f, \"sys_s\": %.6f}\n", wall_s,
		seconds(self.ru_utime, children.ru_utime),
		seconds(self.ru_stime, children.ru_stime));
}

int main(int argc, char **argv)
{
	struct io_job job = {.block_bytes = 1 << 20,
		.depth = 1,
		.workers = 4,
		.loops = 1,
		.ops = 1024,
		.seed = 1};
	struct io_result result = {0};
	struct timespec from, to;
	const struct mode *mode;

	if (parse(argc, argv, &mode, &job) < 0) {
		fputs(usage_text, stderr);
		return 2;
	}
	clock_gettime(CLOCK_MONOTONIC, &from);
	int r = mode->run(&job, &result);
	clock_gettime(CLOCK_MONOTONIC, &to);
	free(job.ranges);
	if (r < 0) {
		fprintf(stderr, "cachefs-bench-io: %s %s: %s\n", mode->name, job.path,
			strerror(-r));
		return 1;
	}
	print_result(&result, mode->run != io_fill,
		(double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9);
	return 0;
}
