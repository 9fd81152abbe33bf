#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

static const int signals[] = {SIGSEGV, SIGBUS, SIGABRT};
#define N_SIGNALS (sizeof signals / sizeof signals[0])

static struct sigaction before[N_SIGNALS];
static _Thread_local const struct index *within;

/* Only what a signal handler may call (signal-safety(7)). */
static void leave_mark(const struct index *index)
{
	int flags = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC;
	int fd = open(index->mark, flags, 0600);

	/* What fails here changes nothing: the next death may be luckier. */
	if (fd >= 0 && write(fd, "x", 1) == 1)
		close(fd);
}

/* As if we had not been there: a fault comes again when its instruction is run again, abort() goes
 * on, and what somebody sent is sent once more. */
static void on_death(int number, siginfo_t *info, void *context)
{
	int saved = errno;

	(void)context;
	for (size_t i = 0; i < N_SIGNALS; i++) {
		if (signals[i] == number)
			sigaction(number, &before[i], NULL);
	}
	if (within && (info->si_code > 0 || number == SIGABRT))
		leave_mark(within);
	if (info->si_code <= 0)
		raise(number);
	errno = saved;
}

static void install(void)
{
	struct sigaction death = {.sa_sigaction = on_death, .sa_flags = SA_SIGINFO};

	sigemptyset(&death.sa_mask);
	for (size_t i = 0; i < N_SIGNALS; i++)
		sigaction(signals[i], &death, &before[i]);
}

void guard_install(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, install);
}

const struct index *guard_enter(const struct index *index)
{
	const struct index *outer = within;

	within = index;
	return outer;
}

void guard_leave(const struct index **outer)
{
	within = *outer;
}

unsigned guard_deaths(const char *dir)
{
	char path[PATH_MAX];
	struct stat st;

	if ((size_t)snprintf(path, sizeof path, "%s/" GUARD_MARK, dir) >= sizeof path)
		return 0;
	return lstat(path, &st) < 0 ? 0 : (unsigned)st.st_size;
}
