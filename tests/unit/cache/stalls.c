/* Waits and stalls: what overlaps counts once, and windows forget. Times are the test's. */
#include "base/waiting.h"
#include "rig.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define S NS_PER_SEC

static void near(double is, double wanted)
{
	if (fabs(is - wanted) > 1e-9)
		fail_msg("%.12f is not %.12f", is, wanted);
}

static struct stalls_seen look(struct stalls *stalls, uint64_t now_ns)
{
	struct stalls_seen seen;

	stalls_look(stalls, now_ns, &seen);
	return seen;
}

static void waits_fall_into_their_buckets(void **state)
{
	static struct waits waits;
	uint64_t sum_ns = 0;

	(void)state;
	for (unsigned i = 0; i < WAIT_BOUNDS; i++) {
		assert_true(!i || wait_bounds_ns[i] > wait_bounds_ns[i - 1]);
		/* A bound belongs to its bucket. */
		waits_add(&waits, wait_bounds_ns[i]);
		waits_add(&waits, wait_bounds_ns[i] + 1);
		sum_ns += 2 * wait_bounds_ns[i] + 1;
	}
	waits_add(&waits, 0);
	waits_add(&waits, UINT64_MAX / 4);
	sum_ns += UINT64_MAX / 4;
	for (unsigned i = 0; i <= WAIT_BOUNDS; i++)
		assert_int_equal(waits.counts[i], 2);
	assert_int_equal(waits.sum_ns, sum_ns);
}

static void overlapping_stalls_count_once(void **state)
{
	struct stalls stalls;
	struct stalls_seen seen;

	(void)state;
	stalls_init(&stalls, 100 * S + S / 2);
	near(look(&stalls, 100 * S + S / 2).share, 0);
	stalls_begin(&stalls, 101 * S + S / 4);
	stalls_begin(&stalls, 102 * S);
	stalls_begin(&stalls, 103 * S);
	stalls_end(&stalls, 104 * S);
	seen = look(&stalls, 104 * S + S / 2);
	assert_int_equal(seen.waiting, 2);
	/* It is counted while it goes on. */
	assert_int_equal(seen.stalled_ns, 3 * S + S / 4);
	near(seen.share, 3.25 / 4);
	near(seen.share_1m, 3.25 / 4);
	near(seen.share_5m, 3.25 / 4);
	stalls_end(&stalls, 105 * S);
	stalls_end(&stalls, 105 * S + 1);
	seen = look(&stalls, 110 * S + S / 2);
	assert_int_equal(seen.waiting, 0);
	assert_int_equal(seen.stalled_ns, 3 * S + 3 * S / 4 + 1);
	near(seen.share_1m, seen.share);
	stalls_destroy(&stalls);
}

static void windows_forget(void **state)
{
	struct stalls stalls;
	struct stalls_seen seen;

	(void)state;
	stalls_init(&stalls, 1000 * S);
	stalls_begin(&stalls, 1010 * S);
	stalls_end(&stalls, 1040 * S);
	/* Seconds 1001 to 1060: all of it. */
	near(look(&stalls, 1061 * S - 1).share_1m, (double)(30 * S) / (double)(60 * S - 1));
	/* Seconds 1021 to 1080. */
	seen = look(&stalls, 1081 * S - 1);
	near(seen.share_1m, (double)(20 * S - S) / (double)(60 * S - 1));
	near(seen.share_5m, (double)(30 * S) / (double)(81 * S - 1));
	near(look(&stalls, 1200 * S).share_1m, 0);
	/* A window later the same places are other seconds'. */
	seen = look(&stalls, 1320 * S);
	near(seen.share_5m, 20.0 / 300);
	near(look(&stalls, 1400 * S).share_5m, 0);
	near(look(&stalls, 1400 * S).share, 30.0 / 400);
	/* After a pause longer than the window nothing of before is left, and a stall that is longer
	 * than it fills it. */
	stalls_begin(&stalls, 9000 * S + S / 2);
	seen = look(&stalls, 9000 * S + S / 2);
	near(seen.share_5m, 0);
	seen = look(&stalls, 9500 * S + S / 4);
	near(seen.share_5m, 1);
	near(seen.share_1m, 1);
	assert_int_equal(seen.stalled_ns, 30 * S + 499 * S + 3 * S / 4);
	stalls_end(&stalls, 9500 * S + S / 4);
	stalls_destroy(&stalls);
}

