/* Readahead: what goes on is run ahead of, what doesn't is not, and nothing is asked twice. */
#include "readahead.h"

#include "base/clock.h"
#include "rig.h"

#include <stdlib.h>
#include <string.h>

#define MIB    (1ull << 20)
#define CHUNKS 4096u

/* One handle; and what was asked for of it. */
struct fixture {
	struct readahead readahead;
	struct readahead_streams own, *streams;
	uint32_t buffers, gets;
	uint64_t now_ns, chunk_ns;
	bool waits;
	uint8_t asked[CHUNKS];
	uint32_t n_asked, n_wishes, part;
	bool far;
	enum origin_aging aging;
};

static struct fixture *start(void)
{
	struct fixture *f = calloc(1, sizeof *f);

	lock_init(&f->readahead.lock);
	f->streams = &f->own;
	f->buffers = 192;
	f->gets = 16;
	f->now_ns = 5 * NS_PER_SEC;
	f->chunk_ns = 10 * NS_PER_MS;
	f->waits = true;
	f->aging = ORIGIN_LASTS;
	return f;
}

static void end(struct fixture *f)
{
	lock_destroy(&f->readahead.lock);
	free(f);
}

/* Notes the read, and that no chunk that was asked for is asked for again, nor one of the read's
 * own. Returns how many were. */
static uint32_t note(struct fixture *f, uint64_t offset, uint32_t size_bytes)
{
	const struct readahead_means means = {
		f->streams, f->buffers, f->gets, f->chunk_ns, f->far, f->aging};
	uint32_t first = (uint32_t)(offset / CHUNK_SIZE),
		 last = (uint32_t)((offset + size_bytes - 1) / CHUNK_SIZE);
	struct readahead_wish wish;

	readahead_note(&f->readahead, &means, offset, size_bytes, f->waits, f->now_ns, &wish);
	assert_true(wish.from <= wish.to);
	assert_in_range(wish.part, PART_LEAST, PART_MOST);
	if (wish.from == wish.to)
		return 0;
	assert_true(wish.from > last || wish.to <= first);
	for (uint32_t i = wish.from; i < wish.to && i < CHUNKS; i++) {
		assert_int_equal(f->asked[i], 0);
		f->asked[i] = 1;
	}
	f->n_asked += wish.to - wish.from;
	f->n_wishes++;
	f->part = wish.part;
	return wish.to - wish.from;
}

static void random_reads_ask_for_nothing(void **state)
{
	struct fixture *f = start();

	(void)state;
	/* Never within a window's reach of one of the last few. */
	for (uint64_t i = 0; i < 500; i++)
		assert_int_equal(note(f, (i * 1237 * 16 * MIB) % (CHUNKS * 16 * MIB), 4096), 0);
	/* Nor do they take anything from others. */
	assert_int_equal(atomic_load(&f->own.now), 0);
	end(f);
}

static void sequential_reads_grow(void **state)
{
	static const uint32_t sizes[] = {4096, 131072, 1 << 20, (1 << 20) + 5000, 4 << 20};

	(void)state;
	for (unsigned s = 0; s < 5; s++) {
		struct fixture *f = start();
		uint64_t offset = 0;

		/* One read alone is no sequence. */
		assert_int_equal(note(f, 0, sizes[s]), 0);
		while (offset < 512 * MIB) {
			offset += sizes[s];
			note(f, offset, sizes[s]);
			/* What is ahead isn't more than four times what was read, nor than the share. */
			assert_true(f->n_asked <= 5 * (offset + sizes[s]) / MIB + 2);
			assert_true(f->n_asked <= (offset + sizes[s]) / MIB + 144 + 2);
		}
		assert_in_range(f->n_asked, 512 + 100, 512 + 144 + 8);
		/* In parts. */
		assert_in_range(f->n_wishes, 1, 512 / 8 + 24);
		end(f);
	}
}

/* Who never waits needs no more than the first window; and less when there is little memory. */
static void a_window_is_no_larger_than_it_must_be(void **state)
{
	struct fixture *f = start();

	(void)state;
	f->waits = false;
	for (uint64_t i = 0; i < 300; i++)
		note(f, i * MIB, MIB);
	assert_in_range(f->n_asked, 299, 299 + WINDOW_FIRST);
	end(f);
	f = start();
	f->buffers = 16;
	for (uint64_t i = 0; i < 300; i++)
		note(f, i * MIB, MIB);
	assert_in_range(f->n_asked, 299, 299 + 12);
	end(f);
	/* An origin that lets few GETs run. */
	f = start();
	f->gets = 2;
	for (uint64_t i = 0; i < 300; i++)
		note(f, i * MIB, MIB);
	assert_in_range(f->n_asked, 299, 299 + 3 * PART_MOST);
	end(f);
	/* One whose GETs are slow: many small ones. */
	f = start();
	f->chunk_ns = NS_PER_SEC;
	for (uint64_t i = 0; i < 4; i++)
		note(f, i * MIB, MIB);
	assert_in_range(f->n_asked, 8, 20);
	assert_int_equal(f->part, PART_LEAST);
	end(f);
}

