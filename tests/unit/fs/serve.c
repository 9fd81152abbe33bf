/* Session and operations against a scripted peer in the kernel's place, over a faked cache. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fakes.h"
#include "fs.h"
#include "peer.h"

#define ROOT FUSE_ROOT_ID
/* Of the protocol, newer than older systems' headers. */
#define INIT_PASSTHROUGH     (1ull << 37)
#define FOPEN_IS_PASSTHROUGH (1u << 7)
#define FOPEN_HAS_NOFLUSH    (1u << 5)

static _Atomic int backing_opened, backing_closed, backing_error;

static int fake_backing_open(int device, int fd)
{
	(void)device;
	(void)fd;
	return backing_error ? backing_error : ++backing_opened;
}

static void fake_backing_close(int device, int backing_id)
{
	(void)device;
	assert_true(backing_id > 0 && backing_id <= backing_opened);
	backing_closed++;
}

static const struct device_calls calls = {fake_backing_open, fake_backing_close, NULL};

struct fixture {
	struct fs *fs;
	struct peer peer;
	struct volume_options options;
	struct cache_account account;
	struct answer answer;
};

static int start(void **state, const char *options)
{
	struct fixture *f = calloc(1, sizeof *f);
	struct fs_config config = {
		.calls = &calls, .passthrough = true, .max_nodes = 64, .max_handles = 64};
	int device;

	if (!f)
		return -1;
	fakes_reset();
	backing_opened = backing_closed = backing_error = 0;
	assert_int_equal(volume_options_parse(options, &f->options, NULL), 0);
	config.account = &f->account;
	config.options = &f->options;
	peer_new(&f->peer, &device);
	assert_int_equal(fs_new(&config, device, &f->fs), 0);
	peer_send_init(&f->peer, FUSE_ASYNC_READ | FUSE_ATOMIC_O_TRUNC | FUSE_DO_READDIRPLUS |
					 FUSE_READDIRPLUS_AUTO | FUSE_AUTO_INVAL_DATA |
					 FUSE_PARALLEL_DIROPS | FUSE_EXPORT_SUPPORT |
					 INIT_PASSTHROUGH);
	assert_int_equal(fs_start(f->fs, NULL), 0);
	peer_receive(&f->peer, &f->answer);
	fake_put("f", "v1", 100);
	fake_put("d/", "", 0);
	fake_put("d/g", "w1", 10);
	*state = f;
	return 0;
}

static int set_up(void **state)
{
	return start(state, "");
}

static int set_up_strict(void **state)
{
	return start(state, "strict");
}

/* The device ends, with whatever is parked, which is answered after. */
static int tear_down(void **state)
{
	struct fixture *f = *state;
	struct why why;
	int r = table_check(table_fd(f->fs->table), &why);

	peer_close(&f->peer);
	fs_wait(f->fs);
	fake_let_go();
	fs_free(f->fs);
	volume_options_free(&f->options);
	free(f);
	return r || fake_alive();
}

static uint64_t lookup(struct fixture *f, uint64_t parent, const char *name)
{
	assert_int_equal(peer_lookup(&f->peer, parent, name, &f->answer), 0);
	return f->answer.entry.nodeid;
}

static uint64_t open_file(struct fixture *f, uint64_t node)
{
	assert_int_equal(peer_open(&f->peer, node, &f->answer), 0);
	return f->answer.open.fh;
}

static bool is_passthrough(const struct fixture *f)
{
	return f->answer.open.open_flags & FOPEN_IS_PASSTHROUGH;
}

static void expect_bytes(struct fixture *f, uint64_t unique, const char *bytes)
{
	peer_receive(&f->peer, &f->answer);
	assert_true(f->answer.header.unique == unique);
	assert_int_equal(f->answer.header.error, 0);
	assert_int_equal(f->answer.size, strlen(bytes));
	assert_memory_equal(f->answer.bytes, bytes, f->answer.size);
}

