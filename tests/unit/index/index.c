#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"
#include "records.h"

#define MAP_BYTES (64ull << 20)

#define BOOT_A "11111111-2222-3333-4444-555555555555\n"
#define BOOT_B "99999999-2222-3333-4444-555555555555\n"

struct fixture {
	char dir[64];
	char boot_id[96];
	struct index *index;
};

/* In two parts. */
static int put_listing(struct index_txn *txn, struct id128 id, const void *bytes, size_t size)
{
	struct iovec parts[] = {
		{(void *)bytes, size / 3}, {(char *)bytes + size / 3, size - size / 3}};

	return index_put_listing(txn, id, parts, 2);
}

static void write_file(const char *path, const void *bytes, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, size), size);
	close(fd);
}

static void set_boot(const struct fixture *f, const char *id)
{
	write_file(f->boot_id, id, strlen(id));
}

static void open_index(struct fixture *f)
{
	struct why why = {""};
	int r = index_open_booted(f->dir, MAP_BYTES, f->boot_id, &f->index, &why);

	if (r)
		print_error("%s\n", why.text);
	assert_int_equal(r, 0);
}

static void close_index(struct fixture *f)
{
	index_close(f->index);
	f->index = NULL;
}

/* As after SIGKILL: no clean mark. */
static void lose_index(struct fixture *f)
{
	mdb_env_close(f->index->env);
	free(f->index);
	f->index = NULL;
}

static int make(void **state)
{
	static struct fixture fixture;

	snprintf(fixture.dir, sizeof fixture.dir, "/tmp/cachefs-test-XXXXXX");
	if (!mkdtemp(fixture.dir))
		return -1;
	snprintf(fixture.boot_id, sizeof fixture.boot_id, "%s/boot_id", fixture.dir);
	set_boot(&fixture, BOOT_A);
	open_index(&fixture);
	*state = &fixture;
	return 0;
}

static int unmake(void **state)
{
	static const char *const names[] = {"data.mdb", "lock.mdb", "boot_id"};
	struct fixture *f = *state;
	char path[PATH_MAX];

	index_close(f->index);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		snprintf(path, sizeof path, "%s/%s", f->dir, names[i]);
		unlink(path);
	}
	return rmdir(f->dir);
}

static struct id128 id_of(uint64_t number)
{
	return (struct id128){number, ~number};
}

static struct index_object_record object_of(uint64_t disk_bytes)
{
	struct index_object_record record = {.object = {.size_bytes = 2 * disk_bytes,
						     .disk_bytes = disk_bytes,
						     .n_chunks = 2,
						     .n_present = 1},
		.version = "\"v\""};

	snprintf(record.name, sizeof record.name, "file:///object/%llu",
		(unsigned long long)disk_bytes);
	return record;
}

static void put_object(struct index *index, uint64_t number, uint64_t disk_bytes)
{
	struct index_object_record record = object_of(disk_bytes);
	struct index_txn *txn;

	assert_int_equal(index_begin(index, &txn), 0);
	assert_int_equal(index_put_object(txn, id_of(number), &record), 0);
	assert_int_equal(index_commit(txn), 0);
}

static void delete_object(struct index *index, uint64_t number)
{
	struct index_txn *txn;

	assert_int_equal(index_begin(index, &txn), 0);
	assert_int_equal(index_delete_object(txn, id_of(number)), 0);
	assert_int_equal(index_commit(txn), 0);
}

static void assert_totals(struct index *index, uint64_t objects, uint64_t disk_bytes)
{
	struct index_totals totals;

	assert_int_equal(index_totals(index, &totals), 0);
	assert_int_equal(totals.objects, objects);
	assert_int_equal(totals.disk_bytes, disk_bytes);
	assert_true(totals.map_used_bytes > 0 && totals.map_used_bytes <= totals.map_bytes);
	assert_int_equal(totals.map_bytes, MAP_BYTES);
}

/* Overwrites a stored value behind the index's back. */
static void damage(struct index *index, MDB_dbi dbi, const void *key, size_t key_size)
{
	MDB_txn *txn;

	assert_int_equal(mdb_txn_begin(index->env, NULL, 0, &txn), 0);
	assert_int_equal(value_put(txn, dbi, key, key_size, "rubbish, rubbish", 16), 0);
	assert_int_equal(mdb_txn_commit(txn), 0);
}

static void damage_object(struct index *index, uint64_t number)
{
	uint8_t key[ID_KEY_SIZE];

	id_key(id_of(number), key);
	damage(index, index->object, key, sizeof key);
}

