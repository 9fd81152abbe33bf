/* Verification: every present chunk is read from the disk and compared with its checksum; bad ones
 * go out of the index. */
#include "verify.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/waiting.h"
#include "chunks.h"
#include "commit.h"
#include "objects.h"
#include "resident.h"
#include "store/store.h"
#include "strays.h"
#include "whole.h"

/* Reads the whole chunk past the page cache, so that it is the disk that is verified. */
static bool chunk_right(
	struct raw *raw, uint8_t *memory, uint64_t offset, uint32_t size_bytes, uint64_t sum)
{
	uint32_t whole = (size_bytes + 4095) & ~4095u, got = 0;
	int fd = raw_fd(raw, offset, whole);

	while (got < size_bytes) {
		ssize_t n = pread(fd, memory + got, whole - got, (off_t)(offset + got));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		got += (uint32_t)n;
	}
	return hash64(memory, size_bytes) == sum;
}

/* Present in the index; it may be being read. *ret_sum is what its bytes should have. */
static bool chunk_checkable(struct object *object, uint32_t index, uint64_t *ret_sum)
{
	bool checkable;

	lock_take(&object->lock);
	checkable = chunk_state_of(object, index) == CHUNK_PRESENT;
	*ret_sum = object->groups[index / INDEX_GROUP_CHUNKS]->sum[index % INDEX_GROUP_CHUNKS];
	lock_drop(&object->lock);
	return checkable;
}

/* False: it can't be dropped, since somebody reads it. */
static bool chunk_found_bad(struct object *object, uint32_t index)
{
	struct chunk *chunk = NULL;

	resident_drop(&object->cache->resident, object->id, index);
	lock_take(&object->lock);
	/* One that is being read is found bad by its reader too. */
	if (chunk_state_of(object, index) == CHUNK_PRESENT && !chunk_busy(object, index))
		chunk = chunk_begin(object, index, PHASE_DROP);
	if (chunk)
		chunk_drop(chunk);
	lock_drop(&object->lock);
	log_warn("chunk_bad", "object=%s version=%s chunk=%u reason=verification", object->name,
		object->version.text, index);
	atomic_fetch_add(&object->cache->counters.checksum_failures, 1);
	if (chunk)
		commit_chunk(object->cache, chunk);
	return chunk;
}

/* Bad chunks of one object, for the repair. Cut at a number that only a lost disk reaches. */
#define BAD_MAX 65536
struct bad_chunks {
	bool some_left; /* not all were dropped */
	size_t n;
	uint32_t *chunks; /* BAD_MAX, or NULL when nobody repairs */
};

static int verify_chunks(struct object *object, struct raw *raw, uint8_t *memory,
	struct bad_chunks *list, struct verify_result *result)
{
	uint64_t bad = 0;

	for (uint32_t i = 0; i < object->n_chunks; i++) {
		uint32_t size_bytes = chunk_size(object, i);
		uint64_t sum;
		int r = object_load_group(object, i / INDEX_GROUP_CHUNKS);

		if (!r && atomic_load(&object->cache->ending))
			r = -ECANCELED;
		if (r)
			return r;
		if (!chunk_checkable(object, i, &sum))
			continue;
		result->chunks++;
		result->bytes += size_bytes;
		if (chunk_right(raw, memory, (uint64_t)i * CHUNK_SIZE, size_bytes, sum))
			continue;
		list->some_left |= !chunk_found_bad(object, i);
		bad++;
		if (list->chunks && list->n < BAD_MAX)
			list->chunks[list->n++] = i;
	}
	if (bad && !result->first_bad[0])
		snprintf(result->first_bad, sizeof result->first_bad, "%s", object->name);
	result->bad_chunks += bad;
	return 0;
}

/* What is there in part was checked; what is still to come, or came again for what was dropped, is
 * written by us. True also when there is nothing more to do: a chunk is absent, or soon will be, or
 * was. */
static bool note_verified_part(struct object *object, bool dropped)
{
	bool part;

	lock_take(&object->lock);
	part = dropped || !object->complete || object->pending_drops;
	if (part)
		object->verified = true;
	lock_drop(&object->lock);
	return part;
}

/* All chunks were right: the file as it is now is what passthrough may be granted on. */
static void record_verified(struct object *object, const struct raw_state *before)
{
	struct cache *cache = object->cache;
	struct index_object_record record;
	struct index_txn *txn;
	struct raw_state now;
	bool still;

	if (raw_stat(object->raw, &now) || now.ctime_ns != before->ctime_ns)
		return;
	if (now.size_bytes != object->size_bytes || now.disk_bytes < object->size_bytes) {
		lock_take(&object->lock);
		object->misshapen_ctime_ns = now.ctime_ns;
		lock_drop(&object->lock);
		return;
	}
	if (index_begin(cache->index, &txn))
		return;
	lock_take(&object->lock);
	still = object->complete && !object->pending_drops;
	if (still) {
		object->ctime_ns = now.ctime_ns;
		object->verified = true;
		object_record(object, &record);
	}
	lock_drop(&object->lock);
	/* Should it not get there, the next life of the daemon verifies again. */
	if (!still || index_put_object(txn, object->id, &record))
		index_abort(txn);
	else
		index_commit(txn);
}

static int verify_object(
	struct object *object, struct bad_chunks *list, struct verify_result *result)
{
	struct raw_state before;
	uint64_t bad = result->bad_chunks;
	uint8_t *memory;
	struct raw *raw;
	int r;

