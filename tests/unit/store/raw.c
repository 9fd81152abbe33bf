#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lease.h"
#include "scratch.h"
#include "store/store.h"

#define MIB (1u << 20)

static const struct id128 object = {0xabcdef0011223344, 0x5566778899aabbcc};
#define OBJECT_FILE "raw/ab/abcdef00112233445566778899aabbcc"

struct fixture {
	void *scratch;
	struct store *store;
	uint8_t *bytes; /* 1 MiB, aligned */
};

static int make(void **state)
{
	static struct fixture fixture;
	void *bytes;

	if (scratch_make(&fixture.scratch) ||
		store_open(fixture.scratch, 0, &fixture.store, NULL) ||
		posix_memalign(&bytes, 4096, MIB))
		return -1;
	fixture.bytes = bytes;
	memset(bytes, 0x5a, MIB);
	*state = &fixture;
	return 0;
}

static int unmake(void **state)
{
	struct fixture *fixture = *state;

	free(fixture->bytes);
	store_close(fixture->store);
	return scratch_remove(&fixture->scratch);
}

static const char *file(const struct fixture *fixture)
{
	return scratch_path(fixture->scratch, OBJECT_FILE);
}

/* The object with its first MiB written. */
static void put_object(const struct fixture *fixture, uint64_t size)
{
	struct raw *raw;

	assert_int_equal(raw_open(fixture->store, object, size, true, &raw), 0);
	assert_int_equal(pwrite(raw_fd(raw, 0, MIB), fixture->bytes, MIB, 0), MIB);
	assert_int_equal(raw_sync(raw), 0);
	raw_close(raw);
}

/* True when the file's file system gives leases; said aloud when not. */
static bool leases(const struct fixture *fixture)
{
	int fd = open(scratch_path(fixture->scratch, "FORMAT"), O_RDONLY);
	int r = lease_take(fd);

	close(fd);
	if (r)
		print_message("[  SKIP    ] no leases on the file system of TMPDIR\n");
	return r == 0;
}