static void objects_are_kept_over_a_restart(void **state)
{
	struct fixture *f = *state;
	struct index_object_record record;

	assert_int_equal(index_get_object(f->index, id_of(1), &record), -ENOENT);
	put_object(f->index, 1, 4096);
	close_index(f);
	open_index(f);
	assert_int_equal(index_get_object(f->index, id_of(1), &record), 0);
	assert_string_equal(record.name, "file:///object/4096");
	assert_int_equal(record.object.size_bytes, 8192);
	assert_totals(f->index, 1, 4096);
}

static void totals_follow_puts_and_deletes(void **state)
{
	struct fixture *f = *state;
	struct index_object_record record = object_of(50);
	struct index_txn *txn;

	assert_totals(f->index, 0, 0);
	put_object(f->index, 1, 100);
	put_object(f->index, 2, 1000);
	put_object(f->index, 1, 70);
	assert_totals(f->index, 2, 1070);
	assert_int_equal(index_begin(f->index, &txn), 0);
	assert_int_equal(index_put_object(txn, id_of(3), &record), 0);
	assert_int_equal(index_delete_object(txn, id_of(2)), 0);
	index_abort(txn);
	assert_totals(f->index, 2, 1070);
	delete_object(f->index, 2);
	delete_object(f->index, 2);
	assert_totals(f->index, 1, 70);
	close_index(f);
	open_index(f);
	assert_totals(f->index, 1, 70);
}

static void groups_go_with_their_object_only(void **state)
{
	struct fixture *f = *state;
	struct index_group group = {.present = {1}, .sum = {77}}, back;
	struct index_txn *txn;

	assert_int_equal(index_begin(f->index, &txn), 0);
	for (uint64_t object = 1; object <= 3; object++) {
		for (uint32_t number = 0; number < 300; number++)
			assert_int_equal(index_put_group(txn, id_of(object), number, &group), 0);
	}
	assert_int_equal(index_put_group(txn, id_of(2), UINT32_MAX, &group), 0);
	assert_int_equal(index_txn_get_group(txn, id_of(2), 299, &back), 0);
	assert_int_equal(index_txn_get_group(txn, id_of(2), 300, &back), -ENOENT);
	assert_int_equal(index_commit(txn), 0);
	delete_object(f->index, 2);
	for (uint32_t number = 0; number < 300; number++) {
		assert_int_equal(index_get_group(f->index, id_of(1), number, &back), 0);
		assert_int_equal(back.sum[0], 77);
		assert_int_equal(index_get_group(f->index, id_of(2), number, &back), -ENOENT);
		assert_int_equal(index_get_group(f->index, id_of(3), number, &back), 0);
	}
	assert_int_equal(index_get_group(f->index, id_of(2), UINT32_MAX, &back), -ENOENT);
}

static void a_transaction_sees_itself_and_others_do_not(void **state)
{
	struct fixture *f = *state;
	struct index_object_record record = object_of(5), back;
	struct index_txn *txn;

	assert_int_equal(index_begin(f->index, &txn), 0);
	assert_int_equal(index_put_object(txn, id_of(1), &record), 0);
	assert_int_equal(index_txn_get_object(txn, id_of(1), &back), 0);
	assert_int_equal(index_get_object(f->index, id_of(1), &back), -ENOENT);
	assert_int_equal(index_commit(txn), 0);
	assert_int_equal(index_get_object(f->index, id_of(1), &back), 0);
}

static void listings_of_any_size_come_back(void **state)
{
	struct fixture *f = *state;
	static const size_t sizes[] = {0, 1, 5000, 20u << 20};
	uint8_t *bytes = malloc(20u << 20);
	struct index_txn *txn;
	size_t size;
	void *back;

	for (size_t i = 0; i < 20u << 20; i++)
		bytes[i] = (uint8_t)(i * 31 >> 3);
	assert_int_equal(index_get_listing(f->index, id_of(9), &back, &size), -ENOENT);
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		assert_int_equal(index_begin(f->index, &txn), 0);
		assert_int_equal(put_listing(txn, id_of(9), bytes, sizes[i]), 0);
		assert_int_equal(index_commit(txn), 0);
		assert_int_equal(index_get_listing(f->index, id_of(9), &back, &size), 0);
		assert_int_equal(size, sizes[i]);
		assert_memory_equal(back, bytes, size);
		free(back);
	}
	assert_int_equal(index_begin(f->index, &txn), 0);
	assert_int_equal(index_trim_listings(txn, id_of(8), 0), 0);
	assert_int_equal(index_commit(txn), 0);
	assert_int_equal(index_get_listing(f->index, id_of(9), &back, &size), -ENOENT);
	/* Refused by its size before a byte of it is looked at. */
	assert_int_equal(index_begin(f->index, &txn), 0);
	assert_int_equal(put_listing(txn, id_of(9), bytes, (256u << 20) + 1), -EFBIG);
	index_abort(txn);
	free(bytes);
}

