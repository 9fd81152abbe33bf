/* peer: the kernel's side of /dev/fuse, scripted: raw messages over a socket that keeps their
 * boundaries. One thread. */
#ifndef PEER_H
#define PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <linux/fuse.h>

struct peer {
	int fd;
	uint64_t unique;   /* of the last request */
	pid_t pid;         /* said to be the requests' */
	uint8_t last[512]; /* the last request */
	size_t last_size;
	/* Asked for by FUSE_NOTIFY_PRUNE, which peer_receive takes note of. */
	uint64_t pruned[64];
	size_t n_pruned;
};

struct answer {
	struct fuse_out_header header;
	union {
		uint8_t bytes[65536];
		struct fuse_init_out init;
		struct fuse_entry_out entry;
		struct fuse_attr_out attr;
		struct fuse_open_out open;
	};
	size_t size; /* of the body */
};

/* Both ends; device is for fs_new. */
void peer_new(struct peer *peer, int *ret_device);
void peer_close(struct peer *peer);
/* Returns the request's unique. */
uint64_t peer_send(
	struct peer *peer, uint32_t opcode, uint64_t node, const void *body, size_t size);
/* Sends the last request once more, as after FUSE_NOTIFY_RESEND. Returns its unique. */
uint64_t peer_resend(struct peer *peer);
/* Waits for the next answer of any request; fails the test when none comes. */
void peer_receive(struct peer *peer, struct answer *ret);
/* Fails the test when an answer is there. */
void peer_expect_silence(struct peer *peer);
/* Sends, and receives the answer, which must be of this request. Returns its error. */
int peer_call(struct peer *peer, uint32_t opcode, uint64_t node, const void *body, size_t size,
	struct answer *ret);

void peer_send_init(struct peer *peer, uint64_t flags);
/* Receives FUSE_NOTIFY_RESEND, after INIT's reply, which a successor repeats. */
void peer_expect_take_over(struct peer *peer, bool resend);
int peer_lookup(struct peer *peer, uint64_t parent, const char *name, struct answer *ret);
int peer_open(struct peer *peer, uint64_t node, struct answer *ret);
void peer_release(struct peer *peer, uint64_t node, uint64_t fh);
uint64_t peer_send_read(
	struct peer *peer, uint64_t node, uint64_t fh, uint64_t offset, uint32_t size);
void peer_interrupt(struct peer *peer, uint64_t unique);
void peer_forget(struct peer *peer, uint64_t node, uint64_t n);

#endif