static void a_raw_file_is_made_sparse_and_found_again(void **state)
{
	struct fixture *fixture = *state;
	struct raw_state before, after;
	struct stat st;
	struct raw *raw;

	assert_int_equal(raw_open(fixture->store, object, 5 * MIB, false, &raw), -ENOENT);
	assert_int_equal(raw_open(fixture->store, object, 5 * MIB, true, &raw), 0);
	assert_int_equal(raw_stat(raw, &before), 0);
	assert_int_equal(before.size_bytes, 5 * MIB);
	assert_int_equal(before.disk_bytes, 0);
	assert_int_equal(pwrite(raw_fd(raw, MIB, MIB), fixture->bytes, MIB, MIB), MIB);
	assert_int_equal(raw_sync(raw), 0);
	assert_int_equal(raw_sync(raw), 0);
	assert_int_equal(raw_stat(raw, &after), 0);
	assert_true(after.disk_bytes >= MIB && after.disk_bytes < 2 * MIB);
	assert_true(after.ctime_ns >= before.ctime_ns);
	raw_close(raw);
	assert_int_equal(stat(file(fixture), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);

	assert_int_equal(raw_open(fixture->store, object, 5 * MIB, true, &raw), 0);
	memset(fixture->bytes, 0, MIB);
	assert_int_equal(pread(raw_fd(raw, MIB, MIB), fixture->bytes, MIB, MIB), MIB);
	assert_int_equal(fixture->bytes[MIB - 1], 0x5a);
	raw_close(raw);
}

static void another_length_is_not_taken(void **state)
{
	struct fixture *fixture = *state;
	struct raw *raw;
	uint64_t freed;

	put_object(fixture, 5 * MIB);
	assert_int_equal(raw_open(fixture->store, object, 4 * MIB, false, &raw), -EUCLEAN);
	assert_int_equal(raw_open(fixture->store, object, 4 * MIB, true, &raw), -EUCLEAN);
	assert_int_equal(raw_remove(fixture->store, object, &freed), 0);
	assert_int_equal(raw_open(fixture->store, object, 4 * MIB, true, &raw), 0);
	raw_close(raw);
}

static void a_link_in_the_place_of_a_file_is_not_followed(void **state)
{
	struct fixture *fixture = *state;
	struct raw *raw;

	put_object(fixture, MIB);
	assert_int_equal(unlink(file(fixture)), 0);
	assert_int_equal(symlink("/dev/null", file(fixture)), 0);
	assert_int_equal(raw_open(fixture->store, object, MIB, false, &raw), -ELOOP);
	assert_int_equal(raw_open(fixture->store, object, MIB, true, &raw), -ELOOP);
}

static void an_unaligned_tail_goes_through_the_page_cache(void **state)
{
	struct fixture *fixture = *state;
	const uint64_t size = 4096 + 100;
	struct raw_state stat;
	struct raw *raw;

	assert_int_equal(raw_open(fixture->store, object, size, true, &raw), 0);
	if (store_direct_io(fixture->store))
		assert_int_not_equal(raw_fd(raw, 0, 4096), raw_backing_fd(raw));
	assert_int_equal(raw_fd(raw, 4096, 100), raw_backing_fd(raw));
	assert_int_equal(raw_fd(raw, 1, 4096), raw_backing_fd(raw));
	assert_int_equal(pwrite(raw_fd(raw, 0, 4096), fixture->bytes, 4096, 0), 4096);
	assert_int_equal(pwrite(raw_fd(raw, 4096, 100), fixture->bytes, 100, 4096), 100);
	memset(fixture->bytes, 0, 8192);
	/* Rounded up past the end: what there is comes back. */
	assert_int_equal(pread(raw_fd(raw, 0, 8192), fixture->bytes, 8192, 0), 4196);
	assert_int_equal(fixture->bytes[4195], 0x5a);
	assert_int_equal(raw_stat(raw, &stat), 0);
	assert_int_equal(stat.size_bytes, size);
	raw_close(raw);
}

static void closing_closes(void **state)
{
	struct fixture *fixture = *state;
	struct raw *raw;
	int fd;

	assert_int_equal(raw_open(fixture->store, object, MIB, true, &raw), 0);
	fd = raw_backing_fd(raw);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	raw_close(raw);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	raw_close(NULL);
}

static void an_idle_file_goes_with_its_blocks(void **state)
{
	struct fixture *fixture = *state;
	uint64_t freed = 1;

	assert_int_equal(raw_remove(fixture->store, object, &freed), 0);
	assert_int_equal(freed, 0);
	put_object(fixture, 5 * MIB);
	assert_int_equal(raw_remove(fixture->store, object, &freed), 0);
	assert_true(freed >= MIB);
	assert_int_equal(access(file(fixture), F_OK), -1);
}

static void an_open_or_mapped_file_stays(void **state)
{
	struct fixture *fixture = *state;
	uint64_t freed = 7;
	int fd;
	uint8_t *map;

	if (!leases(fixture))
		skip();
	put_object(fixture, 5 * MIB);
	fd = open(file(fixture), O_RDONLY);
	assert_int_equal(raw_remove(fixture->store, object, &freed), -EBUSY);
	map = mmap(NULL, MIB, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	close(fd);
	assert_int_equal(raw_remove(fixture->store, object, &freed), -EBUSY);
	assert_int_equal(map[MIB - 1], 0x5a);
	assert_int_equal(freed, 7);
	munmap(map, MIB);
	assert_int_equal(raw_remove(fixture->store, object, &freed), 0);
}

static void a_writable_mapping_holds_it_too(void **state)
{
	struct fixture *fixture = *state;
	uint64_t freed;
	int fd;
	void *map;

	if (!leases(fixture))
		skip();
	put_object(fixture, MIB);
	fd = open(file(fixture), O_RDWR);
	map = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	assert_int_equal(raw_remove(fixture->store, object, &freed), -EBUSY);
	munmap(map, MIB);
	assert_int_equal(raw_remove(fixture->store, object, &freed), 0);
}

/* The kernel tells the holder of a lease that somebody waits; that must not end the process. */
static void a_broken_lease_does_not_kill(void **state)
{
	struct fixture *fixture = *state;
	pid_t pid;
	int fd, status;

	if (!leases(fixture))
		skip();
	put_object(fixture, MIB);
	fd = open(file(fixture), O_RDONLY);
	assert_int_equal(lease_take(fd), 0);
	pid = fork();
	if (pid == 0) {
		/* Its copy of the descriptor holds the lease too. */
		close(fd);
		_exit(open(file(fixture), O_RDONLY | O_NONBLOCK) < 0 && errno == EWOULDBLOCK ? 0
											     : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(fd);
	fd = open(file(fixture), O_RDONLY);
	assert_true(fd >= 0);
	close(fd);
}

static int count_one(void *arg, struct id128 found)
{
	unsigned *count = arg;

	assert_int_equal(found.lo, 42);
	return ++*count == 3 ? 77 : 0;
}

static void every_raw_file_is_visited(void **state)
{
	struct fixture *fixture = *state;
	unsigned count = 0;
	struct raw *raw;

	assert_int_equal(raw_each(fixture->store, count_one, &count), 0);
	assert_int_equal(count, 0);
	for (uint64_t i = 0; i < 2; i++) {
		struct id128 id = {i << 60, 42};

		assert_int_equal(raw_open(fixture->store, id, 1, true, &raw), 0);
		raw_close(raw);
	}
	scratch_write(scratch_path(fixture->scratch, "raw/00/README"), "no raw file");
	assert_int_equal(raw_each(fixture->store, count_one, &count), 0);
	assert_int_equal(count, 2);
	assert_int_equal(raw_each(fixture->store, count_one, &count), 77);
}

static void descriptors_are_left_to_others(void **state)
{
	struct fixture *fixture = *state;
	struct rlimit limit, few;
	struct raw *raws[64];
	size_t n = 0;
	int others[8], r = 0;

	getrlimit(RLIMIT_NOFILE, &limit);
	few = limit;
	few.rlim_cur = 64;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	while (n < 64 && !r) {
		struct id128 id = {object.hi, n};

		r = raw_open(fixture->store, id, MIB, true, &raws[n]);
		n += !r;
	}
	assert_int_equal(r, -EMFILE);
	for (size_t i = 0; i < 8; i++) {
		others[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		assert_true(others[i] >= 0);
	}
	for (size_t i = 0; i < 8; i++)
		close(others[i]);
	raw_close(raws[--n]);
	assert_int_equal(raw_open(fixture->store, object, MIB, true, &raws[n]), 0);
	for (n++; n > 0; n--)
		raw_close(raws[n - 1]);
	setrlimit(RLIMIT_NOFILE, &limit);
}

#define store_test(function) cmocka_unit_test_setup_teardown(function, make, unmake)

int main(void)
{
	const struct CMUnitTest tests[] = {
		store_test(descriptors_are_left_to_others),
		store_test(a_raw_file_is_made_sparse_and_found_again),
		store_test(another_length_is_not_taken),
		store_test(a_link_in_the_place_of_a_file_is_not_followed),
		store_test(an_unaligned_tail_goes_through_the_page_cache),
		store_test(closing_closes),
		store_test(an_idle_file_goes_with_its_blocks),
		store_test(an_open_or_mapped_file_stays),
		store_test(a_writable_mapping_holds_it_too),
		store_test(a_broken_lease_does_not_kill),
		store_test(every_raw_file_is_visited),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