static void wait_until_held(size_t n)
{
	while (fake_held() < n)
		sched_yield();
}

/* A read's last reference goes after its answer. */
static void wait_until_freed(void)
{
	while (fake_alive())
		sched_yield();
}

static void init(void **state)
{
	struct fixture *f = *state;
	const struct fuse_init_out *out = &f->answer.init;

	assert_true(out->flags & FUSE_DO_READDIRPLUS);
	assert_true(out->flags & FUSE_PARALLEL_DIROPS);
	assert_false(out->flags & FUSE_READDIRPLUS_AUTO);
	assert_false(out->flags & FUSE_AUTO_INVAL_DATA);
	assert_false(out->flags & FUSE_EXPORT_SUPPORT);
	assert_false(out->flags & (FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS));
	assert_true(out->flags2 & INIT_PASSTHROUGH >> 32);
	assert_true(out->max_background >= 1024);
	assert_int_equal(out->max_write, 1 << 20);
	assert_int_equal(out->max_pages, 256);
}

static void names(void **state)
{
	struct fixture *f = *state;
	uint64_t file = lookup(f, ROOT, "f"), ino = f->answer.entry.attr.ino;
	char name[1100];

	assert_int_equal(f->answer.entry.attr.mode, S_IFREG | 0444);
	assert_int_equal(f->answer.entry.attr.size, 100);
	assert_int_equal(f->answer.entry.entry_valid, 1000);
	assert_true(ino > 1 && ino != file);
	assert_true(lookup(f, ROOT, "f") == file);
	lookup(f, lookup(f, ROOT, "d"), "g");
	/* Missing: told, for a time. */
	assert_int_equal(peer_lookup(&f->peer, ROOT, "no", &f->answer), 0);
	assert_true(f->answer.entry.nodeid == 0 && f->answer.entry.entry_valid == 5);
	memset(name, 'n', sizeof name);
	name[1024] = '\0';
	assert_int_equal(peer_lookup(&f->peer, ROOT, name, &f->answer), -ENAMETOOLONG);
	assert_int_equal(peer_lookup(&f->peer, file, "x", &f->answer), -ENOTDIR);
	assert_int_equal(peer_lookup(&f->peer, 12345678, "x", &f->answer), -ESTALE);
}

static void forgotten(void **state)
{
	struct fixture *f = *state;
	uint64_t file = lookup(f, ROOT, "f"), directory = lookup(f, ROOT, "d");
	struct fuse_getattr_in in = {0};

	peer_forget(&f->peer, file, 1);
	peer_forget(&f->peer, directory, 1);
	/* FORGET has no answer, and another thread may serve what follows. */
	while (peer_call(&f->peer, FUSE_GETATTR, file, &in, sizeof in, &f->answer) != -ESTALE)
		sched_yield();
	assert_true(lookup(f, ROOT, "f") != file);
	assert_true(lookup(f, ROOT, "d") == directory);
}

static void parked_read(void **state)
{
	struct fixture *f = *state;
	uint64_t file = lookup(f, ROOT, "f"), fh = open_file(f, file), read;

	assert_false(is_passthrough(f));
	assert_true(f->answer.open.open_flags & FOPEN_HAS_NOFLUSH);
	assert_true(f->answer.open.open_flags & FOPEN_KEEP_CACHE);
	fake_hold();
	read = peer_send_read(&f->peer, file, fh, 96, 50);
	wait_until_held(1);
	/* Others are served meanwhile. */
	for (int i = 0; i < 20; i++) {
		struct fuse_getattr_in in = {0};

		assert_int_equal(
			peer_call(&f->peer, FUSE_GETATTR, file, &in, sizeof in, &f->answer), 0);
	}
	fake_let_go();
	expect_bytes(f, read, "v1v1");
	read = peer_send_read(&f->peer, file, fh, 100, 50);
	expect_bytes(f, read, "");
	peer_release(&f->peer, file, fh);
	wait_until_freed();
}

