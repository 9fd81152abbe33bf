/*
 * actor: keeper and daemon of the tests in one program, as cachefs itself is. The daemon does what
 * the first line of $ACTOR_DIR/plan says, and takes that line away; the words are in `acts` below.
 * What was done is written to the descriptor $ACTOR_LOG, a line each.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/units.h"
#include "hold/client.h"
#include "hold/keeper.h"
#include "hold/upgrade.h"
#include "old_protocol.h"

#define BEAT_MS 50

static struct hold *hold;
static int channel = -1, signals = -1;
static const char *dir;

static void __attribute__((format(printf, 1, 2))) tell(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vdprintf((int)strtol(getenv("ACTOR_LOG"), NULL, 10), format, args);
	va_end(args);
}

static const char *in_dir(const char *name)
{
	static char path[512];

	snprintf(path, sizeof path, "%s/%s", dir, name);
	return path;
}

static void take_line(char *line, size_t size)
{
	char plan[4096];
	int fd = open(in_dir("plan"), O_RDWR | O_CLOEXEC);
	ssize_t n;
	size_t first;

	flock(fd, LOCK_EX);
	n = read(fd, plan, sizeof plan - 1);
	plan[n > 0 ? n : 0] = '\0';
	first = strcspn(plan, "\n");
	snprintf(line, size, "%.*s", (int)first, *plan ? plan : "hello take ready serve");
	if (n > 0) {
		const char *rest = plan + first + 1;

		if (ftruncate(fd, 0) < 0 || pwrite(fd, rest, strlen(rest), 0) < 0)
			abort();
	}
	close(fd);
	if (!*plan)
		snprintf(line, size, "hello take ready serve");
}

static void fail(const char *what, int error)
{
	tell("failed %s %s\n", what, strerror(-error));
	_exit(9);
}

static void say_hello(const char *arg)
{
	struct why why;
	int r = hold_open(channel, &hold, &why);

	(void)arg;
	if (r)
		fail("hello", r);
}

static void took(uint64_t id, const char *description, int device, int table)
{
	char text[64] = "";

	if (pread(table, text, sizeof text - 1, 0) < 0)
		text[0] = '?';
	tell("took %llu %s, %s\n", (unsigned long long)id, description, text);
	dprintf(device, "%llu\n", (unsigned long long)id);
}

static void take(const char *arg)
{
	struct hold_mounts mounts;
	struct hold_keeper keeper;
	struct why why;
	int r = hold_take(hold, &mounts, &keeper, &why);

	(void)arg;
	if (r)
		fail("take", r);
	for (size_t i = 0; i < mounts.count; i++) {
		took(mounts.mounts[i].id, mounts.mounts[i].description, mounts.mounts[i].device,
			mounts.mounts[i].table);
		/* They stay open, as a daemon's do. */
		mounts.mounts[i].device = mounts.mounts[i].table = -1;
	}
	tell("taken %zu restarts=%u last=%d\n", mounts.count, keeper.restarts, keeper.last_status);
	hold_mounts_free(&mounts);
}

static int make_table(const char *id)
{
	int fd = memfd_create("table", MFD_CLOEXEC);

	dprintf(fd, "table %s", id);
	return fd;
}

static void put(const char *id)
{
	char description[64];
	int r;

	snprintf(description, sizeof description, "mount %s", id);
	r = hold_put(hold, strtoull(id, NULL, 10), description, strlen(description),
		open(in_dir("device"), O_WRONLY | O_CLOEXEC), make_table(id));
	tell("put %s %s\n", id, r ? strerror(-r) : "ok");
}

static void put_again(const char *id)
{
	int r = hold_put(hold, strtoull(id, NULL, 10), "changed", 7, -1, -1);

	tell("again %s %s\n", id, r ? strerror(-r) : "ok");
}

static void drop(const char *id)
{
	hold_drop(hold, strtoull(id, NULL, 10));
}

static void be_ready(const char *arg)
{
	(void)arg;
	hold_ready(hold);
	tell("ready\n");
}

/* Until a signal ends it, or the keeper (unless it is not listened to). */
static void beat(bool listens)
{
	struct pollfd fds[] = {{.fd = signals, .events = POLLIN},
		{.fd = listens ? hold_stop_fd(hold) : -1, .events = POLLIN}};

	for (;;) {
		hold_beat(hold);
		if (poll(fds, 2, BEAT_MS) <= 0)
			continue;
		if (fds[0].revents) {
			tell("asked to end\n");
			_exit(0);
		}
		tell("asked to stop\n");
		_exit(HOLD_EXIT_HANDED_OVER);
	}
}

static void serve(const char *arg)
{
	(void)arg;
	beat(true);
}

static void be_stubborn(const char *arg)
{
	(void)arg;
	beat(false);
}

