#include "old_protocol.h"

#include <string.h>
#include <sys/socket.h>

/* 0 magic u32 | 4 version u16 | 6 type u16 | 8 id u64 | 16 size u32 | 20 error i32, the host's byte
 * order, and then the payload. */
#define OLD_HEADER 24
#define OLD_MOUNT  7
static const uint32_t old_magic = 0x31646c68;

static size_t put_header(char *bytes, uint16_t version, uint16_t type, uint64_t id, uint32_t size)
{
	memset(bytes, 0, OLD_HEADER);
	memcpy(bytes, &old_magic, 4);
	memcpy(bytes + 4, &version, 2);
	memcpy(bytes + 6, &type, 2);
	memcpy(bytes + 8, &id, 8);
	memcpy(bytes + 16, &size, 4);
	return OLD_HEADER;
}

int old_say(int fd, uint16_t version, uint16_t type, uint64_t id)
{
	char bytes[OLD_HEADER];

	put_header(bytes, version, type, id, 0);
	return send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) == sizeof bytes ? 0 : -1;
}

int old_put(int fd, uint64_t id, const char *description, int device, int table)
{
	char bytes[OLD_HEADER + 64], control[CMSG_SPACE(2 * sizeof(int))] = "";
	size_t size = strlen(description);
	struct iovec iov = {bytes, OLD_HEADER + size};
	struct msghdr msg = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof control};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	const int fds[] = {device, table};

	put_header(bytes, 1, 2, id, (uint32_t)size);
	memcpy(bytes + OLD_HEADER, description, size);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof fds);
	memcpy(CMSG_DATA(c), fds, sizeof fds);
	return sendmsg(fd, &msg, MSG_NOSIGNAL) == (ssize_t)iov.iov_len ? 0 : -1;
}

static void take_mount(struct msghdr *msg, const char *bytes, size_t size, struct old_mount *mount)
{
	const struct cmsghdr *c = CMSG_FIRSTHDR(msg);
	int fds[2] = {-1, -1};

	if (c)
		memcpy(fds, CMSG_DATA(c), sizeof fds);
	mount->device = fds[0];
	mount->table = fds[1];
	memcpy(&mount->id, bytes + 8, 8);
	memset(mount->description, 0, sizeof mount->description);
	memcpy(mount->description, bytes + OLD_HEADER, size - OLD_HEADER);
}

int old_listen(int fd, struct old_mount *mount, uint16_t *ret_version)
{
	char bytes[OLD_HEADER + 63], control[CMSG_SPACE(2 * sizeof(int))];
	struct iovec iov = {bytes, sizeof bytes};
	struct msghdr msg = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof control};
	ssize_t n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
	uint16_t type;

	if (n < OLD_HEADER || memcmp(bytes, &old_magic, 4) != 0)
		return -1;
	memcpy(ret_version, bytes + 4, 2);
	memcpy(&type, bytes + 6, 2);
	if (type == OLD_MOUNT)
		take_mount(&msg, bytes, (size_t)n, mount);
	return type;
}
