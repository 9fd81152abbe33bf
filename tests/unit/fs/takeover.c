/* Take-over of a mount: the daemons are children that are killed or told to stop, the test plays the
 * kernel and keeps device and table for the next. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/crash.h"
#include "fakes.h"
#include "fs.h"
#include "peer.h"
#include "table_layout.h"

#define ROOT                 FUSE_ROOT_ID
#define INIT_PASSTHROUGH     (1ull << 37)
#define INIT_RESEND          (1ull << 39)
#define INIT_FLAGS           (FUSE_ASYNC_READ | FUSE_DO_READDIRPLUS | INIT_PASSTHROUGH | INIT_RESEND)
#define FOPEN_IS_PASSTHROUGH (1u << 7)
#define IDS                  16384

/* What outlives the daemons, besides device and table. */
struct world {
	_Atomic int n_ids; /* backing ids are given out in order */
	_Atomic bool ids[IDS];
	_Atomic int mkdirs;
	uint64_t waited_for; /* a request that the kernel has no answer of */
	bool warm, changed, replaced;
};
static struct world *world;

static int fake_backing_open(int device, int fd)
{
	int id = ++world->n_ids;

	(void)device;
	(void)fd;
	world->ids[id] = true;
	return id;
}

static void fake_backing_close(int device, int backing_id)
{
	(void)device;
	if (backing_id < IDS)
		world->ids[backing_id] = false;
}

static bool fake_fail(int device, uint64_t unique, int error)
{
	struct fuse_out_header header = {.len = sizeof header, .error = error, .unique = unique};

	if (unique != world->waited_for)
		return false;
	world->waited_for = 0;
	return write(device, &header, sizeof header) == sizeof header;
}

static const struct device_calls calls = {fake_backing_open, fake_backing_close, fake_fail};

struct fixture {
	struct peer peer;
	int device, table;
	pid_t daemon;
	struct answer answer;
	uint64_t init_flags;
};

static void send_fd(int socket, int fd)
{
	char byte = 0, control[CMSG_SPACE(sizeof fd)] = {0};
	struct iovec iov = {&byte, 1};
	struct msghdr message = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof control};
	struct cmsghdr *part = CMSG_FIRSTHDR(&message);

	part->cmsg_level = SOL_SOCKET;
	part->cmsg_type = SCM_RIGHTS;
	part->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(part), &fd, sizeof fd);
	if (sendmsg(socket, &message, 0) != 1)
		abort();
}

static int receive_fd(int socket)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = {&byte, 1};
	struct msghdr message = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof control};
	int fd;

	assert_int_equal(recvmsg(socket, &message, MSG_CMSG_CLOEXEC), 1);
	assert_non_null(CMSG_FIRSTHDR(&message));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
	return fd;
}

static void put_files(void)
{
	fakes_reset();
	fake_put("f", world->replaced ? "v2" : "v1", 100);
	fake_put("d/", "", 0);
	for (int i = 0; i < 8; i++) {
		char name[8];

		snprintf(name, sizeof name, "n%d", i);
		fake_put(name, "1", 1);
	}
	if (world->changed)
		fake_delete("n3");
	if (world->changed)
		fake_put("m", "1", 1);
	fake_set_warm(world->warm);
}

static struct volume_options options;
static struct cache_account account;

static struct fs_config make_config(void)
{
	volume_options_free(&options);
	assert_int_equal(volume_options_parse("", &options, NULL), 0);
	return (struct fs_config){
		.calls = &calls,
		.account = &account,
		.options = &options,
		.passthrough = true,
		.max_nodes = 64,
		.max_handles = 64,
	};
}

static struct fs *make_fs(struct fixture *f)
{
	struct fs_config config = make_config();
	struct fs *fs = NULL;
	struct why why;
	int r, device = dup(f->device);

	r = f->table < 0 ? fs_new(&config, device, &fs)
			 : fs_resume(&config, device, dup(f->table), &fs, &why);
	if (r || fs_start(fs, &why))
		abort();
	return fs;
}