static void killed(void **state)
{
	struct fixture *f = *state;
	uint64_t file = lookup(f, ROOT, "f"), fh = open_file(f, file), read;

	fake_hold();
	f->peer.pid = 0; /* nobody that can be seen: dead */
	read = peer_send_read(&f->peer, file, fh, 0, 4);
	wait_until_held(1);
	peer_interrupt(&f->peer, read);
	peer_receive(&f->peer, &f->answer);
	assert_true(f->answer.header.unique == read);
	assert_int_equal(f->answer.header.error, -EINTR);
	/* The handle goes; its reader stays until the bytes come. */
	peer_release(&f->peer, file, fh);
	assert_true(fake_alive() > 0);
	fake_let_go();
	wait_until_freed();
	peer_expect_silence(&f->peer);
}

static void interrupted_and_alive(void **state)
{
	struct fixture *f = *state;
	uint64_t file = lookup(f, ROOT, "f"), fh = open_file(f, file), read;
	pid_t child;

	fake_hold();
	read = peer_send_read(&f->peer, file, fh, 0, 4);
	wait_until_held(1);
	peer_interrupt(&f->peer, read);
	peer_expect_silence(&f->peer);
	fake_let_go();
	expect_bytes(f, read, "v1v1");

	child = fork();
	assert_true(child >= 0);
	if (!child) {
		pause();
		_exit(0);
	}
	fake_hold();
	f->peer.pid = child;
	read = peer_send_read(&f->peer, file, fh, 0, 4);
	wait_until_held(1);
	peer_interrupt(&f->peer, read);
	peer_expect_silence(&f->peer);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	peer_receive(&f->peer, &f->answer);
	assert_int_equal(f->answer.header.error, -EINTR);
}

/* INTERRUPT may be read before the request that it is about. */
static void interrupted_early(void **state)
{
	struct fixture *f = *state;
	uint64_t unique;

	fake_hold();
	f->peer.pid = 0;
	unique = f->peer.unique + 4;
	peer_interrupt(&f->peer, unique);
	peer_send(&f->peer, FUSE_LOOKUP, ROOT, "f", 2);
	/* libfuse answers an interrupt that finds nothing with EAGAIN, so that it comes again. */
	do {
		peer_receive(&f->peer, &f->answer);
		if (f->answer.header.unique != unique)
			peer_interrupt(&f->peer, unique);
	} while (f->answer.header.unique != unique);
	assert_int_equal(f->answer.header.error, -EINTR);
}

static void becomes_warm(void **state)
{
	struct fixture *f = *state;
	uint64_t old = lookup(f, ROOT, "f"), cold = open_file(f, old), node, warm, second, read;

	fake_set_warm(true);
	assert_int_equal(peer_open(&f->peer, old, &f->answer), -ESTALE);
	node = lookup(f, ROOT, "f");
	assert_true(node != old);
	warm = open_file(f, node);
	assert_true(is_passthrough(f));
	assert_false(f->answer.open.open_flags & FOPEN_KEEP_CACHE);
	second = open_file(f, node);
	assert_true(is_passthrough(f));
	assert_int_equal(backing_opened, 1);
	/* By /proc/self/fd: the node as it is, once more. */
	assert_int_equal(peer_open(&f->peer, old, &f->answer), 0);
	assert_false(is_passthrough(f));
	peer_release(&f->peer, old, f->answer.open.fh);
	/* fadvise(WILLNEED) on a passthrough handle. */
	read = peer_send_read(&f->peer, node, warm, 0, 2);
	expect_bytes(f, read, "v1");
	peer_release(&f->peer, node, warm);
	assert_int_equal(backing_closed, 0);
	peer_release(&f->peer, node, second);
	assert_int_equal(backing_closed, 1);
	peer_release(&f->peer, old, cold);
	assert_int_equal(f->fs->counters.estale_opens, 1);
	assert_int_equal(f->account.passthrough_opens, 2);
	lookup(f, ROOT, "f");
}

