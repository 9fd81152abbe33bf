/*
 * cachefs-bench-delay MS NETNS DEVICE NETNS DEVICE: a wire with length. Makes a TUN device in each of
 * two network namespaces (files such as /proc/PID/ns/net) and hands what is sent into one of them
 * out of the other, in order, MS milliseconds later. Says "ready", and ends with its standard input;
 * the devices go with it.
 *
 * Packets pass as the kernel made them: with TUN's offloads a segment of 64 KiB is one packet here,
 * its checksum not computed (Documentation/networking/tuntap.rst, include/uapi/linux/virtio_net.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum {
	PACKET_MAX = sizeof(struct virtio_net_hdr) + (64 << 10),
	WIRE_BYTES = 64 << 20, /* under way in one direction; the rest waits in the device */
	BATCH = 64,            /* packets taken in before what is due goes out */
	MAX_MS = 10000,
};

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)

struct packet {
	uint64_t due_ns;
	uint32_t size_bytes; /* 0: nothing here, go on at the start of the ring */
	char data[];
};

/* One direction; its thread's own. Packets lie in [tail, head), which may go round the end once. */
struct wire {
	int from, to;
	uint64_t delay_ns;
	char *ring; /* WIRE_BYTES */
	size_t head, tail;
	bool full; /* head == tail means that, not empty */
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static size_t packet_space(size_t size_bytes)
{
	size_t align = _Alignof(struct packet);

	return (sizeof(struct packet) + size_bytes + align - 1) / align * align;
}

static struct packet *packet_at(const struct wire *wire, size_t at)
{
	return (struct packet *)(void *)(wire->ring + at);
}

/* Where the next packet may be put, with room for the largest; NULL when the wire is full. */
static struct packet *wire_room(struct wire *wire)
{
	size_t need = packet_space(PACKET_MAX);

	if (wire->full)
		return NULL;
	if (wire->head < wire->tail)
		return wire->tail - wire->head >= need ? packet_at(wire, wire->head) : NULL;
	if (WIRE_BYTES - wire->head >= need + sizeof(struct packet))
		return packet_at(wire, wire->head);
	if (wire->tail < need)
		return NULL;
	packet_at(wire, wire->head)->size_bytes = 0;
	wire->head = 0;
	return packet_at(wire, 0);
}

static bool wire_empty(const struct wire *wire)
{
	return wire->head == wire->tail && !wire->full;
}

static struct packet *wire_first(struct wire *wire)
{
	if (!wire_empty(wire) && packet_at(wire, wire->tail)->size_bytes == 0) {
		wire->tail = 0;
		wire->full = false;
	}
	return wire_empty(wire) ? NULL : packet_at(wire, wire->tail);
}

static int take_in(struct wire *wire)
{
	for (unsigned i = 0; i < BATCH; i++) {
		struct packet *packet = wire_room(wire);
		if (!packet)
			return 0;
		ssize_t size_bytes = read(wire->from, packet->data, PACKET_MAX);
		if (size_bytes <= 0)
			return size_bytes == 0 || errno == EAGAIN || errno == EINTR ? 0 : -errno;
		packet->size_bytes = (uint32_t)size_bytes;
		packet->due_ns = now_ns() + wire->delay_ns;
		wire->head += packet_space(packet->size_bytes);
		wire->full = wire->head == wire->tail;
	}
	return 0;
}

/* The time until the next packet is due; UINT64_MAX when none is under way. */
static uint64_t let_out(struct wire *wire)
{
	struct packet *packet;

	while ((packet = wire_first(wire))) {
		uint64_t now = now_ns();
		if (packet->due_ns > now)
			return packet->due_ns - now;
		/* What the other end doesn't take (its device is down) is lost, as on a wire. */
		(void)!write(wire->to, packet->data, packet->size_bytes);
		wire->tail += packet_space(packet->size_bytes);
		wire->full = false;
	}
	return UINT64_MAX;
}

static void *run_wire(void *arg)
{
	struct wire *wire = arg;

	for (;;) {
		int r = take_in(wire);
		if (r < 0) {
			fprintf(stderr, "cachefs-bench-delay: read: %s\n", strerror(-r));
			exit(1);
		}
		uint64_t wait_ns = let_out(wire);
		struct timespec wait = {
			.tv_sec = (time_t)(wait_ns / NS_PER_S),
			.tv_nsec = (long)(wait_ns % NS_PER_S),
		};
		struct pollfd poll = {.fd = wire->from, .events = POLLIN};
		ppoll(&poll, wire_room(wire) ? 1 : 0, wait_ns == UINT64_MAX ? NULL : &wait, NULL);
	}
	return NULL;
}

/* A descriptor of /dev/net/tun belongs to the namespace of whoever opened it. */
static int make_device(const char *netns, const char *name)
{
	struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
	int space = open(netns, O_RDONLY | O_CLOEXEC);

	if (space < 0)
		return -errno;
	int r = setns(space, CLONE_NEWNET) < 0 ? -errno : 0;
	close(space);
	if (r < 0)
		return r;
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	if (ioctl(fd, TUNSETIFF, &request) < 0 ||
		ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) < 0) {
		r = -errno;
		close(fd);
		return r;
	}
	return fd;
}

static int start_wire(int from, int to, uint64_t delay_ns)
{
	struct wire *wire = calloc(1, sizeof(*wire));
	pthread_t thread;

	if (!wire)
		return -ENOMEM;
	*wire = (struct wire){.from = from, .to = to, .delay_ns = delay_ns};
	wire->ring =
		mmap(NULL, WIRE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int r = wire->ring == MAP_FAILED ? -errno : -pthread_create(&thread, NULL, run_wire, wire);
	if (r < 0 && wire->ring != MAP_FAILED)
		munmap(wire->ring, WIRE_BYTES);
	if (r < 0)
		free(wire); /* else the thread's, to the end of the process */
	return r;
}

static int run(uint64_t delay_ns, char **ends)
{
	const struct sched_param first = {.sched_priority = 1};
	char byte;

	int a = make_device(ends[0], ends[1]);
	if (a < 0)
		return a;
	int b = make_device(ends[2], ends[3]);
	if (b < 0) {
		close(a);
		return b;
	}
	/* A wire doesn't wait for a processor, or for a timer that fires when it is convenient. The
	 * threads inherit both. */
	if (sched_setscheduler(0, SCHED_FIFO, &first) < 0 || prctl(PR_SET_TIMERSLACK, 1UL) < 0)
		return -errno;
	int r = start_wire(a, b, delay_ns);
	if (r == 0)
		r = start_wire(b, a, delay_ns);
	if (r < 0)
		return r;
	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	return 0;
}

int main(int argc, char **argv)
{
	char *end = NULL;
	double ms = argc == 6 ? strtod(argv[1], &end) : -1;

	if (!(ms >= 0 && ms <= MAX_MS) || end == argv[1] || *end) {
		fputs("usage: cachefs-bench-delay MS NETNS DEVICE NETNS DEVICE\n"
		      "example: cachefs-bench-delay 25 /proc/self/ns/net near /proc/1234/ns/net "
		      "far\n",
			stderr);
		return 2;
	}
	int r = run((uint64_t)(ms * (double)NS_PER_MS), argv + 2);
	if (r < 0) {
		fprintf(stderr, "cachefs-bench-delay: %s\n", strerror(-r));
		return 1;
	}
	return 0;
}