static void listings_make_room_for_one(void **state)
{
	struct fixture *f = *state;
	uint8_t *bytes = calloc(1, 1u << 20);
	struct index_txn *txn;
	unsigned kept = 0;
	size_t size;
	void *back;

	for (uint64_t i = 1; i <= 8; i++) {
		assert_int_equal(index_begin(f->index, &txn), 0);
		assert_int_equal(put_listing(txn, id_of(i), bytes, 1u << 20), 0);
		assert_int_equal(index_trim_listings(txn, id_of(i), 4u << 20), 0);
		assert_int_equal(index_commit(txn), 0);
		assert_int_equal(index_get_listing(f->index, id_of(i), &back, &size), 0);
		free(back);
	}
	for (uint64_t i = 1; i <= 8; i++) {
		if (!index_get_listing(f->index, id_of(i), &back, &size)) {
			free(back);
			kept++;
		}
	}
	assert_int_equal(kept, 3);
	/* Whoever is the only one stays, whatever it takes. */
	assert_int_equal(index_begin(f->index, &txn), 0);
	assert_int_equal(index_trim_listings(txn, id_of(8), 1), 0);
	assert_int_equal(index_commit(txn), 0);
	assert_int_equal(index_get_listing(f->index, id_of(8), &back, &size), 0);
	free(back);
	free(bytes);
}

struct visit {
	struct index *index;
	uint64_t seen, limit;
};

/* Deletes what is still to come: the snapshot must show it all the same. */
static int visit_one(void *arg, struct id128 id, const struct index_object_record *record)
{
	struct visit *visit = arg;

	assert_int_equal(id.hi, visit->seen);
	assert_int_equal(record->object.disk_bytes, visit->seen + 1);
	if (visit->seen == 0) {
		for (uint64_t i = 5; i < 10; i++)
			delete_object(visit->index, i);
	}
	return ++visit->seen == visit->limit ? 123 : 0;
}

static void each_object_is_visited_in_one_snapshot(void **state)
{
	struct fixture *f = *state;
	struct visit visit = {.index = f->index, .limit = UINT64_MAX};

	assert_int_equal(index_each_object(f->index, visit_one, &visit), 0);
	assert_int_equal(visit.seen, 0);
	for (uint64_t i = 0; i < 10; i++)
		put_object(f->index, i, i + 1);
	assert_int_equal(index_each_object(f->index, visit_one, &visit), 0);
	assert_int_equal(visit.seen, 10);
	assert_totals(f->index, 5, 1 + 2 + 3 + 4 + 5);
	visit = (struct visit){.index = f->index, .limit = 3};
	assert_int_equal(index_each_object(f->index, visit_one, &visit), 123);
	assert_int_equal(visit.seen, 3);
}

static int count_one(void *arg, struct id128 id, const struct index_object_record *record)
{
	(void)id;
	(void)record;
	++*(unsigned *)arg;
	return 0;
}

static void a_damaged_record_is_found_and_can_be_replaced(void **state)
{
	struct fixture *f = *state;
	struct index_object_record record;
	struct index_group group = {.present = {1}};
	uint8_t key[GROUP_KEY_SIZE];
	struct index_txn *txn;
	unsigned count = 0;
	size_t size;
	void *bytes;

	for (uint64_t i = 1; i <= 3; i++)
		put_object(f->index, i, 100);
	damage_object(f->index, 1);
	damage_object(f->index, 2);
	assert_int_equal(index_get_object(f->index, id_of(1), &record), -EUCLEAN);
	assert_int_equal(index_each_object(f->index, count_one, &count), 0);
	assert_int_equal(count, 1);
	put_object(f->index, 1, 30);
	delete_object(f->index, 2);
	assert_totals(f->index, 2, 130);

	group_key(id_of(3), 0, key);
	damage(f->index, f->index->group, key, sizeof key);
	assert_int_equal(index_get_group(f->index, id_of(3), 0, &group), -EUCLEAN);
	damage(f->index, f->index->listing, key, ID_KEY_SIZE);
	assert_int_equal(index_get_listing(f->index, id_of(3), &bytes, &size), -EUCLEAN);
	assert_int_equal(index_begin(f->index, &txn), 0);
	assert_int_equal(index_put_group(txn, id_of(3), 0, &group), 0);
	assert_int_equal(index_commit(txn), 0);
	assert_int_equal(index_get_group(f->index, id_of(3), 0, &group), 0);
}

