#include "surroundings.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"

#define TICK_NS    5000000
#define TICKS_MOST 4000

static void clear_environment(void)
{
	for (char **entry = environ; *entry;) {
		char name[256];
		size_t n = strcspn(*entry, "=");

		if (strncmp(*entry, "AWS_", 4) != 0 || n >= sizeof name) {
			entry++;
			continue;
		}
		memcpy(name, *entry, n);
		name[n] = '\0';
		unsetenv(name);
		entry = environ;
	}
}

void surroundings_begin(struct surroundings *surroundings)
{
	clear_environment();
	strcpy(surroundings->home, "/tmp/test-origin-XXXXXX");
	check(mkdtemp(surroundings->home));
	setenv("HOME", surroundings->home, 1);
	setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

void surroundings_end(struct surroundings *surroundings)
{
	check(!nftw(surroundings->home, remove_one, 8, FTW_DEPTH | FTW_PHYS));
	clear_environment();
}

static void make_directories(char *path)
{
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		check(!mkdir(path, 0700) || errno == EEXIST);
		*slash = '/';
	}
}

void surroundings_write(
	const struct surroundings *surroundings, const char *name, const char *format, ...)
{
	static long mtime_s = 1000;
	struct timespec times[2] = {{.tv_sec = mtime_s}, {.tv_sec = mtime_s}};
	char path[256], new_path[300];
	va_list args;
	FILE *file;

	mtime_s++;
	snprintf(path, sizeof path, "%s/%s", surroundings->home, name);
	make_directories(path);
	snprintf(new_path, sizeof new_path, "%s.new", path);
	file = fopen(new_path, "w");
	check(file);
	va_start(args, format);
	vfprintf(file, format, args);
	va_end(args);
	check(!fclose(file));
	check(!chmod(new_path, 0700));
	check(!utimensat(AT_FDCWD, new_path, times, 0));
	check(!rename(new_path, path));
}

int wait_credentials(struct chain *chain, struct origin_engine *engine, struct credentials *ret,
	uint64_t *ret_number, struct why *why)
{
	struct timespec tick = {.tv_nsec = TICK_NS};
	uint64_t number;
	int r = -EAGAIN;

	for (int i = 0; i < TICKS_MOST && r == -EAGAIN; i++) {
		r = chain_get(chain, engine, ret, ret_number ? ret_number : &number, why);
		if (r == -EAGAIN)
			nanosleep(&tick, NULL);
	}
	return r;
}