static void run_daemon(struct fixture *f, int socket)
{
	struct fs *fs;

	put_files();
	fs = make_fs(f);
	send_fd(socket, fs_table_fd(fs));
	fs_wait(fs);
	fs_free(fs);
	_exit(0);
}

/* A daemon that dies at crash, NULL: serves on. */
static void start_daemon(struct fixture *f, const char *crash)
{
	bool first = f->table < 0;
	int sockets[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
	f->daemon = fork();
	assert_true(f->daemon >= 0);
	if (!f->daemon) {
		close(f->peer.fd);
		crash_arm(crash);
		run_daemon(f, sockets[1]);
	}
	if (first)
		peer_send_init(&f->peer, f->init_flags);
	close(sockets[1]);
	if (first) {
		f->table = receive_fd(sockets[0]);
		peer_receive(&f->peer, &f->answer);
	} else {
		close(receive_fd(sockets[0]));
		peer_expect_take_over(&f->peer, f->init_flags & INIT_RESEND);
	}
	close(sockets[0]);
}

static void expect_crash(struct fixture *f)
{
	int status;

	assert_int_equal(waitpid(f->daemon, &status, 0), f->daemon);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	f->daemon = 0;
}

static void kill_daemon(struct fixture *f)
{
	kill(f->daemon, SIGKILL);
	expect_crash(f);
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);

	if (!f)
		return -1;
	memset(world, 0, sizeof *world);
	f->table = -1;
	f->init_flags = INIT_FLAGS;
	peer_new(&f->peer, &f->device);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	struct why why;
	int r = f->table >= 0 ? table_check(f->table, &why) : 0, status = 0;

	peer_close(&f->peer);
	if (f->daemon)
		waitpid(f->daemon, &status, 0);
	close(f->device);
	if (f->table >= 0)
		close(f->table);
	free(f);
	volume_options_free(&options);
	return r || status;
}

static uint64_t lookup(struct fixture *f, const char *name)
{
	assert_int_equal(peer_lookup(&f->peer, ROOT, name, &f->answer), 0);
	return f->answer.entry.nodeid;
}

static void expect_bytes(struct fixture *f, uint64_t node, uint64_t fh, const char *bytes)
{
	uint64_t read = peer_send_read(&f->peer, node, fh, 0, (uint32_t)strlen(bytes));

	peer_receive(&f->peer, &f->answer);
	assert_true(f->answer.header.unique == read);
	assert_int_equal(f->answer.header.error, 0);
	assert_memory_equal(f->answer.bytes, bytes, strlen(bytes));
}

static void expect_backing_ids(int n)
{
	int found = 0;

	for (int i = 0; i < IDS; i++)
		found += world->ids[i];
	assert_int_equal(found, n);
}

static unsigned live_handles(struct fixture *f)
{
	struct table *table;
	unsigned n;

	assert_int_equal(table_adopt(dup(f->table), &table, NULL), 0);
	n = table_handles(table);
	table_free(table);
	return n;
}

static const char *const points[] = {"after_read", "after_table", "before_reply", "after_reply"};
#define N_POINTS (sizeof points / sizeof points[0])

/* The daemon dies in its second request, which is answered once, by it or by its successor. */
static void open_crashes(struct fixture *f, const char *point, uint32_t opcode, const char *name)
{
	struct fuse_open_in in = {0};
	char crash[64];
	uint64_t node, fh, unique;

	snprintf(crash, sizeof crash, "%s:2", point);
	start_daemon(f, crash);
	node = lookup(f, name);
	fh = peer_send(&f->peer, opcode, node, &in, sizeof in);
	expect_crash(f);
	unique = fh;
	if (!strcmp(point, "after_reply")) {
		peer_receive(&f->peer, &f->answer);
		start_daemon(f, NULL);
	} else {
		peer_expect_silence(&f->peer);
		start_daemon(f, NULL);
		unique = peer_resend(&f->peer);
		peer_receive(&f->peer, &f->answer);
	}
	assert_true(f->answer.header.unique == unique);
	assert_int_equal(f->answer.header.error, 0);
	assert_true(f->answer.open.fh == fh);
	peer_expect_silence(&f->peer);
	if (opcode == FUSE_OPEN) {
		expect_bytes(f, node, fh, "v1v1");
		expect_bytes(f, node, fh, "v1");
		peer_release(&f->peer, node, fh);
	} else {
		struct fuse_release_in release = {.fh = fh};

		assert_int_equal(peer_call(&f->peer, FUSE_RELEASEDIR, node, &release,
					 sizeof release, &f->answer),
			0);
	}
	/* The same node, by name too. */
	assert_true(lookup(f, name) == node);
	assert_int_equal(live_handles(f), 0);
}