static void a_crash_is_an_unclean_stop_of_the_machine(void **state)
{
	struct fixture *f = *state;
	uint64_t epoch = index_epoch(f->index);

	assert_true(epoch > 0);
	assert_true(index_was_unclean(f->index)); /* new */
	lose_index(f);                            /* the daemon alone was killed */
	open_index(f);
	assert_true(index_was_unclean(f->index));
	assert_int_equal(index_epoch(f->index), epoch);

	close_index(f); /* a reboot after a clean stop */
	set_boot(f, BOOT_B);
	open_index(f);
	assert_false(index_was_unclean(f->index));
	assert_int_equal(index_epoch(f->index), epoch);

	lose_index(f);
	set_boot(f, BOOT_A);
	open_index(f);
	assert_int_equal(index_epoch(f->index), epoch + 1);

	lose_index(f); /* killed again before anything was verified: known already */
	open_index(f);
	assert_int_equal(index_epoch(f->index), epoch + 1);

	lose_index(f); /* nobody can tell: the worse is assumed */
	set_boot(f, "");
	open_index(f);
	assert_int_equal(index_epoch(f->index), epoch + 2);
}

static void refused(struct fixture *f, int error)
{
	struct why why = {""};
	struct index *index = NULL;

	assert_int_equal(index_open(f->dir, MAP_BYTES, &index, &why), error);
	assert_null(index);
	assert_non_null(strstr(why.text, f->dir));
}

static void another_format_is_refused(void **state)
{
	struct fixture *f = *state;
	uint8_t bytes[12], *at = bytes + 8;
	MDB_txn *txn;

	put_u32(&at, 2);
	record_seal(bytes, sizeof bytes);
	assert_int_equal(mdb_txn_begin(f->index->env, NULL, 0, &txn), 0);
	assert_int_equal(value_put(txn, f->index->meta, "state", 5, bytes, sizeof bytes), 0);
	assert_int_equal(mdb_txn_commit(txn), 0);
	lose_index(f);
	refused(f, -EPROTONOSUPPORT);
}

static void a_damaged_state_is_refused(void **state)
{
	struct fixture *f = *state;

	damage(f->index, f->index->meta, "state", 5);
	lose_index(f);
	refused(f, -EUCLEAN);
}

static void a_damaged_total_is_refused(void **state)
{
	struct fixture *f = *state;

	damage(f->index, f->index->meta, "disk", 4);
	lose_index(f);
	refused(f, -EUCLEAN);
}

static void a_cut_file_is_an_error_and_no_signal(void **state)
{
	struct fixture *f = *state;
	char path[PATH_MAX];

	for (uint64_t i = 0; i < 100; i++)
		put_object(f->index, i, 10);
	close_index(f);
	snprintf(path, sizeof path, "%s/data.mdb", f->dir);
	assert_int_equal(truncate(path, 2 * sysconf(_SC_PAGESIZE)), 0);
	refused(f, -EUCLEAN);
	assert_int_equal(truncate(path, 100), 0);
	refused(f, -EUCLEAN);
}

/* Pages that a transaction frees again may never reach the file, and are not missed. */
static void a_file_shorter_than_its_pages_is_whole(void **state)
{
	struct fixture *f = *state;
	uint8_t *bytes = calloc(1, 4u << 20);
	struct index_txn *txn;

	assert_int_equal(index_begin(f->index, &txn), 0);
	assert_int_equal(put_listing(txn, id_of(1), bytes, 4u << 20), 0);
	assert_int_equal(index_trim_listings(txn, id_of(2), 0), 0);
	assert_int_equal(index_commit(txn), 0);
	close_index(f);
	open_index(f);
	put_object(f->index, 1, 10);
	assert_totals(f->index, 1, 10);
	free(bytes);
}

