/*
 * process: credential_process, a command that prints JSON
 * (https://docs.aws.amazon.com/sdkref/latest/guide/feature-process-credentials.html).
 *
 * It is run without a shell, with an empty standard input, in a process group of its own that is
 * killed when its time is up. Of what it says on standard error one line is shown, without words
 * that may be secrets.
 */
#include "credentials/provider.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/list.h"

#include "credentials/json.h"
#include "credentials/words.h"

#define TIME_LIMIT_NS (60 * NS_PER_SEC)
#define TICK_MS       50 /* how soon a stop is seen */
#define OUTPUT_MAX    (64u << 10)
#define SHOWN_MAX     200

struct process {
	struct provider base;
	char **words;
};

/* A run of the command. */
struct child {
	pid_t pid;
	int pipes[2];       /* standard output and error; -1: at its end */
	struct buf text[2]; /* what came from each */
};

static void child_init(struct child *child)
{
	*child = (struct child){.pipes = {-1, -1}};
	for (int i = 0; i < 2; i++)
		buf_init(&child->text[i], OUTPUT_MAX);
}

static void child_free(struct child *child)
{
	for (int i = 0; i < 2; i++) {
		closep(&child->pipes[i]);
		if (child->text[i].bytes)
			OPENSSL_cleanse(child->text[i].bytes, child->text[i].size);
		buf_free(&child->text[i]);
	}
}

/* Our threads block every signal and ignore some: the child begins as from a shell. */
static int set_attributes(posix_spawnattr_t *attributes)
{
	sigset_t none, all;
	int e;

	sigemptyset(&none);
	sigfillset(&all);
	e = posix_spawnattr_setsigmask(attributes, &none);
	if (!e)
		e = posix_spawnattr_setsigdefault(attributes, &all);
	if (!e)
		e = posix_spawnattr_setpgroup(attributes, 0);
	if (!e)
		e = posix_spawnattr_setflags(attributes,
			POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
	return e;
}

static int set_files(posix_spawn_file_actions_t *actions, const int ends[2])
{
	int e = posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0);

	for (int i = 0; !e && i < 2; i++)
		e = posix_spawn_file_actions_adddup2(actions, ends[i], i + 1);
	if (!e)
		e = posix_spawn_file_actions_addclosefrom_np(actions, 3);
	return e;
}

static int spawn(char **words, const int ends[2], pid_t *ret)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	int e = posix_spawn_file_actions_init(&actions);

	if (e)
		return -e;
	e = posix_spawnattr_init(&attributes);
	if (!e) {
		e = set_attributes(&attributes);
		if (!e)
			e = set_files(&actions, ends);
		if (!e)
			e = posix_spawnp(ret, words[0], &actions, &attributes, words, environ);
		posix_spawnattr_destroy(&attributes);
	}
	posix_spawn_file_actions_destroy(&actions);
	return -e;
}

static int child_start(struct child *child, char **words)
{
	int ends[2] = {-1, -1}, r = 0;

	for (int i = 0; !r && i < 2; i++) {
		int pair[2];

		r = pipe2(pair, O_CLOEXEC) < 0 ? -errno : 0;
		if (r)
			break;
		child->pipes[i] = pair[0];
		ends[i] = pair[1];
		if (fcntl(pair[0], F_SETFL, O_NONBLOCK) < 0)
			r = -errno;
	}
	if (!r)
		r = spawn(words, ends, &child->pid);
	closep(&ends[0]);
	closep(&ends[1]);
	return r;
}

/* Takes what is there. -EFBIG: too much. */
static int take_output(struct child *child, int i)
{
	char block[4096];
	ssize_t n = read(child->pipes[i], block, sizeof block);
	int r = 0;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n > 0)
		r = buf_add(&child->text[i], block, (size_t)n);
	OPENSSL_cleanse(block, sizeof block);
	if (n > 0)
		return i == 0 ? r : 0; /* what it complains of is cut */
	close(child->pipes[i]);
	child->pipes[i] = -1;
	return 0;
}