static void again(void **state)
{
	tear_down(state);
	set_up(state);
}

static void open_at_each_point(void **state)
{
	for (size_t i = 0; i < N_POINTS; i++) {
		open_crashes(*state, points[i], FUSE_OPEN, "f");
		expect_backing_ids(0);
		again(state);
	}
}

static void open_warm_at_each_point(void **state)
{
	static const char *const more[] = {"after_backing_open:1", "before_backing_close:1"};

	for (size_t i = 0; i < N_POINTS; i++) {
		world->warm = true;
		open_crashes(*state, points[i], FUSE_OPEN, "f");
		expect_backing_ids(0);
		again(state);
	}
	for (size_t i = 0; i < 2; i++) {
		struct fixture *f = *state;
		struct fuse_open_in in = {0};
		struct fuse_release_in release = {0};
		uint64_t node;

		world->warm = true;
		start_daemon(f, more[i]);
		node = lookup(f, "f");
		if (i) {
			assert_int_equal(peer_open(&f->peer, node, &f->answer), 0);
			release.fh = f->answer.open.fh;
			peer_send(&f->peer, FUSE_RELEASE, node, &release, sizeof release);
		} else {
			peer_send(&f->peer, FUSE_OPEN, node, &in, sizeof in);
		}
		expect_crash(f);
		expect_backing_ids(1);
		start_daemon(f, NULL);
		expect_backing_ids(0);
		peer_resend(&f->peer);
		peer_receive(&f->peer, &f->answer);
		assert_int_equal(f->answer.header.error, 0);
		expect_backing_ids(i ? 0 : 1);
		again(state);
	}
}

static void opendir_at_each_point(void **state)
{
	for (size_t i = 0; i < N_POINTS; i++) {
		open_crashes(*state, points[i], FUSE_OPENDIR, "d");
		again(state);
	}
}

static void lookup_at_each_point(void **state)
{
	for (size_t i = 0; i < N_POINTS; i++) {
		struct fixture *f = *state;
		uint64_t node;

		start_daemon(f, points[i]);
		peer_send(&f->peer, FUSE_LOOKUP, ROOT, "f", 2);
		expect_crash(f);
		if (!strcmp(points[i], "after_reply")) {
			peer_receive(&f->peer, &f->answer);
			start_daemon(f, NULL);
		} else {
			start_daemon(f, NULL);
			peer_resend(&f->peer);
			peer_receive(&f->peer, &f->answer);
		}
		assert_int_equal(f->answer.header.error, 0);
		node = f->answer.entry.nodeid;
		assert_true(node && lookup(f, "f") == node);
		again(state);
	}
}

