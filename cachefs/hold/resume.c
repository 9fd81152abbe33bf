#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "private.h"

#define STATE_MAGIC 0x3165746174736868ull

/* Only what can't be found out anew. Descriptors are numbers: they stay open through exec. */
struct state {
	uint64_t magic;
	uint32_t version, mounts;
	int32_t daemon, channel, protocol;
	int32_t binary, listener, client;
	uint32_t restarts;
	int32_t last_status;
	char oom_score_adj[16];
	char path[PATH_MAX];
};

struct state_mount {
	uint64_t id;
	int32_t device, table;
	uint32_t size; /* of the description after it */
	uint32_t unused;
};

static int put(int fd, const void *bytes, size_t size)
{
	ssize_t n = write(fd, bytes, size);

	return n < 0 ? -errno : (size_t)n == size ? 0 : -ENOSPC;
}

static int get(int fd, void *bytes, size_t size)
{
	ssize_t n = read(fd, bytes, size);

	return n < 0 ? -errno : (size_t)n == size ? 0 : -EBADMSG;
}

static void keep_open(int fd, bool through_exec)
{
	if (fd >= 0 && fcntl(fd, F_SETFD, through_exec ? 0 : FD_CLOEXEC) < 0)
		log_warn("descriptor_flag", "fd=%d error=%s", fd, strerror(errno));
}

static void keep_all_open(struct keeper *keeper, bool through_exec)
{
	keep_open(keeper->daemon.channel, through_exec);
	keep_open(keeper->binary, through_exec);
	keep_open(keeper->listener, through_exec);
	keep_open(keeper->upgrade.client, through_exec);
	for (size_t i = 0; i < HOLD_MOUNTS_MAX; i++) {
		if (!keeper->mounts.slots[i].used)
			continue;
		keep_open(keeper->mounts.slots[i].device, through_exec);
		keep_open(keeper->mounts.slots[i].table, through_exec);
	}
}

static int save_mounts(const struct keeper *keeper, int fd)
{
	int r = 0;

	for (size_t i = 0; !r && i < HOLD_MOUNTS_MAX; i++) {
		const struct kept_mount *mount = &keeper->mounts.slots[i];
		const struct state_mount saved = {.id = mount->id,
			.device = mount->device,
			.table = mount->table,
			.size = mount->size};

		if (!mount->used)
			continue;
		r = put(fd, &saved, sizeof saved);
		if (!r)
			r = put(fd, mount->description, mount->size);
	}
	return r;
}

static int save(const struct keeper *keeper, int fd)
{
	struct state state = {.magic = STATE_MAGIC,
		.version = KEEPER_STATE_VERSION,
		.mounts = keeper->mounts.count,
		.daemon = keeper->daemon.pid,
		.channel = keeper->daemon.channel,
		.protocol = keeper->daemon.version,
		.binary = keeper->binary,
		.listener = keeper->listener,
		.client = keeper->upgrade.client,
		.restarts = keeper->restarts,
		.last_status = keeper->last_status};
	int r;

	memcpy(state.oom_score_adj, keeper->oom_score_adj, sizeof state.oom_score_adj);
	memcpy(state.path, keeper->path, sizeof state.path);
	r = put(fd, &state, sizeof state);
	if (!r)
		r = save_mounts(keeper, fd);
	return !r && lseek(fd, 0, SEEK_SET) < 0 ? -errno : r;
}

/* Comes back only when it failed. */
static int exec(const struct keeper *keeper, int state_fd)
{
	char abort_after[32], watchdog[32], resume_fd[12];
	const char *argv[KEEPER_ARGS_MAX + 9] = {"cachefs", "hold"};
	const char *const own[] = {
		"--abort-after", abort_after, "--watchdog", watchdog, "--resume-fd", resume_fd};
	size_t n = 2;

	snprintf(abort_after, sizeof abort_after, "%llums",
		(unsigned long long)keeper->config->abort_after_ms);
	snprintf(watchdog, sizeof watchdog, "%llums",
		(unsigned long long)keeper->config->watchdog_ms);
	snprintf(resume_fd, sizeof resume_fd, "%d", state_fd);
	for (const char *const *a = keeper->config->serve_args; *a; a++)
		argv[n++] = *a;
	for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
		argv[n++] = own[i];
	check(n < sizeof argv / sizeof argv[0]);
	fexecve(keeper->binary, (char *const *)argv, environ);
	return -errno;
}

int resume_exec(struct keeper *keeper)
{
	_cleanup_(closep) int fd = memfd_create("cachefs-keeper", 0);
	int r = fd < 0 ? -errno : save(keeper, fd);

	if (r)
		return r;
	keep_all_open(keeper, true);
	r = exec(keeper, fd);
	keep_all_open(keeper, false);
	return r;
}

static int load_mount(struct keeper *keeper, int fd)
{
	struct state_mount saved;
	int r = get(fd, &saved, sizeof saved);

	if (r)
		return r;
	if (saved.size > HOLD_DESCRIPTION_MAX)
		return -EBADMSG;
	r = get(fd, keeper->packet.payload, saved.size);
	return r ? r
		 : mounts_add(&keeper->mounts, saved.id, keeper->packet.payload, saved.size,
			   saved.device, saved.table);
}

int resume_load(struct keeper *keeper, int fd)
{
	struct state state;
	int r = get(fd, &state, sizeof state);

	if (r)
		return r;
	if (state.magic != STATE_MAGIC || state.version != KEEPER_STATE_VERSION)
		return -EPROTONOSUPPORT;
	for (uint32_t i = 0; !r && i < state.mounts; i++)
		r = load_mount(keeper, fd);
	if (r)
		return r;
	close(keeper->binary);
	keeper->binary = state.binary;
	keeper->listener = state.listener;
	keeper->upgrade.client = state.client;
	keeper->restarts = state.restarts;
	keeper->last_status = state.last_status;
	memcpy(keeper->oom_score_adj, state.oom_score_adj, sizeof keeper->oom_score_adj);
	memcpy(keeper->path, state.path, sizeof keeper->path);
	keeper->daemon.pid = state.daemon;
	keeper->daemon.channel = state.channel;
	keeper->daemon.version = (uint16_t)state.protocol;
	keeper->daemon.ready = keeper->ever_ready = true;
	keeper->daemon.started_ns = keeper->daemon.ready_ns = keeper->daemon.heard_ns =
		clock_now_ns();
	keep_all_open(keeper, false);
	close(fd);
	return 0;
}
