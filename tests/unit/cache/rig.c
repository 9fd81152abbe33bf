#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "internal.h"

struct open_parts {
	struct list link;
	struct object *object;
	struct reader *reader;
	struct cache_account account;
};

static struct lock handles_lock = LOCK_INITIALIZER;

static void parts_free(struct open_parts *parts)
{
	lock_take(&handles_lock);
	list_remove(&parts->link);
	lock_drop(&handles_lock);
	reader_free(parts->reader);
	cache_account_destroy(&parts->account);
	object_unref(parts->object);
	free(parts);
}

int rig_set_up_idle(void **state)
{
	const char *parent = getenv("TMPDIR");
	struct rig *rig = calloc(1, sizeof *rig);

	check(rig);
	check(asprintf(&rig->dir, "%s/cachefs-test-XXXXXX", parent ? parent : "/tmp") > 0);
	check(mkdtemp(rig->dir));
	rig->capacity = "4G";
	rig->memory_bytes = 64 << 20;
	list_init(&rig->handles);
	rig->world = world_new();
	rig->origin = world_origin(rig->world, "somebody");
	*state = rig;
	return 0;
}

int rig_set_up(void **state)
{
	rig_set_up_idle(state);
	rig_start(*state);
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

int rig_tear_down(void **state)
{
	struct rig *rig = *state;
	int r;

	world_release(rig->world);
	world_release_names(rig->world);
	tree_free(rig->tree);
	while (!list_empty(&rig->handles))
		parts_free(container_of(rig->handles.next, struct open_parts, link));
	rig_stop(rig);
	origin_unref(rig->origin);
	world_free(rig->world);
	r = nftw(rig->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	free(rig->dir);
	free(rig);
	return r;
}

void rig_start(struct rig *rig)
{
	struct cache_config config = {.capacity = rig->capacity, .memory_bytes = rig->memory_bytes};
	struct why why = {{0}};
	char *store;
	int r;

	check(asprintf(&store, "%s/store", rig->dir) > 0);
	config.store_dir = store;
	r = cache_new(&config, &rig->cache, &why);
	if (r)
		fprintf(stderr, "cache_new: %s\n", why.text);
	check(!r);
	free(store);
}

void rig_stop(struct rig *rig)
{
	cache_free(rig->cache);
	rig->cache = NULL;
}

/* In a process of its own, which ends without the index's clean mark, in a boot that was another. */
void rig_machine_crash(struct rig *rig)
{
	char *dir, *boot_id;
	struct index *index;
	int status;
	pid_t pid;
	FILE *file;

	rig_stop(rig);
	check(asprintf(&dir, "%s/store/index", rig->dir) > 0);
	check(asprintf(&boot_id, "%s/boot_id", rig->dir) > 0);
	file = fopen(boot_id, "we");
	check(file && fputs("00000000-0000-4000-8000-000000000001\n", file) >= 0);
	check(!fclose(file));
	pid = fork();
	check(pid >= 0);
	if (!pid)
		_exit(index_open_booted(dir, 1ull << 30, boot_id, &index, NULL) ? 1 : 0);
	check(waitpid(pid, &status, 0) == pid && status == 0);
	free(dir);
	free(boot_id);
}

void rig_drop_memory(struct rig *rig)
{
	rig_settle(rig);
	while (resident_reclaim(&rig->cache->resident))
		;
}

struct cache_stats rig_stats(struct rig *rig)
{
	struct cache_stats stats;

	cache_stats(rig->cache, &stats);
	return stats;
}

void rig_settle(struct rig *rig)
{
	struct cache *cache = rig->cache;

	lock_take(&cache->fetches_lock);
	while (cache->busy_chunks)
		cond_wait(&cache->fetches_gone, &cache->fetches_lock);
	lock_drop(&cache->fetches_lock);
}

static _Thread_local uint64_t disk_sum;

static int add_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)path;
	(void)type;
	(void)ftw;
	disk_sum += (uint64_t)st->st_blocks * 512;
	return 0;
}

uint64_t rig_disk_bytes(const char *dir)
{
	disk_sum = 0;
	/* Files may go away meanwhile. */
	nftw(dir, add_one, 16, FTW_PHYS);
	return disk_sum;
}

/* --- handles --- */

struct opening {
	struct object_open open;
	struct lock lock;
	struct cond cond;
	bool done;
	int error;
};

static void opened(struct object_open *open, int error)
{
	struct opening *opening = container_of(open, struct opening, open);

	lock_take(&opening->lock);
	opening->done = true;
	opening->error = error;
	cond_signal(&opening->cond);
	lock_drop(&opening->lock);
}

static int open_and_wait(struct rig *rig, struct origin *origin, const char *path,
	const struct origin_attr *attr, struct object **ret)
{
	struct opening opening = {.open = {.cache = rig->cache,
					  .origin = origin,
					  .path = path,
					  .attr = *attr,
					  .done = opened}};

	lock_init(&opening.lock);
	cond_init(&opening.cond);
	object_open_start(&opening.open);
	lock_take(&opening.lock);
	while (!opening.done)
		cond_wait(&opening.cond, &opening.lock);
	lock_drop(&opening.lock);
	cond_destroy(&opening.cond);
	lock_destroy(&opening.lock);
	*ret = opening.open.object;
	return opening.error;
}