/* Handles of both modes, a superseded node, and directories live on. */
static void all_live_on(void **state)
{
	struct fixture *f = *state;
	uint64_t cold, cold_fh, warm, warm_fh, directory, second;

	start_daemon(f, NULL);
	cold = lookup(f, "f");
	assert_int_equal(peer_open(&f->peer, cold, &f->answer), 0);
	cold_fh = f->answer.open.fh;
	directory = lookup(f, "d");
	kill_daemon(f);

	world->warm = true;
	start_daemon(f, NULL);
	assert_int_equal(peer_open(&f->peer, cold, &f->answer), -ESTALE);
	warm = lookup(f, "f");
	assert_true(warm != cold);
	assert_int_equal(peer_open(&f->peer, warm, &f->answer), 0);
	assert_true(f->answer.open.open_flags & FOPEN_IS_PASSTHROUGH);
	warm_fh = f->answer.open.fh;
	kill_daemon(f);

	start_daemon(f, NULL);
	expect_backing_ids(1);
	expect_bytes(f, cold, cold_fh, "v1v1v1");
	expect_bytes(f, warm, warm_fh, "v1");
	assert_true(lookup(f, "f") == warm && lookup(f, "d") == directory);
	assert_int_equal(peer_open(&f->peer, warm, &f->answer), 0);
	assert_true(f->answer.open.open_flags & FOPEN_IS_PASSTHROUGH);
	second = f->answer.open.fh;
	assert_int_equal(world->n_ids, 1);
	peer_release(&f->peer, warm, warm_fh);
	expect_backing_ids(1);
	peer_release(&f->peer, warm, second);
	expect_backing_ids(0);
	peer_release(&f->peer, cold, cold_fh);
}

/* The file has become warm, for a daemon that dies at crash. Returns its cold node. */
static uint64_t become_warm(struct fixture *f, const char *crash)
{
	uint64_t cold;

	start_daemon(f, NULL);
	cold = lookup(f, "f");
	assert_int_equal(peer_open(&f->peer, cold, &f->answer), 0);
	kill_daemon(f);
	world->warm = true;
	start_daemon(f, crash);
	return cold;
}

/* The next open, by whatever daemon, is no second try. */
static void expect_first_try(struct fixture *f, uint64_t node)
{
	uint64_t newer;

	assert_int_equal(peer_open(&f->peer, node, &f->answer), -ESTALE);
	newer = lookup(f, "f");
	assert_true(newer != node);
	assert_int_equal(peer_open(&f->peer, newer, &f->answer), 0);
}

/* The daemon dies between the two tries of an open, and its successor has a reason of its own. */
static void stale_once(void **state)
{
	struct fixture *f = *state;
	uint64_t cold = become_warm(f, NULL), warm;

	assert_int_equal(peer_open(&f->peer, cold, &f->answer), -ESTALE);
	warm = lookup(f, "f");
	kill_daemon(f);
	world->replaced = true;
	start_daemon(f, NULL);
	assert_int_equal(peer_open(&f->peer, warm, &f->answer), 0);
	expect_first_try(f, warm);
}

/* It had not answered: what comes again is no second try, and must not get the old version. */
static void stale_not_answered(void **state)
{
	struct fixture *f = *state;
	struct fuse_open_in in = {0};
	uint64_t cold = become_warm(f, "after_table"), unique;

	peer_send(&f->peer, FUSE_OPEN, cold, &in, sizeof in);
	expect_crash(f);
	start_daemon(f, NULL);
	unique = peer_resend(&f->peer);
	peer_receive(&f->peer, &f->answer);
	assert_true(f->answer.header.unique == unique);
	assert_int_equal(f->answer.header.error, -ESTALE);
	assert_int_equal(peer_open(&f->peer, lookup(f, "f"), &f->answer), 0);
}

/* The second try is not answered by the daemon that had it. */
static void stale_second_not_answered(void **state)
{
	struct fixture *f = *state;
	struct fuse_open_in in = {0};
	uint64_t cold = become_warm(f, "before_reply:3"), warm;

	assert_int_equal(peer_open(&f->peer, cold, &f->answer), -ESTALE);
	warm = lookup(f, "f");
	peer_send(&f->peer, FUSE_OPEN, warm, &in, sizeof in);
	expect_crash(f);
	world->replaced = true;
	start_daemon(f, NULL);
	peer_resend(&f->peer);
	peer_receive(&f->peer, &f->answer);
	assert_int_equal(f->answer.header.error, 0);
	expect_first_try(f, warm);
}