static int read_output(struct child *child, const _Atomic bool *stop, uint64_t deadline_ns)
{
	int r = 0;

	while (!r && (child->pipes[0] >= 0 || child->pipes[1] >= 0)) {
		struct pollfd fds[2] = {{child->pipes[0], POLLIN, 0}, {child->pipes[1], POLLIN, 0}};

		if (atomic_load(stop))
			return -ECANCELED;
		if (clock_now_ns() >= deadline_ns)
			return -ETIMEDOUT;
		if (poll(fds, 2, TICK_MS) <= 0)
			continue;
		for (int i = 0; !r && i < 2; i++)
			r = fds[i].revents ? take_output(child, i) : 0;
	}
	return r;
}

static bool has_ended(pid_t pid)
{
	siginfo_t info = {.si_pid = 0};

	return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid;
}

/* Its exit, or its end by us. What it left running in its group ends too. */
static int child_wait(
	struct child *child, const _Atomic bool *stop, uint64_t deadline_ns, int r, int *ret_status)
{
	struct timespec tick = {.tv_nsec = TICK_MS * (long)NS_PER_MS / 10};

	/* Not reaped until its group was killed: the number could be another's by then. */
	while (!r && !has_ended(child->pid)) {
		if (atomic_load(stop))
			r = -ECANCELED;
		else if (clock_now_ns() >= deadline_ns)
			r = -ETIMEDOUT;
		else
			nanosleep(&tick, NULL);
	}
	kill(-child->pid, SIGKILL);
	while (waitpid(child->pid, ret_status, 0) < 0 && errno == EINTR)
		;
	return r;
}

static int failed(const struct process *process, const struct child *child, int r, int status,
	struct why *why)
{
	char shown[SHOWN_MAX];
	const char *name = process->words[0];

	if (r == -ETIMEDOUT)
		return why_set(why, -EIO, "credential_process %s gave no answer within %d s", name,
			(int)(TIME_LIMIT_NS / NS_PER_SEC));
	if (r == -EFBIG)
		return why_set(why, -EACCES, "credential_process %s prints more than %u KiB", name,
			OUTPUT_MAX >> 10);
	if (r)
		return r;
	redact(buf_string(&child->text[1]), shown, sizeof shown);
	return why_set(why, -EACCES, "credential_process %s ended with %s %d%s%s", name,
		WIFEXITED(status) ? "exit status" : "signal",
		WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status), *shown ? ": " : "",
		shown);
}

static int take_answer(
	const struct process *process, const char *text, struct credentials *ret, struct why *why)
{
	struct why reason = {""};

	if (json_version(text) != 1)
		why_set(&reason, -EIO, "its output is no JSON object with \"Version\": 1");
	else if (!json_credentials(text, &json_names_of_process, ret, &reason))
		return 0;
	return why_set(why, -EACCES, "credential_process %s: %s", process->words[0], reason.text);
}

static int fetch(struct provider *provider, const _Atomic bool *stop, struct credentials *ret,
	struct why *why)
{
	struct process *process = container_of(provider, struct process, base);
	uint64_t deadline_ns = clock_now_ns() + TIME_LIMIT_NS;
	struct child child;
	int r, status = 0;

	child_init(&child);
	r = child_start(&child, process->words);
	if (r) {
		child_free(&child);
		return why_set(why, -EACCES, "credential_process %s can't be run: %s",
			process->words[0], strerror(-r));
	}
	r = read_output(&child, stop, deadline_ns);
	r = child_wait(&child, stop, deadline_ns, r, &status);
	if (r || status)
		r = failed(process, &child, r, status, why);
	else
		r = take_answer(process, buf_string(&child.text[0]), ret, why);
	child_free(&child);
	return r;
}

static void destroy(struct provider *provider)
{
	struct process *process = container_of(provider, struct process, base);

	free(process->words);
	free(process);
}

static const struct provider_ops ops = {"process", false, false, fetch, destroy};

int provider_process(const char *command, struct provider **ret, struct why *why)
{
	struct process *process = calloc(1, sizeof *process);
	int r;

	if (!process)
		return -ENOMEM;
	process->base.ops = &ops;
	r = words_split(command, &process->words);
	if (r) {
		free(process);
		return why_set(why, -EINVAL,
			"credential_process is no command: a quote is not closed, or it is empty");
	}
	*ret = &process->base;
	return 0;
}
