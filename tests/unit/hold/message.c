#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "message.h"
#include "mounts.h"

struct pair {
	int near, far;
};

static int make_pair(void **state)
{
	static struct pair pair;
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	pair = (struct pair){fds[0], fds[1]};
	*state = &pair;
	return 0;
}

static int drop_pair(void **state)
{
	struct pair *pair = *state;

	close(pair->near);
	if (pair->far >= 0)
		close(pair->far);
	return 0;
}

static unsigned open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static int a_file(const char *text)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	return fd;
}

static void assert_reads(int fd, const char *text)
{
	char got[32] = "";

	assert_true(pread(fd, got, sizeof got - 1, 0) >= 0);
	assert_string_equal(got, text);
}

static void a_message_arrives_with_its_descriptors(void **state)
{
	struct pair *pair = *state;
	struct hold_packet packet;
	const struct hold_message head = {.version = 1, .type = HOLD_PUT, .id = 1ull << 40};
	int fds[2] = {a_file("device"), a_file("table")};

	assert_int_equal(message_send(pair->near, &head, "text", 4, fds, 2, 0), 0);
	close(fds[0]);
	close(fds[1]);
	assert_int_equal(message_receive(pair->far, &packet, 0), 1);
	assert_int_equal(packet.head.type, HOLD_PUT);
	assert_true(packet.head.id == 1ull << 40);
	assert_string_equal(packet.payload, "text");
	assert_reads(packet.fds[0], "device");
	assert_reads(packet.fds[1], "table");
	assert_true(fcntl(packet.fds[0], F_GETFD) & FD_CLOEXEC);
	message_close_fds(&packet);
	assert_int_equal(message_receive(pair->far, &packet, MSG_DONTWAIT), -EAGAIN);
}

static void the_largest_payload_passes_and_no_larger_one(void **state)
{
	static char text[HOLD_DESCRIPTION_MAX + 1];
	struct pair *pair = *state;
	struct hold_packet packet;
	const struct hold_message head = {.version = 1, .type = HOLD_PUT};

	memset(text, 'x', sizeof text);
	assert_int_equal(message_send(pair->near, &head, text, sizeof text, NULL, 0, 0), -EFBIG);
	assert_int_equal(
		message_send(pair->near, &head, text, HOLD_DESCRIPTION_MAX, NULL, 0, 0), 0);
	assert_int_equal(message_receive(pair->far, &packet, 0), 1);
	assert_int_equal(packet.head.size, HOLD_DESCRIPTION_MAX);
	assert_int_equal(strlen(packet.payload), HOLD_DESCRIPTION_MAX);
}

static void send_raw(int socket, const void *bytes, size_t size, const int *fds, size_t n_fds)
{
	char control[CMSG_SPACE(4 * sizeof(int))] = "";
	struct iovec iov = {(void *)bytes, size};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *c;

	if (n_fds) {
		msg.msg_control = control;
		msg.msg_controllen = CMSG_SPACE(n_fds * sizeof *fds);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n_fds * sizeof *fds);
		memcpy(CMSG_DATA(c), fds, n_fds * sizeof *fds);
	}
	assert_int_equal(sendmsg(socket, &msg, 0), size);
}

static void garbage_is_dropped_with_its_descriptors(void **state)
{
	static char large[sizeof(struct hold_message) + HOLD_DESCRIPTION_MAX + 1];
	struct pair *pair = *state;
	struct hold_packet packet;
	struct hold_message head = {.magic = HOLD_MAGIC, .version = 1, .type = HOLD_PUT};
	int fds[4];
	unsigned before;

	for (size_t i = 0; i < 4; i++)
		fds[i] = a_file("x");
	before = open_descriptors();
	send_raw(pair->near, "short", 5, fds, 2);
	head.size = 1;
	send_raw(pair->near, &head, sizeof head, fds, 2);
	head.size = 0;
	head.magic ^= 1;
	send_raw(pair->near, &head, sizeof head, fds, 2);
	head.magic ^= 1;
	send_raw(pair->near, &head, sizeof head, fds, 4);
	memcpy(large, &head, sizeof head);
	send_raw(pair->near, large, sizeof large, fds, 1);
	for (int i = 0; i < 5; i++)
		assert_int_equal(message_receive(pair->far, &packet, MSG_DONTWAIT), -EBADMSG);
	assert_int_equal(open_descriptors(), before);
	send_raw(pair->near, &head, sizeof head, NULL, 0);
	assert_int_equal(message_receive(pair->far, &packet, MSG_DONTWAIT), 1);
	for (size_t i = 0; i < 4; i++)
		close(fds[i]);
}

static void last_words_are_read_after_a_reset(void **state)
{
	struct pair *pair = *state;
	struct hold_packet packet;
	const struct hold_message head = {.version = 1, .type = HOLD_READY};

	assert_int_equal(message_send(pair->near, &head, NULL, 0, NULL, 0, 0), 0);
	assert_int_equal(message_send(pair->far, &head, NULL, 0, NULL, 0, 0), 0);
	close(pair->far);
	pair->far = -1;
	assert_int_equal(message_receive(pair->near, &packet, 0), 1);
	assert_int_equal(packet.head.type, HOLD_READY);
	assert_int_equal(message_receive(pair->near, &packet, 0), 0);
}

static void mounts_are_kept_changed_and_dropped(void **state)
{
	static struct kept_mounts mounts;
	static char large[HOLD_DESCRIPTION_MAX + 1];
	unsigned before = open_descriptors();

	(void)state;
	for (unsigned i = 0; i < HOLD_MOUNTS_MAX; i++)
		assert_int_equal(mounts_add(&mounts, i, "text", 4, a_file("d"), a_file("t")), 0);
	assert_int_equal(mounts_add(&mounts, 999, "text", 4, 0, 0), -ENOSPC);
	assert_int_equal(mounts_add(&mounts, 5, "text", 4, 0, 0), -EEXIST);
	assert_int_equal(mounts_drop(&mounts, 5), 0);
	assert_int_equal(mounts_drop(&mounts, 5), -ENOENT);
	assert_int_equal(mounts_change(&mounts, 5, "text", 4), -ENOENT);
	assert_int_equal(mounts_add(&mounts, 5, large, sizeof large, 0, 0), -EFBIG);
	assert_int_equal(mounts_change(&mounts, 6, large, sizeof large), -EFBIG);
	assert_int_equal(mounts_change(&mounts, 6, "other text", 10), 0);
	assert_memory_equal(mounts.slots[6].description, "other text", 10);
	assert_int_equal(mounts.slots[6].size, 10);
	assert_int_equal(mounts.count, HOLD_MOUNTS_MAX - 1);
	mounts_drop_all(&mounts);
	assert_int_equal(mounts.count, 0);
	assert_int_equal(open_descriptors(), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			a_message_arrives_with_its_descriptors, make_pair, drop_pair),
		cmocka_unit_test_setup_teardown(
			the_largest_payload_passes_and_no_larger_one, make_pair, drop_pair),
		cmocka_unit_test_setup_teardown(
			garbage_is_dropped_with_its_descriptors, make_pair, drop_pair),
		cmocka_unit_test_setup_teardown(
			last_words_are_read_after_a_reset, make_pair, drop_pair),
		cmocka_unit_test(mounts_are_kept_changed_and_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