static void backing_refused(void **state)
{
	struct fixture *f = *state;
	uint64_t node = lookup(f, ROOT, "f"), fh;

	fake_set_warm(true);
	backing_error = -ELOOP;
	fh = open_file(f, node);
	assert_false(is_passthrough(f));
	/* For good, so that there is no ESTALE for something that can't be had. */
	backing_error = 0;
	peer_release(&f->peer, node, fh);
	open_file(f, node);
	assert_false(is_passthrough(f));
	assert_int_equal(backing_opened, 0);
}

static void changed(void **state)
{
	struct fixture *f = *state;
	uint64_t old = lookup(f, ROOT, "f"), fh = open_file(f, old), node, read;

	fake_put("f", "v2", 100);
	assert_int_equal(peer_open(&f->peer, old, &f->answer), -ESTALE);
	node = lookup(f, ROOT, "f");
	assert_true(node != old);
	read = peer_send_read(&f->peer, node, open_file(f, node), 0, 2);
	expect_bytes(f, read, "v2");
	read = peer_send_read(&f->peer, old, fh, 0, 2);
	expect_bytes(f, read, "v1");
	fake_delete("f");
	assert_int_equal(peer_open(&f->peer, node, &f->answer), -ESTALE);
	assert_int_equal(peer_lookup(&f->peer, ROOT, "f", &f->answer), 0);
	assert_true(f->answer.entry.nodeid == 0);
	/* Nothing fresh to go by: opened as it was looked up. */
	node = lookup(f, lookup(f, ROOT, "d"), "g");
	fake_put("d/g", "w2", 10);
	fake_set_fresh(false);
	open_file(f, node);
}

/* The VFS tries once more, not twice: whatever happens meanwhile, the second answer is no ESTALE. */
static void changed_again_between_the_tries(void **state)
{
	struct fixture *f = *state;
	uint64_t old = lookup(f, ROOT, "f"), node, read;

	fake_put("f", "v2", 100);
	assert_int_equal(peer_open(&f->peer, old, &f->answer), -ESTALE);
	node = lookup(f, ROOT, "f");
	fake_put("f", "v3", 100);
	read = peer_send_read(&f->peer, node, open_file(f, node), 0, 2);
	expect_bytes(f, read, "v2");
	/* Only that one. */
	assert_int_equal(peer_open(&f->peer, node, &f->answer), -ESTALE);
}

static void read_meets_another_version(void **state)
{
	struct fixture *f = *state;
	uint64_t node = lookup(f, ROOT, "f"), fh = open_file(f, node);

	fake_set_read_error(-ENOENT);
	peer_send_read(&f->peer, node, fh, 0, 2);
	peer_receive(&f->peer, &f->answer);
	assert_int_equal(f->answer.header.error, -ESTALE);
	assert_int_equal(fake_forgotten(), 1);
	assert_int_equal(peer_open(&f->peer, node, &f->answer), -ESTALE);
	assert_true(lookup(f, ROOT, "f") != node);
	fake_set_read_error(-EIO);
	peer_send_read(&f->peer, node, fh, 0, 2);
	peer_receive(&f->peer, &f->answer);
	assert_int_equal(f->answer.header.error, -EIO);
}

/* A handle of the daemon before: its node tells what to read. */
static void unknown_handle(void **state)
{
	struct fixture *f = *state;
	uint64_t node = lookup(f, ROOT, "f"), read;

	read = peer_send_read(&f->peer, node, 999999, 1, 3);
	expect_bytes(f, read, "1v1");
	peer_release(&f->peer, node, 999999);
	peer_send_read(&f->peer, ROOT, 999999, 0, 1);
	peer_receive(&f->peer, &f->answer);
	assert_int_equal(f->answer.header.error, -EISDIR);
}