/* A directory is read on where another daemon left off, over another listing. */
static void directory_stream(void **state)
{
	struct fixture *f = *state;
	struct fuse_open_in in = {0};
	struct fuse_read_in read = {.size = 64};
	char seen[256] = "";

	start_daemon(f, NULL);
	assert_int_equal(peer_call(&f->peer, FUSE_OPENDIR, ROOT, &in, sizeof in, &f->answer), 0);
	read.fh = f->answer.open.fh;
	for (int i = 0;; i++) {
		size_t at = 0;

		if (i == 2) {
			kill_daemon(f);
			world->changed = true;
			start_daemon(f, NULL);
		}
		assert_int_equal(
			peer_call(&f->peer, FUSE_READDIR, ROOT, &read, sizeof read, &f->answer), 0);
		if (!f->answer.size)
			break;
		while (at < f->answer.size) {
			const struct fuse_dirent *entry = (const void *)(f->answer.bytes + at);

			sprintf(seen + strlen(seen), "%.*s ", (int)entry->namelen, entry->name);
			read.offset = entry->off;
			at += FUSE_DIRENT_SIZE(entry);
		}
	}
	for (int i = 0; i < 8; i++) {
		char name[8], *found;

		snprintf(name, sizeof name, "n%d ", i);
		found = strstr(seen, name);
		assert_true(found || i == 3);
		assert_true(!found || !strstr(found + 1, name));
	}
}

/* No FUSE_NOTIFY_RESEND: the mount lives on, what was in flight fails. */
static void fails_without_resend(struct fixture *f, const char *point)
{
	struct fuse_open_in in = {0};
	uint64_t node, open;

	f->init_flags &= ~INIT_RESEND;
	world->warm = true;
	start_daemon(f, point);
	node = lookup(f, "f");
	open = peer_send(&f->peer, FUSE_OPEN, node, &in, sizeof in);
	world->waited_for = open;
	expect_crash(f);
	start_daemon(f, NULL);
	peer_receive(&f->peer, &f->answer);
	assert_true(f->answer.header.unique == open);
	assert_int_equal(f->answer.header.error, -EIO);
	peer_expect_silence(&f->peer);
	expect_backing_ids(0);
	assert_int_equal(live_handles(f), 0);
	assert_int_equal(peer_open(&f->peer, node, &f->answer), 0);
	peer_release(&f->peer, node, f->answer.open.fh);
}

static void without_resend(void **state)
{
	/* At the first the request is not noted yet. */
	static const char *const at[] = {"after_read:2", "after_table:2", "before_reply:2"};

	for (size_t i = 0; i < 3; i++) {
		fails_without_resend(*state, at[i]);
		again(state);
	}
}

/* --- what must be done once --- */

static void once_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct fuse_entry_param entry = {.ino = 77};

	(void)parent;
	(void)name;
	(void)mode;
	assert_true(session_unique());
	world->mkdirs++;
	fuse_reply_entry(req, &entry);
}

static const struct fuse_lowlevel_ops once_ops = {.mkdir = once_mkdir};

static void ignore(void *owner, uint64_t unique)
{
	(void)owner;
	(void)unique;
}

static void run_once_daemon(struct fixture *f)
{
	struct session *session;
	struct table *table;
	int r = table_adopt(dup(f->table), &table, NULL);

	if (!r)
		r = session_new(dup(f->device), table, &calls, &once_ops, NULL, &session);
	if (r)
		abort();
	session_on_lost(session, ignore);
	if (session_start(session, NULL))
		abort();
	session_join(session);
	session_free(session);
	table_free(table);
	_exit(0);
}

static void start_once_daemon(struct fixture *f, const char *crash)
{
	f->daemon = fork();
	assert_true(f->daemon >= 0);
	if (f->daemon)
		return;
	close(f->peer.fd);
	crash_arm(crash);
	run_once_daemon(f);
}

static void make_table(struct fixture *f)
{
	struct table_node_key key = {.name = "", .attr = &(struct origin_attr){.kind = ORIGIN_DIR}};
	struct table_node *root;
	struct table *table;

	assert_int_equal(table_new(16, 16, &table), 0);
	assert_int_equal(table_add_node(table, &key, &root), 0);
	f->table = dup(table_fd(table));
	table_free(table);
}