static void be_silent(const char *arg)
{
	(void)arg;
	for (;;)
		pause();
}

static void die(const char *arg)
{
	(void)arg;
	raise(SIGKILL);
}

static void freeze(const char *arg)
{
	(void)arg;
	raise(SIGSTOP);
}

static void leave(const char *status)
{
	_exit((int)strtol(status, NULL, 10));
}

static void talk_garbage(const char *arg)
{
	static char large[1 << 16];

	(void)arg;
	if (send(channel, "x", 1, 0) < 0 || send(channel, large, sizeof large, 0) < 0 ||
		old_say(channel, 1, 2, 77) || old_say(channel, 1, 999, 0) ||
		old_say(channel, 1, 1, 0) || old_say(channel, 1, 4, 12345))
		fail("garbage", -errno);
}

/* An old or a future daemon: the version is what it says of itself. */
static void be_of_version(const char *text)
{
	struct old_mount mount;
	uint16_t version = (uint16_t)strtol(text, NULL, 10);
	int type;

	old_say(channel, version, 1, 0);
	type = old_listen(channel, &mount, &version);
	tell("answer %d version %d\n", type, version);
	if (type != 1)
		_exit(1);
	while ((type = old_listen(channel, &mount, &version)) == 7)
		took(mount.id, mount.description, mount.device, mount.table);
	tell("end %d\n", type);
	old_say(channel, 1, 999, 0);
	old_put(channel, 3, "mount 3", open(in_dir("device"), O_WRONLY | O_CLOEXEC),
		make_table("3"));
	tell("answer %d\n", old_listen(channel, &mount, &version));
	old_say(channel, 1, 5, 0);
	tell("ready\n");
	type = old_listen(channel, &mount, &version);
	tell("heard %d\n", type);
	_exit(HOLD_EXIT_HANDED_OVER);
}

static const struct {
	const char *word;
	void (*act)(const char *arg);
} acts[] = {
	{"hello", say_hello},
	{"take", take},
	{"put", put},
	{"again", put_again},
	{"drop", drop},
	{"ready", be_ready},
	{"serve", serve},
	{"stubborn", be_stubborn},
	{"silent", be_silent},
	{"die", die},
	{"freeze", freeze},
	{"exit", leave},
	{"garbage", talk_garbage},
	{"version", be_of_version},
};

static void act(char *word)
{
	char *arg = strchr(word, '=');

	if (arg)
		*arg++ = '\0';
	for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++) {
		if (!strcmp(acts[i].word, word)) {
			acts[i].act(arg);
			return;
		}
	}
	fail(word, -EINVAL);
}

static int play_daemon(void)
{
	char line[512], *place = NULL;
	sigset_t set;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signals = signalfd(-1, &set, SFD_CLOEXEC);
	fcntl(channel, F_SETFD, FD_CLOEXEC);
	take_line(line, sizeof line);
	tell("start %d\n", (int)getpid());
	for (char *word = strtok_r(line, " ", &place); word; word = strtok_r(NULL, " ", &place))
		act(word);
	_exit(0);
}

/* $ACTOR_DIR/check: the status, and what is said. */
static int play_check(void)
{
	char line[128] = "0 actor keeper 1";
	int fd = open(in_dir("check"), O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, line, sizeof line - 1);

	if (n > 0)
		line[n] = '\0';
	puts(line + 2);
	return line[0] - '0';
}

static int play_keeper(int argc, char **argv)
{
	const char *serve_args[] = {"--control", NULL, NULL};
	struct keeper_config config = {.serve_args = serve_args, .ready_fd = -1, .resume_fd = -1};
	struct why why;
	int r;

	for (int i = 2; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--control"))
			serve_args[1] = argv[i + 1];
		else if (!strcmp(argv[i], "--abort-after"))
			parse_duration(argv[i + 1], &config.abort_after_ms);
		else if (!strcmp(argv[i], "--watchdog"))
			parse_duration(argv[i + 1], &config.watchdog_ms);
		else if (!strcmp(argv[i], "--resume-fd"))
			config.resume_fd = (int)strtol(argv[i + 1], NULL, 10);
	}
	config.socket = hold_socket(serve_args[1]);
	r = keeper_run(&config, &why);
	if (r < 0)
		fprintf(stderr, "%s\n", why.text);
	free((char *)config.socket);
	return r < 0 ? 1 : r;
}

int main(int argc, char **argv)
{
	bool check = false;

	dir = getenv("ACTOR_DIR");
	if (argc > 1 && !strcmp(argv[1], "hold"))
		return play_keeper(argc, argv);
	for (int i = 2; i < argc; i++) {
		check |= !strcmp(argv[i], "--check");
		if (!strcmp(argv[i], "--hold-fd"))
			channel = (int)strtol(argv[i + 1], NULL, 10);
	}
	return check ? play_check() : play_daemon();
}