/* Each step costs a round trip there: what was read twice in a row gets a large window at once. */
static void a_far_origin_is_asked_for_more_sooner(void **state)
{
	uint32_t near, far;
	struct fixture *f = start();

	(void)state;
	for (uint64_t i = 0; i < 4; i++)
		note(f, i * MIB, MIB);
	near = f->n_asked;
	end(f);
	f = start();
	f->far = true;
	f->gets = 16;
	f->chunk_ns = 0;
	note(f, 0, MIB);
	assert_true(note(f, MIB, MIB) > 0);
	/* How fast a GET is, is not known yet. */
	assert_in_range(f->part, PART_LEAST, 4);
	for (uint64_t i = 2; i < 4; i++)
		note(f, i * MIB, MIB);
	far = f->n_asked;
	assert_true(far >= 3 * near);
	assert_true(far <= 4 * 16 + 4);
	/* And random reads get nothing there either. */
	end(f);
	f = start();
	f->far = true;
	for (uint64_t i = 0; i < 500; i++)
		assert_int_equal(note(f, (i * 1237 * 16 * MIB) % (CHUNKS * 16 * MIB), 4096), 0);
	end(f);
}

static uint32_t part_at_end(bool far, enum origin_aging aging)
{
	struct fixture *f = start();
	uint32_t part;

	f->far = far;
	f->aging = aging;
	for (uint64_t i = 0; i < 300; i++)
		note(f, i * MIB, MIB);
	part = f->part;
	end(f);
	return part;
}

/* However fast chunks come now. */
static void parts_are_small_where_connections_age(void **state)
{
	(void)state;
	assert_int_equal(part_at_end(true, ORIGIN_AGES), PART_LEAST);
	assert_int_equal(part_at_end(true, ORIGIN_AGING_UNKNOWN), 4);
	assert_in_range(part_at_end(true, ORIGIN_LASTS), 8, PART_MOST);
	assert_in_range(part_at_end(false, ORIGIN_AGING_UNKNOWN), 8, PART_MOST);
}

/* No GET is to take more than a second. */
static void parts_are_small_where_gets_are_slow(void **state)
{
	static const struct {
		uint64_t chunk_ns;
		uint32_t part;
	} cases[] = {
		{10 * NS_PER_MS, PART_MOST}, {250 * NS_PER_MS, 4}, {3 * NS_PER_SEC, PART_LEAST}};

	(void)state;
	for (unsigned c = 0; c < 3; c++) {
		struct fixture *f = start();

		f->gets = 4;
		f->chunk_ns = cases[c].chunk_ns;
		for (uint64_t i = 0; i < 200; i++)
			note(f, i * MIB, MIB);
		assert_int_equal(f->part, cases[c].part);
		end(f);
	}
}

static void four_streams_at_once(void **state)
{
	struct fixture *f = start();

	(void)state;
	for (uint64_t i = 0; i < 300; i++) {
		for (uint64_t s = 0; s < 4; s++)
			note(f, s * 1000 * MIB + i * MIB, MIB);
	}
	assert_in_range(f->n_asked, 4 * 299, 4 * (299 + 36));
	end(f);
}

/* Of as many handles: together no more than one alone, and what a second ago was is forgotten. */
static void many_readers_share(void **state)
{
	struct readahead_streams streams = {0};
	struct fixture *f[64];
	uint32_t n_asked = 0;

	(void)state;
	for (unsigned k = 0; k < 64; k++) {
		f[k] = start();
		f[k]->streams = &streams;
	}
	for (uint64_t i = 0; i < 200; i++) {
		for (unsigned k = 0; k < 64; k++) {
			f[k]->now_ns += 100 * NS_PER_MS;
			note(f[k], i * MIB, MIB);
		}
	}
	for (unsigned k = 0; k < 64; k++)
		n_asked += f[k]->n_asked;
	assert_in_range(n_asked, 64 * 199, 64 * (199 + 4));
	for (uint64_t i = 200; i < 400; i++) {
		f[0]->now_ns += 100 * NS_PER_MS;
		note(f[0], i * MIB, MIB);
	}
	assert_in_range(f[0]->n_asked, 399 + 100, 399 + 144);
	for (unsigned k = 0; k < 64; k++)
		end(f[k]);
}