static void done_once(void **state)
{
	static const char *const at[] = {"after_read", "before_reply", "after_reply"};
	struct {
		struct fuse_mkdir_in in;
		char name[8];
	} body = {.name = "x"};

	for (size_t i = 0; i < 3; i++) {
		struct fixture *f = *state;
		uint64_t unique;

		world->mkdirs = 0;
		make_table(f);
		start_once_daemon(f, at[i]);
		peer_send_init(&f->peer, INIT_RESEND);
		peer_receive(&f->peer, &f->answer);
		unique = peer_send(&f->peer, FUSE_MKDIR, ROOT, &body, sizeof body);
		expect_crash(f);
		/* The next one dies in it too. */
		if (i < 2) {
			start_once_daemon(f, "after_read");
			peer_expect_take_over(&f->peer, true);
			peer_resend(&f->peer);
			expect_crash(f);
		}
		if (i == 2)
			peer_receive(&f->peer, &f->answer);
		start_once_daemon(f, NULL);
		peer_expect_take_over(&f->peer, true);
		if (i < 2) {
			unique = peer_resend(&f->peer);
			peer_receive(&f->peer, &f->answer);
		}
		assert_true(f->answer.header.unique == unique && f->answer.entry.nodeid == 77);
		peer_expect_silence(&f->peer);
		assert_int_equal(world->mkdirs, 1);
		again(state);
	}
}

/* --- a planned hand-over --- */

static void *let_go(void *arg)
{
	(void)arg;
	fake_let_go();
	return NULL;
}

static void parked_is_left(void **state)
{
	struct fixture *f = *state;
	struct fs *old, *new;
	uint64_t node, fh, read;
	pthread_t thread;

	put_files();
	peer_send_init(&f->peer, f->init_flags);
	old = make_fs(f);
	peer_receive(&f->peer, &f->answer);
	f->table = dup(fs_table_fd(old));
	node = lookup(f, "f");
	assert_int_equal(peer_open(&f->peer, node, &f->answer), 0);
	fh = f->answer.open.fh;
	fake_hold();
	read = peer_send_read(&f->peer, node, fh, 0, 4);
	while (!fake_held())
		sched_yield();
	fs_stop(old);
	/* Comes too late: nobody is told. */
	assert_int_equal(pthread_create(&thread, NULL, let_go, NULL), 0);
	peer_expect_silence(&f->peer);
	pthread_join(thread, NULL);
	fs_wait(old);
	assert_true(fs_is_stopped(old));
	fs_free(old);
	assert_int_equal(live_handles(f), 1);

	new = make_fs(f);
	peer_expect_take_over(&f->peer, true);
	read = peer_resend(&f->peer);
	peer_receive(&f->peer, &f->answer);
	assert_true(f->answer.header.unique == read);
	assert_memory_equal(f->answer.bytes, "v1v1", 4);
	peer_release(&f->peer, node, fh);
	fs_stop(new);
	fs_wait(new);
	fs_free(new);
}

/* The kernel, with some reads always in flight. */
#define IN_FLIGHT 8
#define ROUNDS    30

struct flight {
	uint8_t bytes[128];
	size_t size;
	uint64_t unique; /* 0: free */
	bool lost;       /* read by a daemon that stopped, and perhaps answered */
};

struct kernel {
	struct fixture *f;
	struct lock lock;
	struct flight flights[IN_FLIGHT]; /* lock */
	uint64_t node, fh, answers;
	_Atomic bool ending;
	_Atomic int resends; /* that were asked for, and done */
	bool wrong;
};

static void take_off(struct kernel *kernel, struct flight *flight)
{
	struct fuse_read_in in = {.fh = kernel->fh, .size = 4};

	flight->unique = peer_send(&kernel->f->peer, FUSE_READ, kernel->node, &in, sizeof in);
	flight->size = kernel->f->peer.last_size;
	memcpy(flight->bytes, kernel->f->peer.last, flight->size);
	flight->lost = false;
}

