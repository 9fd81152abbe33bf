/*
 * old_protocol: a daemon's side of version 1 of the keeper's protocol, written down once and never
 * changed with the product: what a daemon of the first release says must be understood for ever.
 */
#ifndef TEST_HOLD_OLD_PROTOCOL_H
#define TEST_HOLD_OLD_PROTOCOL_H

#include <stdint.h>

struct old_mount {
	uint64_t id;
	char description[64];
	int device, table;
};

/* Sends a header of the given type without payload. 0 or -1. */
int old_say(int fd, uint16_t version, uint16_t type, uint64_t id);
int old_put(int fd, uint64_t id, const char *description, int device, int table);
/* The type of the next message, -1 at the end; fills mount for a MOUNT, and version. */
int old_listen(int fd, struct old_mount *mount, uint16_t *ret_version);

#endif