/* The kernel's own readahead may turn neighbours round. */
static void neighbours_in_any_order(void **state)
{
	struct fixture *f = start();

	(void)state;
	for (uint64_t i = 0; i < 300; i += 2) {
		note(f, (i + 1) * MIB, MIB);
		note(f, i * MIB, MIB);
	}
	assert_in_range(f->n_asked, 296, 298 + 144);
	end(f);
	/* And send pieces of its window from several threads. */
	f = start();
	for (uint64_t i = 0; i < 300; i += 4) {
		note(f, (i + 2) * MIB, MIB);
		note(f, (i + 3) * MIB, MIB);
		note(f, i * MIB, MIB);
		note(f, (i + 1) * MIB, MIB);
	}
	assert_in_range(f->n_asked, 290, 298 + 144);
	end(f);
}

static void backwards(void **state)
{
	static const uint32_t sizes[] = {4096, 131072, 1 << 20, 3 << 20};

	(void)state;
	for (unsigned s = 0; s < 4; s++) {
		struct fixture *f = start();

		for (uint64_t offset = 384 * MIB; offset;) {
			offset -= sizes[s];
			note(f, offset, sizes[s]);
		}
		/* Each but those that the first reads were of, in parts. */
		assert_in_range(f->n_asked, 384 - 9, 384 - 1);
		assert_in_range(f->n_wishes, 1, 384 / 8 + 16);
		end(f);
	}
}

/* Of each three chunks one. */
static void small_strides_ask_for_nothing(void **state)
{
	struct fixture *f = start();

	(void)state;
	for (uint64_t i = 0; i < 300; i++)
		note(f, i * 3 * MIB, MIB);
	assert_int_equal(f->n_asked, 0);
	/* Also after all of it was read for long. */
	for (uint64_t i = 0; i < 500; i++)
		note(f, (1000 + i) * MIB, MIB);
	f->n_asked = 0;
	for (uint64_t i = 0; i < 500; i++)
		note(f, 1500 * MIB + i * 3 * MIB, MIB);
	assert_in_range(f->n_asked, 0, 350);
	end(f);
}

/* Tensors of one size with others between them: what lies between is fetched once at most. */
static void runs_with_gaps(void **state)
{
	struct fixture *f = start();

	(void)state;
	for (uint64_t run = 0; run < 10; run++) {
		for (uint64_t i = 0; i < 32; i++)
			note(f, run * 200 * MIB + i * MIB, MIB);
		assert_in_range(f->n_asked, run * 30, (run + 1) * 32 + 144);
	}
	/* One that is longer is run ahead of as far as any. */
	f->n_asked = 0;
	for (uint64_t i = 0; i < 200; i++)
		note(f, 2100 * MIB + i * MIB, MIB);
	assert_in_range(f->n_asked, 199 + 64, 199 + 144);
	end(f);
}

/* The ends of what can be asked for. */
static void far_offsets(void **state)
{
	struct fixture *f = start();
	uint64_t last = (uint64_t)UINT32_MAX * CHUNK_SIZE - 40 * MIB;

	(void)state;
	for (uint64_t i = 0; i < 40; i++)
		note(f, last + i * MIB, MIB);
	end(f);
}

/* A whole object, as handles do it: each byte once, in few requests. */
static void a_sequential_reader_makes_large_requests(void **state)
{
	struct rig *rig = *state;
	struct handle handle;

	world_put(rig->world, "o", 100 * MIB + 1);
	handle_open(rig, "o", &handle);
	assert_int_equal(read_whole(&handle, 128 << 10), 0);
	assert_int_equal(world_counts(rig->world).get_bytes, 100 * MIB + 1);
	assert_true(world_counts(rig->world).gets <= 30);
	handle_close(&handle);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_reads_ask_for_nothing),
		cmocka_unit_test(sequential_reads_grow),
		cmocka_unit_test(a_window_is_no_larger_than_it_must_be),
		cmocka_unit_test(a_far_origin_is_asked_for_more_sooner),
		cmocka_unit_test(parts_are_small_where_connections_age),
		cmocka_unit_test(parts_are_small_where_gets_are_slow),
		cmocka_unit_test(four_streams_at_once),
		cmocka_unit_test(many_readers_share),
		cmocka_unit_test(neighbours_in_any_order),
		cmocka_unit_test(backwards),
		cmocka_unit_test(small_strides_ask_for_nothing),
		cmocka_unit_test(runs_with_gaps),
		cmocka_unit_test(far_offsets),
		cmocka_unit_test_setup_teardown(
			a_sequential_reader_makes_large_requests, rig_set_up, rig_tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