void handle_open_by(struct rig *rig, struct origin *origin, const char *path, struct handle *ret)
{
	*ret = (struct handle){.rig = rig, .attr = world_attr(rig->world, path)};
	ret->seed = strtoull(ret->attr.version.text + 1, NULL, 10);
	snprintf(ret->path, sizeof ret->path, "%s", path);
	check(!open_and_wait(rig, origin, path, &ret->attr, &ret->object));
	ret->parts = calloc(1, sizeof *ret->parts);
	check(ret->parts);
	cache_account_init(&ret->parts->account);
	check(!reader_new(ret->object, origin, ret->path, &ret->parts->account, &ret->reader));
	ret->parts->object = ret->object;
	ret->parts->reader = ret->reader;
	lock_take(&handles_lock);
	list_append(&rig->handles, &ret->parts->link);
	lock_drop(&handles_lock);
}

int open_error(struct rig *rig, const char *path, struct origin_attr attr)
{
	struct object *object;
	int r = open_and_wait(rig, rig->origin, path, &attr, &object);

	if (!r)
		object_unref(object);
	return r;
}

void handle_open(struct rig *rig, const char *path, struct handle *ret)
{
	handle_open_by(rig, rig->origin, path, ret);
}

void handle_close(struct handle *handle)
{
	parts_free(handle->parts);
	handle->reader = NULL;
	handle->object = NULL;
}

char *handle_raw_path(const struct handle *handle)
{
	char name[128], hex[ID128_HEX_SIZE], *path;
	struct id128 id;

	check(!origin_object_name(handle->rig->origin, handle->path, name, sizeof name));
	object_id(name, &handle->attr.version, handle->attr.size_bytes, &id);
	id128_to_hex(id, hex);
	check(asprintf(&path, "%s/store/raw/%.2s/%s", handle->rig->dir, hex, hex) > 0);
	return path;
}

void handle_wait_verified(const struct handle *handle)
{
	bool verifying;

	do {
		lock_take(&handle->object->lock);
		verifying = handle->object->verifying;
		lock_drop(&handle->object->lock);
		sched_yield();
	} while (verifying);
}

void flip_byte(const char *path, uint64_t offset)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	uint8_t byte;

	check(fd >= 0);
	check(pread(fd, &byte, 1, (off_t)offset) == 1);
	byte ^= 0x10;
	check(pwrite(fd, &byte, 1, (off_t)offset) == 1);
	close(fd);
}

/* --- reads --- */

static void read_done(struct object_read *read, int error, const struct iovec *iov, int iovcnt)
{
	struct reading *reading = container_of(read, struct reading, read);
	uint64_t got = 0;

	check(!error || !iovcnt);
	for (int i = 0; i < iovcnt; i++) {
		check(seed_right(reading->handle->seed, read->offset + got, iov[i].iov_base,
			iov[i].iov_len));
		got += iov[i].iov_len;
	}
	lock_take(&reading->lock);
	reading->done = true;
	reading->error = error;
	reading->got = got;
	cond_signal(&reading->cond);
	lock_drop(&reading->lock);
}

void reading_start(
	struct reading *reading, const struct handle *handle, uint64_t offset, uint32_t size_bytes)
{
	*reading = (struct reading){
		.handle = handle,
		.read = {.reader = handle->reader,
			.offset = offset,
			.size_bytes = size_bytes,
			.done = read_done},
	};
	lock_init(&reading->lock);
	cond_init(&reading->cond);
	object_read_start(&reading->read);
}

bool reading_done(struct reading *reading)
{
	bool done;

	lock_take(&reading->lock);
	done = reading->done;
	lock_drop(&reading->lock);
	return done;
}

int64_t reading_wait(struct reading *reading)
{
	lock_take(&reading->lock);
	while (!reading->done)
		cond_wait(&reading->cond, &reading->lock);
	lock_drop(&reading->lock);
	cond_destroy(&reading->cond);
	lock_destroy(&reading->lock);
	return reading->error ? reading->error : (int64_t)reading->got;
}

int64_t read_now(const struct handle *handle, uint64_t offset, uint32_t size_bytes)
{
	struct reading reading;

	reading_start(&reading, handle, offset, size_bytes);
	return reading_wait(&reading);
}

int read_whole(const struct handle *handle, uint32_t size_bytes)
{
	uint64_t offset = 0;

	while (offset < handle->attr.size_bytes) {
		int64_t n = read_now(handle, offset, size_bytes);

		if (n < 0)
			return (int)n;
		check(n > 0);
		offset += (uint64_t)n;
	}
	return read_now(handle, offset, size_bytes) ? -EOVERFLOW : 0;
}
