#include "process.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static uint64_t field(const char *status, const char *name)
{
	const char *line = strstr(status, name);

	return line ? strtoull(line + strlen(name), NULL, 10) : 0;
}

static unsigned count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned count = 0;

	if (!dir)
		return 0;
	for (struct dirent *entry; (entry = readdir(dir));)
		count += entry->d_name[0] != '.';
	closedir(dir);
	/* Not the one that counted. */
	return count - 1;
}

static double seconds(struct timeval time)
{
	return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

static double cpu_seconds(void)
{
	struct rusage usage = {0};

	getrusage(RUSAGE_SELF, &usage);
	return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

static unsigned max_fds(void)
{
	struct rlimit limit = {0};

	getrlimit(RLIMIT_NOFILE, &limit);
	return limit.rlim_cur < UINT_MAX ? (unsigned)limit.rlim_cur : UINT_MAX;
}

void process_usage(struct process_usage *ret)
{
	FILE *file = fopen("/proc/self/status", "re");
	char text[8192];
	size_t n = 0;

	if (file) {
		n = fread(text, 1, sizeof text - 1, file);
		fclose(file);
	}
	text[n] = '\0';
	*ret = (struct process_usage){
		.rss_bytes = field(text, "\nVmRSS:") << 10,
		.anon_bytes = field(text, "\nRssAnon:") << 10,
		.shmem_bytes = field(text, "\nRssShmem:") << 10,
		.file_bytes = field(text, "\nRssFile:") << 10,
		.threads = (unsigned)field(text, "\nThreads:"),
		.fds = count_fds(),
		.max_fds = max_fds(),
		.cpu_s = cpu_seconds(),
	};
}
