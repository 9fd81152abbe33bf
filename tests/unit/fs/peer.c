#include "peer.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_MS 20000
#define SILENCE_MS  50

void peer_new(struct peer *peer, int *ret_device)
{
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	*peer = (struct peer){.fd = fds[0], .pid = getpid()};
	*ret_device = fds[1];
}

void peer_close(struct peer *peer)
{
	close(peer->fd);
}

uint64_t peer_send(struct peer *peer, uint32_t opcode, uint64_t node, const void *body, size_t size)
{
	struct fuse_in_header header = {
		.len = (uint32_t)(sizeof header + size),
		.opcode = opcode,
		.unique = peer->unique += 2,
		.nodeid = node,
		.pid = (uint32_t)peer->pid,
	};
	struct iovec iov[2] = {{&header, sizeof header}, {(void *)body, size}};

	assert_int_equal(writev(peer->fd, iov, 2), header.len);
	peer->last_size = 0;
	if (header.len > sizeof peer->last)
		return header.unique;
	memcpy(peer->last, &header, sizeof header);
	if (size)
		memcpy(peer->last + sizeof header, body, size);
	peer->last_size = header.len;
	return header.unique;
}

uint64_t peer_resend(struct peer *peer)
{
	struct fuse_in_header header;

	assert_true(peer->last_size);
	memcpy(&header, peer->last, sizeof header);
	header.unique |= 1ull << 63;
	memcpy(peer->last, &header, sizeof header);
	assert_int_equal(write(peer->fd, peer->last, peer->last_size), peer->last_size);
	return header.unique;
}

void peer_expect_take_over(struct peer *peer, bool resend)
{
	struct answer answer;

	peer_receive(peer, &answer);
	assert_int_equal(answer.size, sizeof answer.init);
	if (!resend)
		return;
	peer_receive(peer, &answer);
	assert_true(answer.header.unique == 0);
	assert_int_equal(answer.header.error, 7);
	assert_int_equal(answer.header.len, 16);
}

static bool wait_for_answer(struct peer *peer, int timeout_ms)
{
	struct pollfd fd = {.fd = peer->fd, .events = POLLIN};

	return poll(&fd, 1, timeout_ms) == 1;
}

/* True: it was no answer. */
static bool take_prune(struct peer *peer, const struct answer *answer)
{
	uint32_t count;

	if (answer->header.unique || answer->header.error != 9)
		return false;
	memcpy(&count, answer->bytes, sizeof count);
	assert_int_equal(answer->size, 16 + count * sizeof(uint64_t));
	assert_true(count <= 64);
	memcpy(peer->pruned, answer->bytes + 16, count * sizeof(uint64_t));
	peer->n_pruned = count;
	return true;
}

static void receive_one(struct peer *peer, struct answer *ret)
{
	struct iovec iov[2] = {{&ret->header, sizeof ret->header}, {ret->bytes, sizeof ret->bytes}};
	ssize_t n;

	assert_true(wait_for_answer(peer, PATIENCE_MS));
	n = readv(peer->fd, iov, 2);
	assert_true(n >= (ssize_t)sizeof ret->header);
	assert_int_equal(n, ret->header.len);
	ret->size = (size_t)n - sizeof ret->header;
}

void peer_receive(struct peer *peer, struct answer *ret)
{
	do {
		receive_one(peer, ret);
	} while (take_prune(peer, ret));
}

void peer_expect_silence(struct peer *peer)
{
	assert_false(wait_for_answer(peer, SILENCE_MS));
}

int peer_call(struct peer *peer, uint32_t opcode, uint64_t node, const void *body, size_t size,
	struct answer *ret)
{
	uint64_t unique = peer_send(peer, opcode, node, body, size);

	peer_receive(peer, ret);
	assert_true(ret->header.unique == unique);
	return ret->header.error;
}

void peer_send_init(struct peer *peer, uint64_t flags)
{
	struct fuse_init_in init = {
		.major = 7,
		.minor = 44,
		.max_readahead = 1 << 17,
		.flags = (uint32_t)flags | FUSE_INIT_EXT | FUSE_MAX_PAGES,
		.flags2 = (uint32_t)(flags >> 32),
	};

	peer_send(peer, FUSE_INIT, 0, &init, sizeof init);
}

int peer_lookup(struct peer *peer, uint64_t parent, const char *name, struct answer *ret)
{
	return peer_call(peer, FUSE_LOOKUP, parent, name, strlen(name) + 1, ret);
}

int peer_open(struct peer *peer, uint64_t node, struct answer *ret)
{
	struct fuse_open_in in = {0};

	return peer_call(peer, FUSE_OPEN, node, &in, sizeof in, ret);
}

void peer_release(struct peer *peer, uint64_t node, uint64_t fh)
{
	struct fuse_release_in in = {.fh = fh};
	struct answer answer;

	assert_int_equal(peer_call(peer, FUSE_RELEASE, node, &in, sizeof in, &answer), 0);
}

uint64_t peer_send_read(
	struct peer *peer, uint64_t node, uint64_t fh, uint64_t offset, uint32_t size)
{
	struct fuse_read_in in = {.fh = fh, .offset = offset, .size = size};

	return peer_send(peer, FUSE_READ, node, &in, sizeof in);
}

void peer_interrupt(struct peer *peer, uint64_t unique)
{
	struct fuse_interrupt_in in = {.unique = unique};

	peer_send(peer, FUSE_INTERRUPT, 0, &in, sizeof in);
}

void peer_forget(struct peer *peer, uint64_t node, uint64_t n)
{
	struct fuse_forget_in in = {.nlookup = n};

	peer_send(peer, FUSE_FORGET, node, &in, sizeof in);
}
