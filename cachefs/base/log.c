#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static _Atomic int least_level = LOG_LEVEL_INFO;
static _Atomic bool journal;

void log_setup(enum log_level least)
{
	atomic_store(&least_level, (int)least);
	atomic_store(&journal, getenv("JOURNAL_STREAM") != NULL);
}

static size_t line_prefix(char *line, size_t size, enum log_level level, const char *event)
{
	static const char *const names[] = {"error", "warn", "info", "debug"};
	static const int priorities[] = {3, 4, 6, 7};
	int n;

	if (atomic_load(&journal)) {
		n = snprintf(line, size, "<%d>%s ", priorities[level], event);
	} else {
		struct timespec now;
		struct tm tm;
		char stamp[32];

		clock_gettime(CLOCK_REALTIME, &now);
		gmtime_r(&now.tv_sec, &tm);
		strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &tm);
		n = snprintf(line, size, "%s.%03ldZ %s %s ", stamp, now.tv_nsec / 1000000,
			names[level], event);
	}
	return n < 0 ? 0 : (size_t)n < size ? (size_t)n : size - 1;
}

void log_event(enum log_level level, const char *event, const char *format, ...)
{
	char line[2048];
	size_t used;
	va_list args;
	int n;

	if ((int)level > atomic_load(&least_level))
		return;
	used = line_prefix(line, sizeof line - 1, level, event);
	va_start(args, format);
	n = vsnprintf(line + used, sizeof line - 1 - used, format, args);
	va_end(args);
	if (n > 0)
		used += (size_t)n < sizeof line - 1 - used ? (size_t)n : sizeof line - 2 - used;
	for (size_t i = 0; i < used; i++) {
		if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
			line[i] = '?';
	}
	line[used++] = '\n';
	/* A log that can't be written has nowhere to be reported. */
	if (write(STDERR_FILENO, line, used) < 0)
		return;
}
