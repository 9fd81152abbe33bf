/* process: what /proc/self says about the daemon. */
#ifndef CONTROL_PROCESS_H
#define CONTROL_PROCESS_H

#include <stdint.h>

struct process_usage {
	uint64_t rss_bytes, anon_bytes, shmem_bytes, file_bytes;
	unsigned threads, fds, max_fds;
	double cpu_s;
};

/* What can't be read is 0. */
void process_usage(struct process_usage *ret);

#endif
