/*
 * message: what daemon, keeper and `cachefs upgrade` say to each other, one SOCK_SEQPACKET packet
 * a message.
 *
 * A program of one version talks to that of another, so the header never changes, types are only
 * added, unknown ones are ignored, and each side speaks the lower of the two versions of HELLO.
 *
 *     daemon                    keeper
 *     HELLO version      →
 *                        ←      HELLO version, or ERROR
 *                        ←      MOUNT id description {device, table}, for each
 *                        ←      MOUNTS_END hold_standing
 *     READY              →
 *     PUT id description {device, table}, PUT_AGAIN id description
 *                        →
 *                        ←      OK id, or ERROR id error
 *     DROP id, BEAT      →
 *                        ←      STOP
 *
 *     cachefs upgrade           keeper
 *     UPGRADE path {binary} →
 *                        ←      OK sentence, or ERROR error sentence
 */
#ifndef HOLD_MESSAGE_H
#define HOLD_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

#include "hold/client.h"

#define HOLD_MAGIC          0x31646c68u
#define HOLD_VERSION        1
#define HOLD_VERSION_OLDEST 1
#define HOLD_FDS_MAX        2

enum hold_type {
	HOLD_HELLO = 1,
	HOLD_PUT,
	HOLD_PUT_AGAIN,
	HOLD_DROP,
	HOLD_READY,
	HOLD_BEAT,
	HOLD_MOUNT,
	HOLD_MOUNTS_END,
	HOLD_OK,
	HOLD_ERROR,
	HOLD_STOP,
	HOLD_UPGRADE,
};

struct hold_message {
	uint32_t magic;
	uint16_t version, type;
	uint64_t id;
	uint32_t size; /* of the payload after it */
	int32_t error; /* a negative errno in ERROR, else 0 */
};

/* MOUNTS_END's payload; longer in later versions. */
struct hold_standing {
	uint32_t pid, restarts;
	int32_t last_status;
};

struct hold_packet {
	struct hold_message head;
	char payload[HOLD_DESCRIPTION_MAX + 1]; /* and a NUL that is not counted */
	int fds[HOLD_FDS_MAX];                  /* the receiver's; -1 where none came */
};

/* Sends one message; head's magic and size are filled in here. The descriptors stay the caller's.
 * flags: of sendmsg(2). 0 or -errno. */
int message_send(int fd, const struct hold_message *head, const void *payload, size_t size,
	const int *fds, size_t n_fds, int flags);
/* Receives one message. 1; 0: the other side is gone; -EAGAIN; -EBADMSG: it was none of ours, and
 * is dropped with its descriptors. */
int message_receive(int fd, struct hold_packet *packet, int flags);
/* Closes the descriptors that nobody took. */
void message_close_fds(struct hold_packet *packet);

#endif