static void resend_lost(struct kernel *kernel)
{
	for (int i = 0; i < IN_FLIGHT; i++) {
		struct flight *flight = &kernel->flights[i];
		struct fuse_in_header *header = (void *)flight->bytes;

		if (!flight->unique || !flight->lost)
			continue;
		header->unique |= SESSION_RESENT;
		flight->lost = false;
		assert_int_equal(
			write(kernel->f->peer.fd, flight->bytes, flight->size), flight->size);
	}
}

static void land(struct kernel *kernel, const struct answer *answer)
{
	for (int i = 0; i < IN_FLIGHT; i++) {
		struct flight *flight = &kernel->flights[i];

		if (flight->unique != (answer->header.unique & ~SESSION_RESENT))
			continue;
		flight->unique = 0;
		kernel->wrong = kernel->wrong || answer->header.error;
		kernel->answers++;
		return;
	}
	/* Twice, or of nothing. */
	kernel->wrong = true;
}

static void *be_kernel(void *arg)
{
	struct kernel *kernel = arg;
	struct answer *answer = &kernel->f->answer;

	for (;;) {
		struct pollfd fd = {.fd = kernel->f->peer.fd, .events = POLLIN};
		bool some = false;

		lock_take(&kernel->lock);
		for (int i = 0; i < IN_FLIGHT; i++) {
			if (!kernel->flights[i].unique && !kernel->ending)
				take_off(kernel, &kernel->flights[i]);
			some = some || kernel->flights[i].unique;
		}
		lock_drop(&kernel->lock);
		if (!some)
			return NULL;
		if (poll(&fd, 1, 100) != 1)
			continue;
		lock_take(&kernel->lock);
		peer_receive(&kernel->f->peer, answer);
		if (!answer->header.unique) {
			resend_lost(kernel);
			kernel->resends++;
		} else if (answer->size != sizeof answer->init) {
			land(kernel, answer);
		}
		lock_drop(&kernel->lock);
	}
}

/* What the stopped daemon did not read is still in the queue, as in a real device's. */
static void keep_unread(struct kernel *kernel)
{
	struct flight unread[2 * IN_FLIGHT];
	size_t n = 0;

	lock_take(&kernel->lock);
	for (int i = 0; i < IN_FLIGHT; i++)
		kernel->flights[i].lost = true;
	for (;; n++) {
		const struct fuse_in_header *header = (void *)unread[n].bytes;
		ssize_t size;

		assert_true(n < sizeof unread / sizeof unread[0]);
		size = recv(
			kernel->f->device, unread[n].bytes, sizeof unread[n].bytes, MSG_DONTWAIT);
		if (size <= 0)
			break;
		unread[n].size = (size_t)size;
		for (int i = 0; i < IN_FLIGHT; i++) {
			struct flight *flight = &kernel->flights[i];

			if (flight->unique == (header->unique & ~SESSION_RESENT))
				flight->lost = false;
		}
	}
	for (size_t i = 0; i < n; i++)
		assert_int_equal(send(kernel->f->peer.fd, unread[i].bytes, unread[i].size, 0),
			unread[i].size);
	lock_drop(&kernel->lock);
}

static _Atomic bool releasing;

static void *release_held(void *arg)
{
	(void)arg;
	while (releasing) {
		fake_hold();
		sched_yield();
		fake_let_go();
	}
	return NULL;
}