/* Who took the time before the lock may come late: no time is lost, none counts twice. */
static void times_out_of_order(void **state)
{
	struct stalls stalls;

	(void)state;
	stalls_init(&stalls, 5 * S);
	stalls_begin(&stalls, 7 * S);
	stalls_begin(&stalls, 7 * S - 100);
	stalls_end(&stalls, 8 * S);
	stalls_end(&stalls, 8 * S - 50);
	assert_int_equal(look(&stalls, 6 * S).stalled_ns, S);
	near(look(&stalls, 9 * S).share, 0.25);
	stalls_destroy(&stalls);
}

#define THREADS 4
#define ROUNDS  20000

static void *stall_often(void *arg)
{
	struct cache_account *account = arg;

	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t from_ns = clock_now_ns();

		stalls_begin(&account->stalled_reads, from_ns);
		waits_add(&account->reads[WAITED_ORIGIN], clock_now_ns() - from_ns);
		stalls_end(&account->stalled_reads, clock_now_ns());
	}
	return NULL;
}

static void many_threads(void **state)
{
	struct cache_account account;
	pthread_t threads[THREADS];
	struct stalls_seen seen;
	uint64_t count = 0;

	(void)state;
	cache_account_init(&account);
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, stall_often, &account), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i <= WAIT_BOUNDS; i++)
		count += account.reads[WAITED_ORIGIN].counts[i];
	assert_int_equal(count, THREADS * ROUNDS);
	seen = look(&account.stalled_reads, clock_now_ns());
	assert_int_equal(seen.waiting, 0);
	assert_true(seen.share > 0 && seen.share <= 1);
	assert_true(seen.share_1m > 0 && seen.share_1m <= 1);
	cache_account_destroy(&account);
}

static uint64_t count(const struct waits *waits)
{
	uint64_t n = 0;

	for (unsigned i = 0; i <= WAIT_BOUNDS; i++)
		n += waits->counts[i];
	return n;
}

static void counted(
	const struct cache_account *account, uint64_t origin, uint64_t store, uint64_t none)
{
	assert_int_equal(count(&account->reads[WAITED_ORIGIN]), origin);
	assert_int_equal(count(&account->reads[WAITED_STORE]), store);
	assert_int_equal(count(&account->reads[WAITED_NONE]), none);
}

/* Reads of one account of their own. */
static void reads_are_told_apart(void **state)
{
	struct rig *rig = *state;
	struct cache_account account;
	struct handle handle, mine;
	struct reading one, two;
	struct stalls_seen seen;
	uint64_t stalled_ns;

	cache_account_init(&account);
	world_put(rig->world, "o", 3 * CHUNK_SIZE);
	handle_open(rig, "o", &handle);
	mine = handle;
	assert_int_equal(reader_new(handle.object, rig->origin, "o", &account, &mine.reader), 0);
	world_hold(rig->world, "", 1000);
	reading_start(&one, &mine, CHUNK_SIZE / 2, 10);
	reading_start(&two, &mine, CHUNK_SIZE / 2, CHUNK_SIZE); /* two pieces */
	world_wait_held(rig->world, 3);                         /* one GET a chunk */
	seen = look(&account.stalled_reads, clock_now_ns());
	assert_int_equal(seen.waiting, 2);
	assert_true(seen.share > 0 && seen.share_1m > 0);
	counted(&account, 0, 0, 0);
	/* What is here already is no stall, though the rest of the chunk is held. */
	assert_int_equal(read_now(&mine, 0, 1000), 1000);
	counted(&account, 0, 0, 1);
	world_release(rig->world);
	assert_int_equal(reading_wait(&one), 10);
	assert_int_equal(reading_wait(&two), CHUNK_SIZE);
	seen = look(&account.stalled_reads, clock_now_ns());
	assert_int_equal(seen.waiting, 0);
	stalled_ns = seen.stalled_ns;
	assert_true(stalled_ns > 0 && stalled_ns <= account.reads[WAITED_ORIGIN].sum_ns);
	counted(&account, 2, 0, 1);
	assert_int_equal(account.miss_bytes, 10 + CHUNK_SIZE);
	assert_int_equal(read_whole(&handle, CHUNK_SIZE), 0);
	rig_settle(rig);
	rig_drop_memory(rig);
	assert_int_equal(read_now(&mine, 0, 100), 100);
	counted(&account, 2, 1, 1);
	assert_true(account.reads[WAITED_STORE].sum_ns > 0);
	assert_int_equal(read_now(&mine, 0, 100), 100);
	counted(&account, 2, 1, 2);
	assert_int_equal(account.reads[WAITED_NONE].sum_ns, 0);
	assert_int_equal(account.hit_bytes, 1200);
	assert_int_equal(look(&account.stalled_reads, clock_now_ns()).stalled_ns, stalled_ns);
	reader_free(mine.reader);
	handle_close(&handle);
	cache_account_destroy(&account);
}

