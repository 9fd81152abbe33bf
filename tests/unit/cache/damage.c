/* An index whose records a disk has changed: what they said is forgotten, and bytes come anew. */
#include "rig.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define MIB (1ull << 20)

/* A whole object in the store, closed, and nothing of it in memory. */
static struct id128 fill(struct rig *rig, uint64_t size_bytes)
{
	struct handle handle;
	struct id128 id;

	world_put(rig->world, "o", size_bytes);
	handle_open(rig, "o", &handle);
	assert_int_equal(read_whole(&handle, MIB), 0);
	rig_drop_memory(rig);
	assert_true(object_backing_fd(handle.object) >= 0);
	id = handle.object->id;
	handle_close(&handle);
	rig_restart(rig);
	return id;
}

/* Changes one bit of a value. */
static void damage(struct rig *rig, MDB_dbi dbi, const uint8_t *key, size_t key_size)
{
	uint8_t bytes[8192];
	struct index_txn *txn;
	MDB_val value;
	size_t size;

	assert_int_equal(index_begin(rig->cache->index, &txn), 0);
	assert_int_equal(value_get(txn->txn, dbi, key, key_size, &value), 0);
	size = value.mv_size;
	assert_in_range(size, 1, sizeof bytes);
	memcpy(bytes, value.mv_data, size);
	bytes[size - 1] ^= 4;
	assert_int_equal(value_put(txn->txn, dbi, key, key_size, bytes, size), 0);
	/* index_commit would write the total anew. */
	assert_int_equal(mdb_txn_commit(txn->txn), 0);
	free(txn);
}

/* Right bytes, of which these came from the origin again; then warm, in the next life too. */
static void read_and_be_warm(struct rig *rig, uint64_t expected_bytes)
{
	struct handle handle;

	handle_open(rig, "o", &handle);
	assert_int_equal(read_whole(&handle, MIB), 0);
	rig_drop_memory(rig);
	assert_int_equal(read_whole(&handle, MIB), 0);
	assert_int_equal(
		world_counts(rig->world).get_bytes, handle.attr.size_bytes + expected_bytes);
	assert_true(object_backing_fd(handle.object) >= 0);
	handle_close(&handle);
	assert_int_equal(rig_stats(rig).store_errors, 0);
	rig_restart(rig);
	handle_open(rig, "o", &handle);
	assert_true(object_backing_fd(handle.object) >= 0);
	handle_close(&handle);
}

static void a_record(void **state)
{
	struct rig *rig = *state;
	uint64_t used = rig_stats(rig).used_bytes;
	struct id128 id = fill(rig, 3 * MIB);
	uint8_t key[ID_KEY_SIZE];

	id_key(id, key);
	damage(rig, rig->cache->index->object, key, sizeof key);
	read_and_be_warm(rig, 3 * MIB);
	assert_in_range(rig_stats(rig).used_bytes, used + 3 * MIB, used + 4 * MIB);
}

static void wait_present(const struct handle *handle, uint32_t chunk)
{
	enum chunk_state state;

	do {
		commit_flush(handle->rig->cache);
		lock_take(&handle->object->lock);
		state = chunk_state_of(handle->object, chunk);
		lock_drop(&handle->object->lock);
		sched_yield();
	} while (state != CHUNK_PRESENT);
}

/* Two groups, so that there is one whose chunks still count. */
static void a_group(void **state)
{
	struct rig *rig = *state;
	struct id128 id = fill(rig, (INDEX_GROUP_CHUNKS + 2) * MIB);
	struct origin_attr attr = world_attr(rig->world, "o");
	struct object_status status;
	uint8_t key[GROUP_KEY_SIZE];
	struct handle handle, other;
	struct reading reading;

	group_key(id, 1, key);
	damage(rig, rig->cache->index->group, key, sizeof key);
	/* Who waits keeps the rest from coming by itself. */
	world_put(rig->world, "other", 1);
	handle_open(rig, "other", &other);
	world_hold(rig->world, "other", 0);
	reading_start(&reading, &other, 0, 1);
	handle_open(rig, "o", &handle);
	assert_int_equal(read_now(&handle, (INDEX_GROUP_CHUNKS + 1) * MIB, 10), 10);
	wait_present(&handle, INDEX_GROUP_CHUNKS + 1);
	assert_int_equal(object_backing_fd(handle.object), -EAGAIN);
	assert_int_equal(cache_object_status(rig->cache, rig->origin, "o", &attr, &status), 0);
	assert_int_equal(status.cached_bytes, (INDEX_GROUP_CHUNKS + 1) * MIB);
	handle_close(&handle);
	world_remove(rig->world, "other");
	world_release(rig->world);
	assert_int_equal(reading_wait(&reading), -ENOENT);
	handle_close(&other);
	read_and_be_warm(rig, 2 * MIB);
}

/* An index that takes nothing: bytes pass through, and no room is lost to what isn't kept. */
static void the_total(void **state)
{
	static const uint8_t key[] = {'d', 'i', 's', 'k'};
	struct rig *rig = *state;
	struct handle handle;
	uint64_t used;

	damage(rig, rig->cache->index->meta, key, sizeof key);
	used = rig_stats(rig).used_bytes;
	world_put(rig->world, "o", 3 * MIB + 5);
	handle_open(rig, "o", &handle);
	assert_int_equal(read_whole(&handle, MIB), 0);
	rig_drop_memory(rig);
	assert_int_equal(read_whole(&handle, MIB), 0);
	rig_settle(rig);
	assert_int_equal(object_backing_fd(handle.object), -EAGAIN);
	assert_in_range(rig_stats(rig).store_errors, 1, 8);
	assert_int_equal(rig_stats(rig).used_bytes, used);
	handle_close(&handle);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_record, rig_set_up, rig_tear_down),
		cmocka_unit_test_setup_teardown(a_group, rig_set_up, rig_tear_down),
		cmocka_unit_test_setup_teardown(the_total, rig_set_up, rig_tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