static void descriptors_stay_in_the_process(void **state)
{
	int n = 0;

	(void)state;
	for (int fd = 3; fd < 64; fd++) {
		int flags = fcntl(fd, F_GETFD);
		char link[64], target[PATH_MAX] = "";

		snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
		if (flags < 0 || readlink(link, target, sizeof target - 1) < 0 ||
			!strstr(target, ".mdb"))
			continue;
		assert_true(flags & FD_CLOEXEC);
		n++;
	}
	assert_true(n >= 2);
}

static void what_is_no_index_is_refused(void **state)
{
	struct fixture *f = *state;
	uint8_t *rubbish = malloc(1 << 16);
	char path[PATH_MAX];

	close_index(f);
	memset(rubbish, 0x5a, 1 << 16);
	snprintf(path, sizeof path, "%s/data.mdb", f->dir);
	write_file(path, rubbish, 1 << 16);
	refused(f, -EUCLEAN);
	free(rubbish);
	snprintf(f->dir + strlen(f->dir), 5, "/no");
	refused(f, -ENOENT);
	f->dir[strlen(f->dir) - 3] = '\0';
}

static void someone_elses_database_is_refused(void **state)
{
	struct fixture *f = *state;
	char path[PATH_MAX];
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi dbi;

	close_index(f);
	snprintf(path, sizeof path, "%s/data.mdb", f->dir);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mdb_env_create(&env), 0);
	assert_int_equal(mdb_env_open(env, f->dir, 0, 0600), 0);
	assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
	assert_int_equal(mdb_dbi_open(txn, NULL, 0, &dbi), 0);
	assert_int_equal(value_put(txn, dbi, "theirs", 6, "x", 1), 0);
	assert_int_equal(mdb_txn_commit(txn), 0);
	mdb_env_close(env);
	refused(f, -EUCLEAN);
}

static void a_full_map_fails_the_write_and_nothing_else(void **state)
{
	struct fixture *f = *state;
	const size_t size = 1u << 20;
	uint8_t *bytes = calloc(1, size);
	struct index_object_record record;
	struct index_txn *txn;
	unsigned stored = 0;
	int r = 0;

	close_index(f);
	assert_int_equal(index_open(f->dir, 8u << 20, &f->index, NULL), 0);
	put_object(f->index, 1, 10);
	while (r == 0 && stored < 100) {
		assert_int_equal(index_begin(f->index, &txn), 0);
		r = put_listing(txn, id_of(stored), bytes, size);
		if (r == 0)
			stored++;
		/* A commit after an error is an abort that says why. */
		assert_int_equal(index_commit(txn), r);
	}
	assert_int_equal(r, -ENOSPC);
	assert_true(stored >= 4 && stored < 8);
	assert_int_equal(index_get_object(f->index, id_of(1), &record), 0);
	assert_int_equal(index_begin(f->index, &txn), 0);
	assert_int_equal(put_listing(txn, id_of(stored), bytes, size), -ENOSPC);
	index_abort(txn);
	assert_int_equal(index_begin(f->index, &txn), 0);
	assert_int_equal(index_trim_listings(txn, id_of(stored), 0), 0);
	assert_int_equal(index_commit(txn), 0);
	put_object(f->index, 2, 10);
	free(bytes);
}

struct reader {
	struct index *index;
	atomic_bool *stop;
	unsigned reads;
	const char *wrong;
};

/* Objects 1 and 2 are always written together, with one sum. */
static void *read_until_stopped(void *arg)
{
	struct reader *reader = arg;
	struct index_object_record record;
	struct index_totals totals;

	while (!atomic_load(reader->stop) && !reader->wrong) {
		if (index_get_object(reader->index, id_of(1), &record) < 0)
			reader->wrong = "get";
		if (index_totals(reader->index, &totals) < 0 || totals.disk_bytes != 1000)
			reader->wrong = "totals";
		reader->reads++;
	}
	return NULL;
}

static void readers_never_see_half_a_transaction(void **state)
{
	struct fixture *f = *state;
	atomic_bool stop = false;
	struct reader readers[3];
	pthread_t threads[3];
	struct index_txn *txn;

	put_object(f->index, 1, 400);
	put_object(f->index, 2, 600);
	for (int i = 0; i < 3; i++) {
		readers[i] = (struct reader){.index = f->index, .stop = &stop};
		assert_int_equal(
			pthread_create(&threads[i], NULL, read_until_stopped, &readers[i]), 0);
	}
	for (uint64_t i = 0; i < 200; i++) {
		struct index_object_record one = object_of(i), two = object_of(1000 - i);

		assert_int_equal(index_begin(f->index, &txn), 0);
		assert_int_equal(index_put_object(txn, id_of(1), &one), 0);
		assert_int_equal(index_put_object(txn, id_of(2), &two), 0);
		assert_int_equal(index_commit(txn), 0);
	}
	atomic_store(&stop, true);
	for (int i = 0; i < 3; i++) {
		pthread_join(threads[i], NULL);
		if (readers[i].wrong)
			fail_msg("%s", readers[i].wrong);
	}
}