	lock_take(&object->lock);
	raw = object->raw;
	lock_drop(&object->lock);
	result->objects++;
	if (!raw)
		return 0;
	memory = mmap(NULL, CHUNK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return -ENOMEM;
	r = raw_cut(raw, object->size_bytes);
	if (!r)
		r = raw_stat(raw, &before);
	if (!r)
		r = verify_chunks(object, raw, memory, list, result);
	if (!r && !list->some_left && !note_verified_part(object, result->bad_chunks > bad))
		record_verified(object, &before);
	munmap(memory, CHUNK_SIZE);
	commit_flush(object->cache);
	return r;
}

static void verify_run(struct job *job)
{
	struct object *object = container_of(job, struct object, job);
	struct verify_result result = {0};
	struct bad_chunks none = {0};

	verify_object(object, &none, &result);
	lock_take(&object->lock);
	object->verifying = false;
	lock_drop(&object->lock);
	object_unref(object);
}

void verify_later(struct object *object)
{
	check(lock_held(&object->lock));
	if (object->verifying)
		return;
	object->verifying = true;
	object_ref(object);
	object->job.run = verify_run;
	work_post(object->cache->verifies, &object->job);
}

/* --- repair --- */

struct repair_read {
	struct object_read read;
	struct waiting waiting;
};

static void repair_read_done(
	struct object_read *read, int error, const struct iovec *iov, int iovcnt)
{
	(void)iov;
	(void)iovcnt;
	waiting_end(&container_of(read, struct repair_read, read)->waiting, error);
}

/* Reads the bad chunks, which brings them from the origin, and counts those that are present after.
 */
static int repair(struct object *object, struct origin *origin, const char *path,
	const struct bad_chunks *list, struct verify_result *result)
{
	struct cache_account account;
	struct reader *reader = NULL;
	int r;

	cache_account_init(&account);
	r = reader_new(object, origin, path, &account, &reader);
	for (size_t i = 0; !r && i < list->n; i++) {
		struct repair_read one = {
			.read =
				{
					.reader = reader,
					.offset = (uint64_t)list->chunks[i] * CHUNK_SIZE,
					.size_bytes = chunk_size(object, list->chunks[i]),
					.done = repair_read_done,
				},
		};

		waiting_begin(&one.waiting);
		object_read_start(&one.read);
		r = waiting_wait(&one.waiting);
	}
	if (r)
		goto out;
	/* A chunk that was just read may still be on its way to the queue that is flushed. */
	for (size_t i = 0; i < list->n; i++) {
		enum chunk_state state;

		do {
			commit_flush(object->cache);
			lock_take(&object->lock);
			state = chunk_state_of(object, list->chunks[i]);
			lock_drop(&object->lock);
		} while (state == CHUNK_FETCHING || state == CHUNK_WRITTEN);
		if (state == CHUNK_PRESENT)
			result->repaired_chunks++;
	}
out:
	reader_free(reader);
	cache_account_destroy(&account);
	return r;
}

/* --- what commands ask for --- */

int cache_object_verify(struct cache *cache, struct origin *origin, const char *path,
	const struct origin_attr *attr, bool repair_bad, struct verify_result *result)
{
	struct bad_chunks list = {0};
	char name[INDEX_NAME_MAX];
	struct object *object = NULL;
	int r = origin_object_name(origin, path, name, sizeof name);

	if (!r)
		r = object_open_wait(cache, name, attr, &object);
	if (r)
		return r;
	if (repair_bad) {
		list.chunks = malloc(BAD_MAX * sizeof *list.chunks);
		r = list.chunks ? 0 : -ENOMEM;
	}
	if (!r)
		r = verify_object(object, &list, result);
	if (!r && list.n)
		r = repair(object, origin, path, &list, result);
	free(list.chunks);
	object_unref(object);
	return r;
}

static int collect_record(void *arg, struct id128 id, const struct index_object_record *record)
{
	return record->object.n_present ? ids_add(arg, id) : 0;
}

static int collect_file(void *arg, struct id128 id)
{
	return ids_add(arg, id);
}

static int verify_record(struct cache *cache, struct id128 id, struct verify_result *result)
{
	struct bad_chunks none = {0};
	struct index_object_record record;
	struct origin_attr attr = {.kind = ORIGIN_FILE};
	struct object *object;
	bool gone, lost;
	int r = index_get_object(cache->index, id, &record);

	if (r)
		return r == -ENOENT ? 0 : r;
	attr.size_bytes = record.object.size_bytes;
	attr.mtime_ns = record.object.mtime_ns;
	attr.version.strong = record.object.strong;
	memcpy(attr.version.text, record.version, sizeof attr.version.text);
	r = object_open_wait(cache, record.name, &attr, &object);
	if (r)
		return r;
	lock_take(&object->lock);
	lost = !object->raw;
	gone = object->load_error == -ENOENT;
	lock_drop(&object->lock);
	if (gone) {
		result->forgotten_objects++;
	} else if (lost) {
		result->unreadable_objects++;
		if (!result->first_bad[0])
			snprintf(result->first_bad, sizeof result->first_bad, "%s", object->name);
	}
	r = verify_object(object, &none, result);
	object_unref(object);
	return r;
}

int cache_verify_all(struct cache *cache, struct verify_result *result)
{
	struct ids ids = {0};
	int r;

	commit_flush(cache);
	r = index_each_object(cache->index, collect_record, &ids);
	for (size_t i = 0; !r && i < ids.n; i++)
		r = verify_record(cache, ids.ids[i], result);
	ids.n = 0;
	if (!r)
		r = raw_each(cache->store, collect_file, &ids);
	for (size_t i = 0; !r && i < ids.n; i++)
		result->stray_files += stray_remove(cache, ids.ids[i], &(uint64_t){0});
	free(ids.ids);
	return r;
}