static void failed_reads_stall_no_longer(void **state)
{
	struct rig *rig = *state;
	struct cache_account account;
	struct handle handle, mine;

	cache_account_init(&account);
	world_put(rig->world, "o", 2 * CHUNK_SIZE);
	handle_open(rig, "o", &handle);
	mine = handle;
	assert_int_equal(reader_new(handle.object, rig->origin, "o", &account, &mine.reader), 0);
	world_fail_gets(rig->world, NULL, -EIO, CHUNK_SIZE + 5, 1);
	assert_int_equal(read_now(&mine, CHUNK_SIZE - 1, 100), -EIO);
	assert_int_equal(look(&account.stalled_reads, clock_now_ns()).waiting, 0);
	counted(&account, 1, 0, 0);
	assert_int_equal(account.miss_bytes, 0);
	reader_free(mine.reader);
	handle_close(&handle);
	cache_account_destroy(&account);
}

struct question {
	struct tree_lookup lookup;
	struct waiting waiting;
};

static void looked_up(struct tree_lookup *lookup, int error)
{
	waiting_end(&container_of(lookup, struct question, lookup)->waiting, error);
}

static void question_start(
	struct question *question, struct rig *rig, struct cache_account *account)
{
	question->lookup = (struct tree_lookup){
		.tree = rig->tree, .path = "d/x", .account = account, .done = looked_up};
	waiting_begin(&question->waiting);
	tree_lookup_start(&question->lookup);
}

static void names_are_counted_apart(void **state)
{
	struct rig *rig = *state;
	const struct tree_config config = {60000, 60000};
	struct cache_account account;
	struct question mine, nobodys;

	cache_account_init(&account);
	world_put(rig->world, "d/x", 1);
	assert_int_equal(tree_new(rig->cache, rig->origin, &config, &rig->tree), 0);
	world_hold_names(rig->world);
	question_start(&mine, rig, &account);
	question_start(&nobodys, rig, NULL);
	world_wait_names_held(rig->world, 1);
	assert_int_equal(look(&account.stalled_names, clock_now_ns()).waiting, 1);
	assert_int_equal(look(&account.stalled_reads, clock_now_ns()).waiting, 0);
	world_release_names(rig->world);
	assert_int_equal(waiting_wait(&mine.waiting), 0);
	assert_int_equal(waiting_wait(&nobodys.waiting), 0);
	assert_int_equal(look(&account.stalled_names, clock_now_ns()).waiting, 0);
	assert_int_equal(count(&account.names), 1);
	assert_true(account.names.sum_ns > 0);
	/* It is known now. */
	question_start(&mine, rig, &account);
	assert_int_equal(waiting_wait(&mine.waiting), 0);
	assert_int_equal(count(&account.names), 1);
	tree_free(rig->tree);
	rig->tree = NULL;
	counted(&account, 0, 0, 0);
	cache_account_destroy(&account);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(waits_fall_into_their_buckets),
		cmocka_unit_test(overlapping_stalls_count_once),
		cmocka_unit_test(windows_forget),
		cmocka_unit_test(times_out_of_order),
		cmocka_unit_test(many_threads),
		cmocka_unit_test_setup_teardown(reads_are_told_apart, rig_set_up, rig_tear_down),
		cmocka_unit_test_setup_teardown(
			failed_reads_stall_no_longer, rig_set_up, rig_tear_down),
		cmocka_unit_test_setup_teardown(names_are_counted_apart, rig_set_up, rig_tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