static void handed_over_under_load(void **state)
{
	struct fixture *f = *state;
	struct kernel kernel = {.f = f};
	pthread_t threads[2];
	struct fs *fs;

	put_files();
	lock_init(&kernel.lock);
	peer_send_init(&f->peer, f->init_flags);
	fs = make_fs(f);
	peer_receive(&f->peer, &f->answer);
	f->table = dup(fs_table_fd(fs));
	kernel.node = lookup(f, "f");
	assert_int_equal(peer_open(&f->peer, kernel.node, &f->answer), 0);
	kernel.fh = f->answer.open.fh;
	releasing = true;
	pthread_create(&threads[0], NULL, release_held, NULL);
	pthread_create(&threads[1], NULL, be_kernel, &kernel);
	for (int i = 0; i < ROUNDS; i++) {
		struct timespec pause = {.tv_nsec = 2000000};

		nanosleep(&pause, NULL);
		fs_stop(fs);
		keep_unread(&kernel);
		fs_wait(fs);
		fs_free(fs);
		fs = make_fs(f);
		/* A real kernel has done it when the notification is written. */
		while (kernel.resends <= i)
			sched_yield();
	}
	kernel.ending = true;
	pthread_join(threads[1], NULL);
	releasing = false;
	pthread_join(threads[0], NULL);
	fake_let_go();
	/* What the last one said when it took over, if nobody was there to read it. */
	while (poll(&(struct pollfd){.fd = f->peer.fd, .events = POLLIN}, 1, 0) == 1)
		peer_receive(&f->peer, &f->answer);
	assert_false(kernel.wrong);
	assert_true(kernel.answers > ROUNDS);
	peer_release(&f->peer, kernel.node, kernel.fh);
	fs_stop(fs);
	fs_wait(fs);
	fs_free(fs);
}

/* --- what is not taken over --- */

static void other_init(void **state)
{
	struct fixture *f = *state;
	struct fs_config config = make_config();
	struct table_header *header;
	struct fuse_init_out *init;
	struct fs *fs;
	struct why why = {""};

	start_daemon(f, NULL);
	kill_daemon(f);
	header = mmap(NULL, sizeof *header, PROT_READ | PROT_WRITE, MAP_SHARED, f->table, 0);
	assert_true(header != MAP_FAILED);
	init = (void *)(header->reply.bytes + sizeof(struct fuse_out_header));
	init->max_write /= 2;
	fakes_reset();
	assert_int_equal(fs_resume(&config, dup(f->device), dup(f->table), &fs, &why), 0);
	assert_int_equal(fs_start(fs, &why), -EPROTO);
	assert_non_null(strstr(why.text, "FUSE_INIT"));
	fs_stop(fs);
	fs_wait(fs);
	fs_free(fs);
	/* Damaged. */
	header->max_nodes = 0;
	assert_int_equal(fs_resume(&config, dup(f->device), dup(f->table), &fs, &why), -EUCLEAN);
	header->max_nodes = 64;
	/* As it was: nothing of this has harmed it. */
	init->max_write *= 2;
	munmap(header, sizeof *header);
	start_daemon(f, NULL);
	lookup(f, "f");
}

/* INIT came, and its answer never left: it is answered by the successor. */
static void init_unanswered(void **state)
{
	struct fixture *f = *state;
	struct fs_config config = make_config();
	struct table *table;
	uint8_t bytes[512];
	struct fs *fs;

	make_table(f);
	assert_int_equal(table_adopt(dup(f->table), &table, NULL), 0);
	peer_send_init(&f->peer, f->init_flags);
	assert_int_equal(read(f->device, bytes, sizeof bytes), f->peer.last_size);
	assert_int_equal(table_put_init(table, bytes, f->peer.last_size), 0);
	table_free(table);
	put_files();
	assert_int_equal(fs_resume(&config, dup(f->device), dup(f->table), &fs, NULL), 0);
	assert_int_equal(fs_start(fs, NULL), 0);
	peer_receive(&f->peer, &f->answer);
	assert_int_equal(f->answer.size, sizeof f->answer.init);
	lookup(f, "f");
	fs_stop(fs);
	fs_wait(fs);
	fs_free(fs);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(open_at_each_point),
		TEST(open_warm_at_each_point),
		TEST(opendir_at_each_point),
		TEST(lookup_at_each_point),
		TEST(all_live_on),
		TEST(stale_once),
		TEST(stale_not_answered),
		TEST(stale_second_not_answered),
		TEST(directory_stream),
		TEST(without_resend),
		TEST(done_once),
		TEST(parked_is_left),
		TEST(handed_over_under_load),
		TEST(other_init),
		TEST(init_unanswered),
	};

	signal(SIGPIPE, SIG_IGN);
	world = mmap(
		NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return world == MAP_FAILED || cmocka_run_group_tests(tests, NULL, NULL);
}