static void writing(void **state)
{
	struct fixture *f = *state;
	struct fuse_open_in in = {.flags = 1 /* O_WRONLY */};
	uint64_t node = lookup(f, ROOT, "f");

	assert_int_equal(peer_call(&f->peer, FUSE_OPEN, node, &in, sizeof in, &f->answer), -EROFS);
	assert_int_equal(peer_open(&f->peer, ROOT, &f->answer), -EISDIR);
}

/* Also the offset after the last one. */
static size_t count_entries(
	const struct answer *answer, size_t *ret_with_node, uint64_t *ret_offset)
{
	size_t at = 0, n = 0;
	uint64_t last = 0;

	*ret_with_node = 0;
	for (; at < answer->size; n++) {
		const struct fuse_direntplus *entry = (const void *)(answer->bytes + at);

		assert_true(entry->dirent.off > last);
		last = entry->dirent.off;
		*ret_with_node += entry->entry_out.nodeid != 0;
		at += FUSE_DIRENTPLUS_SIZE(entry);
	}
	*ret_offset = last;
	return n;
}

static void directory(void **state)
{
	struct fixture *f = *state;
	struct fuse_open_in in = {0};
	struct fuse_read_in read = {.size = 4096};
	size_t with_node;

	fake_put("unknown", "", 0); /* the listing knows its kind only */
	assert_int_equal(peer_call(&f->peer, FUSE_OPENDIR, ROOT, &in, sizeof in, &f->answer), 0);
	read.fh = f->answer.open.fh;
	assert_int_equal(
		peer_call(&f->peer, FUSE_READDIRPLUS, ROOT, &read, sizeof read, &f->answer), 0);
	assert_int_equal(count_entries(&f->answer, &with_node, &read.offset), 5);
	assert_int_equal(with_node, 2);
	assert_int_equal(
		peer_call(&f->peer, FUSE_READDIRPLUS, ROOT, &read, sizeof read, &f->answer), 0);
	assert_int_equal(f->answer.size, 0);
	/* One entry a page, and by a handle that nobody knows. */
	read.fh = 77;
	read.offset = 0;
	read.size = 200;
	for (size_t n = 0; n < 5; n++) {
		assert_int_equal(
			peer_call(&f->peer, FUSE_READDIRPLUS, ROOT, &read, sizeof read, &f->answer),
			0);
		assert_int_equal(count_entries(&f->answer, &with_node, &read.offset), 1);
	}
	assert_int_equal(
		peer_call(&f->peer, FUSE_OPENDIR, 4242, &in, sizeof in, &f->answer), -ESTALE);
}

static void crowded(void **state)
{
	struct fixture *f = *state;
	struct fuse_open_in in = {0};
	struct answer *answer = &f->answer;
	char version[16];
	int r = 0;

	for (int i = 0; i < 70 && !r; i++) {
		snprintf(version, sizeof version, "v%d", i);
		fake_put("f", version, 1);
		r = peer_lookup(&f->peer, ROOT, "f", answer);
	}
	assert_int_equal(r, -ENFILE);
	assert_int_equal(peer_call(&f->peer, FUSE_OPENDIR, ROOT, &in, sizeof in, answer), 0);
}

/* Above three quarters of the nodes the kernel is asked to forget the oldest, and not what is open. */
static void pruned(void **state)
{
	struct fixture *f = *state;
	uint64_t first = lookup(f, ROOT, "f"), fh = open_file(f, first), node = 0;
	char version[16];

	for (int i = 0; !f->peer.n_pruned; i++) {
		struct fuse_getattr_in in = {0};

		/* Below the ceiling it goes on at once, whether or not the kernel did anything. */
		if (i < 50) {
			snprintf(version, sizeof version, "w%d", i);
			fake_put("f", version, 1);
			node = lookup(f, ROOT, "f");
		}
		assert_int_equal(
			peer_call(&f->peer, FUSE_GETATTR, node, &in, sizeof in, &f->answer), 0);
	}
	for (size_t i = 0; i < f->peer.n_pruned; i++) {
		assert_true(f->peer.pruned[i] != first && f->peer.pruned[i] != ROOT);
		assert_true(!i || f->peer.pruned[i] > f->peer.pruned[i - 1]);
		peer_forget(&f->peer, f->peer.pruned[i], 1);
	}
	while (nodes_count(&f->fs->nodes) > 40)
		sched_yield();
	assert_true(lookup(f, ROOT, "f") == node);
	expect_bytes(f, peer_send_read(&f->peer, first, fh, 0, 2), "v1");
}