/* Writes numbered transactions and tells each commit through the pipe, until it is killed. */
_Noreturn static void write_until_killed(const struct fixture *f, int told_fd, uint64_t next)
{
	struct index *index;

	if (index_open_booted(f->dir, MAP_BYTES, f->boot_id, &index, NULL) < 0)
		_exit(1);
	for (;; next++) {
		struct index_object_record record = object_of(next + 1);
		struct index_group group = {.present = {1}, .sum = {next}};
		struct index_txn *txn;

		if (index_begin(index, &txn) < 0 ||
			index_put_object(txn, id_of(next), &record) < 0 ||
			index_put_group(txn, id_of(next), 0, &group) < 0 ||
			index_put_object(txn, id_of(1u << 30), &record) < 0 ||
			index_commit(txn) < 0 || write(told_fd, &next, sizeof next) != sizeof next)
			_exit(1);
	}
}

/* Every told transaction is there, whole, and at most one more. Returns how many there are. */
static uint64_t assert_whole(struct fixture *f, uint64_t told)
{
	struct index_object_record record, last;
	struct index_group group;
	uint64_t n = 0, sum = 0;

	open_index(f);
	while (index_get_object(f->index, id_of(n), &record) == 0) {
		assert_int_equal(record.object.disk_bytes, n + 1);
		assert_int_equal(index_get_group(f->index, id_of(n), 0, &group), 0);
		assert_int_equal(group.sum[0], n);
		sum += ++n;
	}
	assert_int_equal(index_get_group(f->index, id_of(n), 0, &group), -ENOENT);
	assert_true(n == told || n == told + 1);
	if (n > 0) {
		assert_int_equal(index_get_object(f->index, id_of(1u << 30), &last), 0);
		assert_int_equal(last.object.disk_bytes, n);
		assert_totals(f->index, n + 1, sum + n);
	}
	lose_index(f);
	return n;
}

static void a_killed_writer_leaves_whole_transactions(void **state)
{
	struct fixture *f = *state;
	uint64_t n = 0, told;
	unsigned seed = 7;

	lose_index(f);
	for (int round = 0; round < 15; round++) {
		struct timespec delay = {.tv_nsec = rand_r(&seed) % 40 * 1000000 + 500000};
		uint64_t number;
		int fds[2], status;
		pid_t pid;

		assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
		pid = fork();
		if (pid == 0)
			write_until_killed(f, fds[1], n);
		assert_true(pid > 0);
		close(fds[1]);
		nanosleep(&delay, NULL);
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		told = n;
		while (read(fds[0], &number, sizeof number) == sizeof number)
			told = number + 1;
		close(fds[0]);
		n = assert_whole(f, told);
	}
	assert_true(n > 0);
}

#define index_test(function) cmocka_unit_test_setup_teardown(function, make, unmake)

int main(void)
{
	const struct CMUnitTest tests[] = {
		index_test(objects_are_kept_over_a_restart),
		index_test(totals_follow_puts_and_deletes),
		index_test(groups_go_with_their_object_only),
		index_test(a_transaction_sees_itself_and_others_do_not),
		index_test(listings_of_any_size_come_back),
		index_test(listings_make_room_for_one),
		index_test(each_object_is_visited_in_one_snapshot),
		index_test(a_damaged_record_is_found_and_can_be_replaced),
		index_test(a_crash_is_an_unclean_stop_of_the_machine),
		index_test(another_format_is_refused),
		index_test(a_damaged_state_is_refused),
		index_test(a_damaged_total_is_refused),
		index_test(a_cut_file_is_an_error_and_no_signal),
		index_test(a_file_shorter_than_its_pages_is_whole),
		index_test(descriptors_stay_in_the_process),
		index_test(what_is_no_index_is_refused),
		index_test(someone_elses_database_is_refused),
		index_test(a_full_map_fails_the_write_and_nothing_else),
		index_test(readers_never_see_half_a_transaction),
		index_test(a_killed_writer_leaves_whole_transactions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