static void strict(void **state)
{
	struct fixture *f = *state;
	uint64_t node = lookup(f, ROOT, "f"), open;
	struct fuse_open_in in = {0};

	assert_int_equal(f->answer.entry.entry_valid, 0);
	fake_hold();
	open = peer_send(&f->peer, FUSE_OPEN, node, &in, sizeof in);
	wait_until_held(1);
	fake_put("f", "v2", 5);
	fake_set_fresh(false);
	fake_let_go();
	peer_receive(&f->peer, &f->answer);
	assert_true(f->answer.header.unique == open);
	assert_int_equal(f->answer.header.error, -ESTALE);
	assert_true(lookup(f, ROOT, "f") != node);
}

static void attributes(void **state)
{
	struct fixture *f = *state;
	struct {
		struct fuse_getxattr_in in;
		char name[32];
	} get = {.in.size = 64};
	uint64_t node = lookup(f, ROOT, "f");

	strcpy(get.name, "user.cachefs.version");
	assert_int_equal(peer_call(&f->peer, FUSE_GETXATTR, node, &get, sizeof get, &f->answer), 0);
	assert_memory_equal(f->answer.bytes, "v1", 2);
	strcpy(get.name, "security.capability");
	assert_int_equal(
		peer_call(&f->peer, FUSE_GETXATTR, node, &get, sizeof get, &f->answer), -ENODATA);
	get.in.size = 1;
	strcpy(get.name, "user.cachefs.warm");
	assert_int_equal(
		peer_call(&f->peer, FUSE_GETXATTR, node, &get, sizeof get, &f->answer), -ERANGE);
	assert_int_equal(peer_call(&f->peer, FUSE_STATFS, ROOT, NULL, 0, &f->answer), 0);
}

/* The device ends while requests are parked: tear_down answers them after that. */
static void ends_with_parked(void **state)
{
	struct fixture *f = *state;
	uint64_t file = lookup(f, ROOT, "f"), fh = open_file(f, file);
	struct fuse_open_in in = {0};

	assert_int_equal(peer_call(&f->peer, FUSE_OPENDIR, ROOT, &in, sizeof in, &f->answer), 0);
	fake_set_warm(true);
	open_file(f, lookup(f, lookup(f, ROOT, "d"), "g"));
	fake_hold();
	for (int i = 0; i < 10; i++)
		peer_send_read(&f->peer, file, fh, 0, 4);
	peer_send(&f->peer, FUSE_LOOKUP, ROOT, "f", 2);
	wait_until_held(11);
	assert_int_equal(parking_count(&f->fs->parking), 11);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(init),
		TEST(names),
		TEST(forgotten),
		TEST(parked_read),
		TEST(killed),
		TEST(interrupted_and_alive),
		TEST(interrupted_early),
		TEST(becomes_warm),
		TEST(backing_refused),
		TEST(changed),
		TEST(changed_again_between_the_tries),
		TEST(read_meets_another_version),
		TEST(unknown_handle),
		TEST(writing),
		TEST(directory),
		TEST(crowded),
		TEST(pruned),
		TEST(attributes),
		TEST(ends_with_parked),
		cmocka_unit_test_setup_teardown(strict, set_up_strict, tear_down),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
