/* Names: few questions, no stale "missing", no listing that is short. */
#include "rig.h"
#include "tree_private.h"

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One lookup or listing, waited for. */
struct question {
	struct tree_lookup lookup;
	struct tree_list list;
	struct tree_more more;
	struct lock lock;
	struct cond cond;
	bool done; /* lock */
	int error; /* lock */
};

static void answered(struct question *question, int error)
{
	lock_take(&question->lock);
	check(!question->done);
	question->done = true;
	question->error = error;
	cond_signal(&question->cond);
	lock_drop(&question->lock);
}

static void lookup_done(struct tree_lookup *lookup, int error)
{
	answered(container_of(lookup, struct question, lookup), error);
}

static void list_done(struct tree_list *list, int error)
{
	answered(container_of(list, struct question, list), error);
}

static void question_init(struct question *question)
{
	*question = (struct question){.done = false};
	lock_init(&question->lock);
	cond_init(&question->cond);
}

static void lookup_begin(
	struct question *question, struct tree *tree, const char *path, bool revalidate)
{
	question_init(question);
	question->lookup = (struct tree_lookup){
		.tree = tree, .path = path, .revalidate = revalidate, .done = lookup_done};
	tree_lookup_start(&question->lookup);
}

static void list_begin(struct question *question, struct tree *tree, const char *path)
{
	question_init(question);
	question->list = (struct tree_list){.tree = tree, .path = path, .done = list_done};
	tree_list_start(&question->list);
}

static bool is_done(struct question *question)
{
	bool done;

	lock_take(&question->lock);
	done = question->done;
	lock_drop(&question->lock);
	return done;
}

static int question_wait(struct question *question)
{
	lock_take(&question->lock);
	while (!question->done)
		cond_wait(&question->cond, &question->lock);
	lock_drop(&question->lock);
	cond_destroy(&question->cond);
	lock_destroy(&question->lock);
	return question->error;
}

static int look(struct tree *tree, const char *path, struct origin_attr *ret)
{
	struct question question;
	int r;

	lookup_begin(&question, tree, path, false);
	r = question_wait(&question);
	if (!r && ret)
		*ret = question.lookup.attr;
	return r;
}

static int look_again(struct tree *tree, const char *path, struct origin_attr *ret)
{
	struct question question;
	int r;

	lookup_begin(&question, tree, path, true);
	r = question_wait(&question);
	if (!r && ret)
		*ret = question.lookup.attr;
	return r;
}

/* How many names, or the error. */
static int64_t list_now(struct tree *tree, const char *path)
{
	struct question question;
	int64_t n;

	list_begin(&question, tree, path);
	n = question_wait(&question);
	if (!n)
		n = (int64_t)listing_count(question.list.listing);
	listing_unref(question.list.listing);
	return n;
}

static struct tree *tree_start(struct rig *rig, uint64_t ttl_ms, uint64_t negative_ttl_ms)
{
	struct tree_config config = {.ttl_ms = ttl_ms, .negative_ttl_ms = negative_ttl_ms};
	struct tree *tree;

	assert_int_equal(tree_new(rig->cache, rig->origin, &config, &tree), 0);
	rig->tree = tree;
	return tree;
}

static void tree_end(struct rig *rig)
{
	tree_free(rig->tree);
	rig->tree = NULL;
}

#define FOREVER UINT64_MAX

static uint64_t asked(struct rig *rig)
{
	struct world_counts counts = world_counts(rig->world);

	return counts.lists + counts.stats;
}

static void small_directories_cost_one_list(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, FOREVER, FOREVER);
	struct origin_attr attr, expected;

	world_put(rig->world, "a/x", 10);
	world_put(rig->world, "a/y/z", 20);
	assert_int_equal(look(tree, "", &attr), 0);
	assert_int_equal(attr.kind, ORIGIN_DIR);
	assert_int_equal(asked(rig), 0);
	assert_int_equal(look(tree, "a", &attr), 0);
	assert_int_equal(attr.kind, ORIGIN_DIR);
	assert_int_equal(look(tree, "a/x", &attr), 0);
	expected = world_attr(rig->world, "a/x");
	assert_int_equal(attr.size_bytes, 10);
	assert_string_equal(attr.version.text, expected.version.text);
	assert_true(attr.version.strong);
	assert_int_equal(look(tree, "a/y", &attr), 0);
	assert_int_equal(attr.kind, ORIGIN_DIR);
	assert_int_equal(look(tree, "a/none", NULL), -ENOENT);
	assert_int_equal(look(tree, "none/x", NULL), -ENOENT);
	assert_int_equal(list_now(tree, "a"), 2);
	assert_int_equal(list_now(tree, ""), 1);
	/* "", "a" and "none". */
	assert_int_equal(asked(rig), 3);
	assert_int_equal(list_now(tree, "none"), -ENOENT);
	assert_int_equal(tree_peek(tree, "a/x", &attr), 0);
	assert_int_equal(tree_peek(tree, "a/none", &attr), -ENOENT);
	assert_int_equal(tree_peek(tree, "a/y/z", &attr), -EAGAIN);
	assert_int_equal(asked(rig), 3);
	tree_end(rig);
}

static void many_at_once_ask_once(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, FOREVER, FOREVER);
	struct question lists[20], lookups[20];

	world_put_many(rig->world, "d", 500);
	world_hold_names(rig->world);
	for (unsigned i = 0; i < 20; i++) {
		list_begin(&lists[i], tree, "d");
		lookup_begin(&lookups[i], tree, i % 2 ? "d/n000007" : "d/none", false);
	}
	world_wait_names_held(rig->world, 1);
	world_release_names(rig->world);
	for (unsigned i = 0; i < 20; i++) {
		assert_int_equal(question_wait(&lists[i]), 0);
		assert_int_equal(listing_count(lists[i].list.listing), 500);
		assert_ptr_equal(lists[i].list.listing, lists[0].list.listing);
		assert_int_equal(question_wait(&lookups[i]), i % 2 ? 0 : -ENOENT);
	}
	for (unsigned i = 0; i < 20; i++)
		listing_unref(lists[i].list.listing);
	assert_int_equal(asked(rig), 1);
	tree_end(rig);
}

static void large_directories_are_asked_by_name(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, FOREVER, FOREVER);
	struct origin_attr attr;

	world_page(rig->world, 100);
	world_put_many(rig->world, "d", 250);
	assert_int_equal(look(tree, "d/n000249", &attr), 0);
	assert_int_equal(attr.size_bytes, 1);
	assert_int_equal(look(tree, "d/n000249", &attr), 0);
	assert_int_equal(look(tree, "d/none", NULL), -ENOENT);
	assert_int_equal(look(tree, "d/none", NULL), -ENOENT);
	assert_int_equal(world_counts(rig->world).lists, 1);
	assert_int_equal(world_counts(rig->world).stats, 2);
	assert_int_equal(list_now(tree, "d"), 250);
	assert_int_equal(world_counts(rig->world).lists, 4);
	assert_int_equal(look(tree, "d/n000100", NULL), 0);
	assert_int_equal(look(tree, "d/other", NULL), -ENOENT);
	assert_int_equal(world_counts(rig->world).stats, 2);
	tree_end(rig);
}

static void a_huge_directory_is_whole(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, FOREVER, FOREVER);
	struct listing_entry entry;
	struct question question;
	char name[32];

	world_page(rig->world, 5000);
	world_put_many(rig->world, "d", 150000);
	list_begin(&question, tree, "d");
	assert_int_equal(question_wait(&question), 0);
	assert_int_equal(listing_count(question.list.listing), 150000);
	for (unsigned i = 0; i < 150000; i++) {
		listing_get(question.list.listing, i, &entry);
		snprintf(name, sizeof name, "n%06u", i);
		assert_string_equal(entry.name, name);
		assert_true(entry.attr_known);
	}
	assert_int_equal(world_counts(rig->world).lists, 30);
	listing_unref(question.list.listing);
	tree_end(rig);
}

static void wait_until_saved(struct tree *tree)
{
	lock_take(&tree->lock);
	while (tree->saves)
		cond_wait(&tree->quiet, &tree->lock);
	lock_drop(&tree->lock);
}

static void stream_begin(struct question *question, struct tree *tree, const char *path)
{
	question_init(question);
	question->list =
		(struct tree_list){.tree = tree, .path = path, .streams = true, .done = list_done};
	tree_list_start(&question->list);
}

static void more_done(struct tree_more *more)
{
	answered(container_of(more, struct question, more), 0);
}

static void more_begin(
	struct question *question, struct tree *tree, struct listing *listing, size_t entry)
{
	question_init(question);
	question->more = (struct tree_more){
		.tree = tree, .listing = listing, .entry = entry, .done = more_done};
	tree_more_start(&question->more);
}

static void names_are_given_as_they_come(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, FOREVER, FOREVER);
	struct question first, second, all, more;
	struct listing *listing;
	struct origin_attr attr;

	world_in_order(rig->world);
	world_page(rig->world, 100);
	world_put_many(rig->world, "d", 450);
	world_hold_names_after(rig->world, 2);
	stream_begin(&first, tree, "d");
	assert_int_equal(question_wait(&first), 0);
	listing = first.list.listing;
	assert_int_equal(listing_state(listing), LISTING_GROWING);
	more_begin(&more, tree, listing, 150);
	question_wait(&more);
	assert_true(listing_count(listing) > 150 && listing_count(listing) <= 200);
	/* Names that were given are known. */
	assert_int_equal(look(tree, "d/n000042", &attr), 0);
	assert_int_equal(world_counts(rig->world).stats, 0);
	/* Who comes later gets the same; who wants all of it waits. */
	stream_begin(&second, tree, "d");
	assert_int_equal(question_wait(&second), 0);
	assert_ptr_equal(second.list.listing, listing);
	list_begin(&all, tree, "d");
	more_begin(&more, tree, listing, 300);
	world_wait_names_held(rig->world, 1);
	assert_false(is_done(&all) || is_done(&more));
	world_release_names(rig->world);
	question_wait(&more);
	assert_int_equal(question_wait(&all), 0);
	assert_ptr_equal(all.list.listing, listing);
	assert_int_equal(listing_state(listing), 0);
	assert_int_equal(listing_count(listing), 450);
	/* It is whole: nothing to wait for. */
	more_begin(&more, tree, listing, 450);
	question_wait(&more);
	assert_int_equal(world_counts(rig->world).lists, 5);
	for (unsigned i = 0; i < 3; i++)
		listing_unref(listing);
	tree_end(rig);
}

/* Names that were given are followed by the error, not by an end. */
static void a_stream_ends_with_the_error(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, FOREVER, FOREVER);
	int errors[][2] = {{-EIO, -EIO}, {-EACCES, -EACCES}, {-ENOENT, -EIO}};
	struct question first, more;

	world_in_order(rig->world);
	world_page(rig->world, 100);
	world_put_many(rig->world, "d", 450);
	for (unsigned i = 0; i < 3; i++) {
		world_fail_names(rig->world, errors[i][0], 3, 1);
		stream_begin(&first, tree, "d");
		assert_int_equal(question_wait(&first), 0);
		more_begin(&more, tree, first.list.listing, 400);
		question_wait(&more);
		assert_int_equal(listing_state(first.list.listing), errors[i][1]);
		assert_true(listing_count(first.list.listing) <= 300);
		listing_unref(first.list.listing);
	}
	tree_end(rig);
}

/* Nobody reads on: the rest isn't asked for. */
static void a_stream_that_nobody_reads_ends(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, FOREVER, FOREVER);
	struct question first;

	world_in_order(rig->world);
	world_page(rig->world, 100);
	world_put_many(rig->world, "d", 1000);
	world_hold_names_after(rig->world, 1);
	stream_begin(&first, tree, "d");
	assert_int_equal(question_wait(&first), 0);
	world_wait_names_held(rig->world, 1);
	listing_unref(first.list.listing);
	world_release_names(rig->world);
	tree_end(rig);
	assert_int_equal(world_counts(rig->world).lists, 2);
}

/* A listing that is asked for anew doesn't need twice its room. */
static void the_older_answer_makes_room(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, 0, 0);
	struct listing_room *room = &rig->cache->listing_room;
	struct question question;

	world_put_many(rig->world, "d", 500);
	assert_int_equal(list_now(tree, "d"), 500);
	assert_true(atomic_load(&room->used_bytes) > 500);
	world_hold_names(rig->world);
	list_begin(&question, tree, "d");
	world_wait_names_held(rig->world, 1);
	wait_until_saved(tree);
	room->make(room);
	assert_int_equal(atomic_load(&room->used_bytes), 0);
	world_release_names(rig->world);
	assert_int_equal(question_wait(&question), 0);
	assert_int_equal(listing_count(question.list.listing), 500);
	listing_unref(question.list.listing);
	/* And it isn't gone for good. */
	wait_until_saved(tree);
	room->make(room);
	world_fail_names(rig->world, -EIO, 0, 1);
	assert_int_equal(list_now(tree, "d"), 500);
	tree_end(rig);
}

static void forget_all_but(struct tree *tree, const char *path)
{
	lock_take(&tree->lock);
	dirs_trim(tree, 0, dir_find(tree, path, strlen(path)));
	lock_drop(&tree->lock);
}

/* An answer that isn't saved is followed by no older one of the index. */
static void the_index_replaces_nothing_newer(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, FOREVER, FOREVER);
	struct listing_room *room = &rig->cache->listing_room;
	struct question question;
	struct origin_attr attr;

	world_put(rig->world, "d/x", 1);
	assert_int_equal(list_now(tree, "d"), 1);
	wait_until_saved(tree);
	/* The next one isn't: there are more saves than there may be. */
	lock_take(&tree->lock);
	tree->saves = 1000;
	lock_drop(&tree->lock);
	world_put(rig->world, "d/x", 2);
	tree_forget(tree, "d/x");
	world_hold_names(rig->world);
	list_begin(&question, tree, "d");
	world_wait_names_held(rig->world, 1);
	room->make(room);
	world_release_names(rig->world);
	assert_int_equal(question_wait(&question), 0);
	listing_unref(question.list.listing);
	lock_take(&tree->lock);
	tree->saves = 0;
	lock_drop(&tree->lock);
	assert_int_equal(look(tree, "d/x", &attr), 0);
	assert_int_equal(attr.size_bytes, 2);
	room->make(room);
	assert_int_equal(look(tree, "d/x", &attr), 0);
	assert_int_equal(attr.size_bytes, 2);
	world_put(rig->world, "d/x", 3);
	tree_forget(tree, "d/x");
	assert_int_equal(look(tree, "d/x", &attr), 0);
	assert_int_equal(attr.size_bytes, 3);
	tree_end(rig);
}

/* Nor is a listing that memory has no place for by what a name's own question said before. */
static void an_older_name_does_not_come_back(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, FOREVER, FOREVER);
	struct listing_room *room = &rig->cache->listing_room;
	struct origin_attr attr;

	world_put(rig->world, "d/x", 1);
	assert_int_equal(look_again(tree, "d/x", &attr), 0);
	world_put(rig->world, "d/x", 2);
	assert_int_equal(list_now(tree, "d"), 1);
	assert_int_equal(look(tree, "d/x", &attr), 0);
	assert_int_equal(attr.size_bytes, 2);
	wait_until_saved(tree);
	room->make(room);
	assert_int_equal(look(tree, "d/x", &attr), 0);
	assert_int_equal(attr.size_bytes, 2);
	tree_end(rig);
}

/* What a read found wrong isn't believed because it is read from the index once more. */
static void the_index_is_doubted_too(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, FOREVER, FOREVER);
	struct listing_room *room = &rig->cache->listing_room;
	struct origin_attr attr;

	world_put(rig->world, "d/x", 1);
	assert_int_equal(list_now(tree, "d"), 1);
	wait_until_saved(tree);
	room->make(room);
	world_put(rig->world, "d/x", 2);
	tree_forget(tree, "d/x");
	assert_int_equal(look(tree, "d/x", &attr), 0);
	assert_int_equal(attr.size_bytes, 2);
	/* It is for an origin that gives up. */
	wait_until_saved(tree);
	room->make(room);
	tree_forget(tree, "d/x");
	world_fail_names(rig->world, -EIO, 0, 1);
	assert_int_equal(look(tree, "d/x", &attr), 0);
	assert_int_equal(attr.size_bytes, 2);
	tree_end(rig);
}

struct blocker {
	struct job job;
	sem_t *blocks, *ends;
};

static void block(struct job *job)
{
	struct blocker *blocker = container_of(job, struct blocker, job);
	sem_t *ends = blocker->ends;

	sem_post(blocker->blocks);
	while (sem_wait(ends) < 0)
		;
}

/* While a listing is on its way to the index, which has an older one, it isn't forgotten. */
static void what_is_being_saved_is_remembered(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, FOREVER, FOREVER);
	struct listing_room *room = &rig->cache->listing_room;
	struct blocker blockers[2];
	struct question question;
	struct origin_attr attr;
	sem_t blocks, ends;
	bool done;

	assert_int_equal(sem_init(&blocks, 0, 0), 0);
	assert_int_equal(sem_init(&ends, 0, 0), 0);
	world_put(rig->world, "d/x", 1);
	assert_int_equal(list_now(tree, "d"), 1);
	wait_until_saved(tree);
	/* Both of those that save and read. */
	for (unsigned i = 0; i < 2; i++) {
		blockers[i] = (struct blocker){.job.run = block, .blocks = &blocks, .ends = &ends};
		list_init(&blockers[i].job.link);
		work_post(rig->cache->names, &blockers[i].job);
		while (sem_wait(&blocks) < 0)
			;
	}
	world_put(rig->world, "d/x", 2);
	tree_forget(tree, "d/x");
	assert_int_equal(look(tree, "d/x", &attr), 0);
	room->make(room);
	forget_all_but(tree, "");
	lookup_begin(&question, tree, "d/x", false);
	done = is_done(&question) && question.lookup.attr.size_bytes == 2;
	for (unsigned i = 0; i < 2; i++)
		sem_post(&ends);
	assert_int_equal(question_wait(&question), 0);
	assert_true(done);
	tree_end(rig);
	sem_destroy(&blocks);
	sem_destroy(&ends);
}

/* Memory that others use takes nobody's names away: they are asked for one by one. */
static void without_room_names_are_asked_for(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, FOREVER, FOREVER);
	struct listing_room *room = &rig->cache->listing_room;
	struct tree_stats stats;
	struct origin_attr attr;

	world_put(rig->world, "d/x", 1);
	world_put(rig->world, "e/x", 2);
	assert_int_equal(list_now(tree, "d"), 1);
	wait_until_saved(tree);
	room->make(room);
	atomic_fetch_add(&room->used_bytes, LISTINGS_BYTES_MAX);
	for (unsigned i = 0; i < 3; i++) {
		/* In the index, and nowhere. */
		assert_int_equal(look(tree, "d/x", &attr), 0);
		assert_int_equal(attr.size_bytes, 1);
		assert_int_equal(look(tree, "e/x", &attr), 0);
		assert_int_equal(attr.size_bytes, 2);
		assert_int_equal(look(tree, "e/none", NULL), -ENOENT);
	}
	assert_int_equal(world_counts(rig->world).lists, 3);
	assert_int_equal(world_counts(rig->world).stats, 3);
	assert_int_equal(list_now(tree, "e"), -ENOMEM);
	tree_stats(tree, &stats);
	assert_int_equal(stats.refused, 3);
	/* When there is room again the listing is right, and what isn't in it is known. */
	atomic_fetch_sub(&room->used_bytes, LISTINGS_BYTES_MAX);
	assert_int_equal(list_now(tree, "e"), 1);
	assert_int_equal(look(tree, "e/other", NULL), -ENOENT);
	assert_int_equal(world_counts(rig->world).stats, 3);
	tree_end(rig);
}

/* One that is too large for the index is no trouble of the disk's. */
static void a_listing_that_is_not_saved_is_no_trouble(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, FOREVER, FOREVER);

	/* A sixteenth of it. */
	rig->cache->space.capacity_bytes = 16 * 4096;
	world_put_many(rig->world, "d", 500);
	assert_int_equal(list_now(tree, "d"), 500);
	wait_until_saved(tree);
	assert_false(trouble_forbids_writes(rig->cache));
	assert_int_equal(rig_stats(rig).store_errors, 0);
	tree_end(rig);
	tree = tree_start(rig, FOREVER, FOREVER);
	assert_int_equal(list_now(tree, "d"), 500);
	assert_int_equal(world_counts(rig->world).lists, 2);
	tree_end(rig);
}

static int64_t stream_now(struct tree *tree, const char *path)
{
	struct question question;
	int64_t n;

	stream_begin(&question, tree, path);
	n = question_wait(&question);
	if (!n)
		n = (int64_t)listing_count(question.list.listing);
	listing_unref(question.list.listing);
	return n;
}

static void put_children(struct rig *rig, const char *parent, unsigned n)
{
	char path[64];

	for (unsigned i = 0; i < n; i++) {
		snprintf(path, sizeof path, "%s/c%03u/x", parent, i);
		world_put(rig->world, path, 1);
	}
}

static void wait_until_told(struct tree *tree)
{
	lock_take(&tree->lock);
	while (tree->asking)
		cond_wait(&tree->quiet, &tree->lock);
	lock_drop(&tree->lock);
}

static unsigned ahead_now(struct tree *tree)
{
	unsigned n;

	lock_take(&tree->lock);
	n = tree->n_ahead;
	lock_drop(&tree->lock);
	return n;
}

/* Who lists children one after the other is gone before, never by more than what was walked. */
static void a_walk_is_listed_ahead(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, FOREVER, FOREVER);
	struct question question;
	uint64_t promotions;
	char path[64];

	world_in_order(rig->world);
	put_children(rig, "d", 100);
	assert_int_equal(stream_now(tree, "d"), 100);
	assert_int_equal(stream_now(tree, "d/c000"), 1);
	assert_int_equal(world_counts(rig->world).lists, 2);
	for (unsigned i = 1; i < 60; i++) {
		uint64_t most = i + 2 + (i < 32 ? i : 32);

		snprintf(path, sizeof path, "d/c%03u", i);
		assert_int_equal(stream_now(tree, path), 1);
		assert_true(world_counts(rig->world).lists <= most);
	}
	wait_until_told(tree);
	promotions = world_counts(rig->world).promotions;
	world_hold_names(rig->world);
	for (unsigned i = 60;; i++) {
		world_wait_names_held(rig->world, ahead_now(tree));
		snprintf(path, sizeof path, "d/c%03u", i);
		stream_begin(&question, tree, path);
		if (!is_done(&question))
			break;
		assert_int_equal(question_wait(&question), 0);
		listing_unref(question.list.listing);
	}
	/* Waited for, it is no longer ahead. */
	assert_int_equal(world_counts(rig->world).promotions, promotions + 1);
	world_release_names(rig->world);
	assert_int_equal(question_wait(&question), 0);
	listing_unref(question.list.listing);
	/* The walk stops: nothing more is asked. */
	assert_true(world_counts(rig->world).lists <= 101);
	assert_int_equal(world_counts(rig->world).stats, 0);
	tree_end(rig);
}

static void walk_children(struct tree *tree, const char *parent, unsigned from, unsigned to)
{
	char path[64];

	for (unsigned i = from; i < to; i++) {
		snprintf(path, sizeof path, "%s/c%03u", parent, i);
		assert_int_equal(stream_now(tree, path), 1);
	}
}

static void a_walk_goes_on_in_a_directory_that_got_shorter(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, FOREVER, FOREVER);
	char path[64];

	world_in_order(rig->world);
	put_children(rig, "d", 100);
	assert_int_equal(stream_now(tree, "d"), 100);
	walk_children(tree, "d", 0, 99);
	for (unsigned i = 50; i < 100; i++) {
		snprintf(path, sizeof path, "d/c%03u/x", i);
		world_remove(rig->world, path);
	}
	tree_forget(tree, "d/x");
	assert_int_equal(stream_now(tree, "d"), 50);
	/* What the walk looked at last, the directory doesn't have any more. */
	walk_children(tree, "d", 10, 50);
	tree_end(rig);
}

static struct walk walk_of(struct tree *tree, const char *path)
{
	struct walk walk;

	lock_take(&tree->lock);
	walk = dir_find(tree, path, strlen(path))->walk;
	lock_drop(&tree->lock);
	return walk;
}

/* Each child that was asked for ahead counts once, as long as the walk may come to it. */
static void children_ahead_are_counted_once(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, FOREVER, FOREVER);
	uint64_t lists;
	char path[64];

	world_in_order(rig->world);
	put_children(rig, "d", 100);
	assert_int_equal(stream_now(tree, "d"), 100);
	walk_children(tree, "d", 0, 10);
	wait_until_told(tree);
	assert_int_equal(walk_of(tree, "d").unused, 9);
	/* Asked for again: nothing is fresh any more. */
	for (unsigned i = 10; i < 100; i++) {
		snprintf(path, sizeof path, "d/c%03u/x", i);
		tree_forget(tree, path);
	}
	tree_forget(tree, "d/x");
	assert_int_equal(stream_now(tree, "d"), 100);
	walk_children(tree, "d", 10, 11);
	wait_until_told(tree);
	assert_int_equal(walk_of(tree, "d").unused, 10);
	/* Forgotten, they leave room for others. */
	wait_until_saved(tree);
	forget_all_but(tree, "d");
	assert_int_equal(walk_of(tree, "d").unused, 0);
	lists = world_counts(rig->world).lists;
	walk_children(tree, "d", 40, 41);
	wait_until_told(tree);
	assert_true(world_counts(rig->world).lists > lists + 1);
	tree_end(rig);
}

/* Who is given the first names of a listing that was asked for ahead waits for the others. */
static void a_stream_promotes_what_was_ahead(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, FOREVER, FOREVER);
	struct question question;

	world_in_order(rig->world);
	world_page(rig->world, 10);
	put_children(rig, "d", 2);
	world_put_many(rig->world, "d/c002", 25);
	assert_int_equal(list_now(tree, "d"), 3);
	assert_int_equal(stream_now(tree, "d/c000"), 1);
	assert_int_equal(list_now(tree, "d/c001"), 1);
	world_hold_names_after(rig->world, 1);
	assert_int_equal(stream_now(tree, "d/c001"), 1);
	world_wait_names_held(rig->world, 1);
	assert_int_equal(ahead_now(tree), 1);
	stream_begin(&question, tree, "d/c002");
	assert_true(is_done(&question));
	assert_int_equal(question_wait(&question), 0);
	assert_int_equal(listing_state(question.list.listing), LISTING_GROWING);
	assert_int_equal(ahead_now(tree), 0);
	assert_int_equal(world_counts(rig->world).promotions, 1);
	world_release_names(rig->world);
	listing_unref(question.list.listing);
	tree_end(rig);
}

static void no_walk_is_not_listed_ahead(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, FOREVER, FOREVER);

	world_in_order(rig->world);
	put_children(rig, "d", 50);
	put_children(rig, "e", 50);
	assert_int_equal(stream_now(tree, "d"), 50);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(stream_now(tree, "d"), 50);
	assert_int_equal(stream_now(tree, "d/c010"), 1);
	assert_int_equal(stream_now(tree, "e"), 50);
	assert_int_equal(look(tree, "e/c001/x", NULL), 0);
	assert_int_equal(look(tree, "e/c002/x", NULL), 0);
	assert_int_equal(world_counts(rig->world).lists, 5);
	tree_end(rig);
}

/* The origin says that names come in order, and they don't. */
static void order_that_is_none(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, FOREVER, FOREVER);
	struct question first, more;
	char path[16];

	world_in_order(rig->world);
	world_page(rig->world, 10);
	for (unsigned i = 0; i < 30; i++) {
		/* Each page in order, the pages not. */
		snprintf(path, sizeof path, "d/%u%u", 3 - i / 10, i % 10);
		world_put(rig->world, path, 1);
	}
	stream_begin(&first, tree, "d");
	assert_int_equal(question_wait(&first), 0);
	more_begin(&more, tree, first.list.listing, 25);
	question_wait(&more);
	assert_int_equal(listing_state(first.list.listing), -EIO);
	listing_unref(first.list.listing);
	/* Now it is known. */
	assert_int_equal(list_now(tree, "d"), 30);
	tree_end(rig);
	tree = tree_start(rig, FOREVER, FOREVER);
	assert_int_equal(list_now(tree, "d"), 30);
	tree_end(rig);
}

static void an_error_on_a_page_is_an_error(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, FOREVER, FOREVER);

	world_page(rig->world, 100);
	world_put_many(rig->world, "d", 450);
	world_fail_names(rig->world, -EIO, 2, 1);
	assert_int_equal(list_now(tree, "d"), -EIO);
	assert_int_equal(world_counts(rig->world).lists, 3);
	world_fail_names(rig->world, -EACCES, 4, 1);
	assert_int_equal(list_now(tree, "d"), -EACCES);
	/* It was there a moment ago. */
	world_fail_names(rig->world, -ENOENT, 1, 1);
	assert_int_equal(list_now(tree, "d"), -EIO);
	tree_end(rig);
	tree = tree_start(rig, FOREVER, FOREVER);
	assert_int_equal(list_now(tree, "d"), 450);
	tree_end(rig);
}

static void errors_are_not_missing(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, 0, FOREVER);
	int errors[] = {-EIO, -EACCES};

	world_put(rig->world, "d/x", 1);
	for (unsigned i = 0; i < 2; i++) {
		world_fail_names(rig->world, errors[i], 0, 1);
		assert_int_equal(look(tree, "d/x", NULL), errors[i]);
		world_fail_names(rig->world, errors[i], 0, 1);
		assert_int_equal(look(tree, "d/none", NULL), errors[i]);
		world_fail_names(rig->world, errors[i], 0, 1);
		assert_int_equal(list_now(tree, "d"), errors[i]);
		world_fail_names(rig->world, errors[i], 0, 1);
		assert_int_equal(look_again(tree, "d/x", NULL), errors[i]);
	}
	assert_int_equal(look(tree, "d/x", NULL), 0);
	/* Known now: an origin that gives up doesn't take it away, nor does a name that nobody has
	 * become one that is missing. */
	world_fail_names(rig->world, -EIO, 0, 1);
	assert_int_equal(look(tree, "d/x", NULL), 0);
	world_fail_names(rig->world, -EIO, 0, 1);
	assert_int_equal(look(tree, "d/none", NULL), -EIO);
	world_fail_names(rig->world, -EACCES, 0, 1);
	assert_int_equal(look(tree, "d/x", NULL), -EACCES);
	world_fail_names(rig->world, -EIO, 0, 1);
	assert_int_equal(list_now(tree, "d"), 1);
	tree_end(rig);
}

static void ttl_0_asks_each_time(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, 0, 0);
	struct origin_attr attr;

	world_put(rig->world, "d/x", 1);
	for (unsigned i = 1; i <= 5; i++) {
		world_put(rig->world, "d/x", i);
		assert_int_equal(look(tree, "d/x", &attr), 0);
		assert_int_equal(attr.size_bytes, i);
		assert_int_equal(look(tree, "d/none", NULL), -ENOENT);
	}
	assert_int_equal(world_counts(rig->world).lists, 10);
	world_put(rig->world, "d/none", 1);
	assert_int_equal(look(tree, "d/none", NULL), 0);
	world_remove(rig->world, "d/x");
	assert_int_equal(look(tree, "d/x", NULL), -ENOENT);
	assert_int_equal(list_now(tree, "d"), 1);
	world_remove(rig->world, "d/none");
	assert_int_equal(list_now(tree, "d"), -ENOENT);
	tree_end(rig);
}

/* "Missing" is believed for its own time, and when that is over the listing from before isn't. */
static void what_was_removed_stays_removed(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, FOREVER, 0);

	world_put(rig->world, "d/x", 1);
	world_put(rig->world, "d/y", 1);
	assert_int_equal(list_now(tree, "d"), 2);
	world_remove(rig->world, "d/x");
	assert_int_equal(look(tree, "d/x", NULL), 0);
	assert_int_equal(look_again(tree, "d/x", NULL), -ENOENT);
	assert_int_equal(look(tree, "d/x", NULL), -ENOENT);
	world_put(rig->world, "d/x", 7);
	assert_int_equal(look(tree, "d/x", NULL), 0);
	tree_end(rig);
}

/* An answer to a question from before a change doesn't hide what a later one said. */
static void the_later_question_wins(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, FOREVER, FOREVER);
	struct question list, lookup, again;
	struct origin_attr attr;

	world_put(rig->world, "d/x", 1);
	world_page(rig->world, 1);
	world_put(rig->world, "d/y", 1);
	world_hold_names(rig->world);
	list_begin(&list, tree, "d");
	world_wait_names_held(rig->world, 1);
	lookup_begin(&lookup, tree, "d/x", true);
	world_wait_names_held(rig->world, 2);
	/* Joins nothing that was asked before it. */
	lookup_begin(&again, tree, "d/x", true);
	world_release_names(rig->world);
	assert_int_equal(question_wait(&list), 0);
	assert_int_equal(question_wait(&lookup), 0);
	assert_int_equal(question_wait(&again), 0);
	assert_int_equal(world_counts(rig->world).stats, 2);
	listing_unref(list.list.listing);
	/* A listing under way when the name was said to be another. */
	world_put(rig->world, "d/x", 2);
	world_hold_names(rig->world);
	tree_forget(tree, "d/x");
	list_begin(&list, tree, "d");
	world_wait_names_held(rig->world, 1);
	tree_forget(tree, "d/x");
	world_release_names(rig->world);
	assert_int_equal(question_wait(&list), 0);
	listing_unref(list.list.listing);
	world_put(rig->world, "d/x", 3);
	assert_int_equal(look(tree, "d/x", &attr), 0);
	assert_int_equal(attr.size_bytes, 3);
	tree_end(rig);
}

static void forgotten_names_are_asked_again(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, FOREVER, FOREVER);
	struct origin_attr attr;

	world_put(rig->world, "d/x", 1);
	assert_int_equal(look(tree, "d/x", &attr), 0);
	world_put(rig->world, "d/x", 2);
	assert_int_equal(look(tree, "d/x", &attr), 0);
	assert_int_equal(attr.size_bytes, 1);
	tree_forget(tree, "d/x");
	assert_int_equal(tree_peek(tree, "d/x", &attr), -EAGAIN);
	assert_int_equal(look(tree, "d/x", &attr), 0);
	assert_int_equal(attr.size_bytes, 2);
	world_put(rig->world, "d/x", 3);
	assert_int_equal(look_again(tree, "d/x", &attr), 0);
	assert_int_equal(attr.size_bytes, 3);
	assert_int_equal(look(tree, "d/x", &attr), 0);
	assert_int_equal(attr.size_bytes, 3);
	tree_end(rig);
}

static void odd_keys(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, FOREVER, FOREVER);
	struct tree_stats stats;
	struct origin_attr attr;

	world_put(rig->world, "d/x", 1);
	world_put(rig->world, "d/x/y", 1);
	world_put(rig->world, "d/z", 1);
	world_hidden_keys(rig->world, "d", 3);
	assert_int_equal(list_now(tree, "d"), 2);
	assert_int_equal(look(tree, "d/x", &attr), 0);
	assert_int_equal(attr.kind, ORIGIN_DIR);
	tree_stats(tree, &stats);
	assert_int_equal(stats.hidden_keys, 4);
	tree_forget(tree, "d/x");
	world_remove(rig->world, "d/x");
	assert_int_equal(list_now(tree, "d"), 2);
	tree_stats(tree, &stats);
	assert_int_equal(stats.hidden_keys, 3);
	tree_end(rig);
}

static void names_without_attributes(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, FOREVER, FOREVER);
	struct origin_attr attr;

	world_hide_attrs(rig->world, true);
	world_put(rig->world, "d/x", 77);
	world_put(rig->world, "d/y/z", 1);
	assert_int_equal(look(tree, "d/x", &attr), 0);
	assert_int_equal(attr.size_bytes, 77);
	assert_int_equal(look(tree, "d/y", &attr), 0);
	assert_int_equal(look(tree, "d/none", &attr), -ENOENT);
	assert_int_equal(look(tree, "d/x", &attr), 0);
	assert_int_equal(world_counts(rig->world).lists, 1);
	assert_int_equal(world_counts(rig->world).stats, 1);
	tree_end(rig);
}

static void out_of_reach(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, 0, 0);
	struct question missing, directory;
	struct tree_stats stats;
	struct origin_attr attr;

	world_put(rig->world, "d/x", 5);
	assert_int_equal(list_now(tree, "d"), 1);
	world_reachable(rig->world, false);
	world_hold_names(rig->world);
	assert_int_equal(look(tree, "d/x", &attr), 0);
	assert_int_equal(attr.size_bytes, 5);
	assert_int_equal(list_now(tree, "d"), 1);
	tree_stats(tree, &stats);
	assert_int_equal(stats.stale, 2);
	/* Nothing is remembered of these: they wait, and get the error. */
	lookup_begin(&directory, tree, "e/x", false);
	assert_false(is_done(&directory));
	world_fail_names(rig->world, -EIO, 0, 100);
	lookup_begin(&missing, tree, "d/none", false);
	world_release_names(rig->world);
	assert_int_equal(question_wait(&missing), -EIO);
	assert_int_equal(question_wait(&directory), -EIO);
	tree_end(rig);
}

/* Who asked before the origin was known to be gone gets the older answer after a while. */
static void waits_end_when_it_is_out_of_reach(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, 0, 0);
	struct question list, lookup;

	world_put(rig->world, "d/x", 5);
	assert_int_equal(list_now(tree, "d"), 1);
	world_hold_names(rig->world);
	list_begin(&list, tree, "d");
	lookup_begin(&lookup, tree, "d/x", false);
	world_wait_names_held(rig->world, 1);
	world_reachable(rig->world, false);
	assert_int_equal(question_wait(&list), 0);
	assert_int_equal(question_wait(&lookup), 0);
	listing_unref(list.list.listing);
	world_release_names(rig->world);
	tree_end(rig);
}

/* A name that the listing from before doesn't have is an error soon, and not missing; one of a
 * directory that nobody has listed waits for the origin. */
static void unheard_of_names_are_not_waited_for(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, FOREVER, 0);
	struct question unheard_of, unknown;

	world_put(rig->world, "d/x", 5);
	assert_int_equal(list_now(tree, "d"), 1);
	world_hold_names(rig->world);
	lookup_begin(&unheard_of, tree, "d/none", false);
	lookup_begin(&unknown, tree, "e/x", false);
	world_wait_names_held(rig->world, 2);
	world_reachable(rig->world, false);
	assert_int_equal(question_wait(&unheard_of), -EIO);
	assert_false(is_done(&unknown));
	world_release_names(rig->world);
	assert_int_equal(question_wait(&unknown), -ENOENT);
	tree_end(rig);
}

static void listings_survive_a_restart(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, FOREVER, FOREVER);

	world_put_many(rig->world, "d", 300);
	assert_int_equal(list_now(tree, "d"), 300);
	tree_end(rig);
	rig_restart(rig);
	world_fail_names(rig->world, -EIO, 0, 1000);
	tree = tree_start(rig, FOREVER, FOREVER);
	assert_int_equal(look(tree, "d/n000003", NULL), 0);
	assert_int_equal(look(tree, "d/none", NULL), -ENOENT);
	assert_int_equal(list_now(tree, "d"), 300);
	assert_int_equal(asked(rig), 1);
	tree_end(rig);
	/* Old, but better than nothing when the origin gives up. */
	tree = tree_start(rig, 0, 0);
	assert_int_equal(list_now(tree, "d"), 300);
	assert_int_equal(look(tree, "d/n000299", NULL), 0);
	assert_int_equal(look(tree, "d/none", NULL), -EIO);
	tree_end(rig);
}

static void a_damaged_listing_is_none(void **state)
{
	struct rig *rig = *state;
	struct tree *tree = tree_start(rig, FOREVER, FOREVER);
	struct index_txn *txn;
	struct id128 id;
	size_t size;
	void *bytes;

	world_put_many(rig->world, "d", 300);
	assert_int_equal(list_now(tree, "d"), 300);
	tree_end(rig);
	id = hash128_strings((const char *const[]){origin_source(rig->origin), "fake://world/",
				     origin_identity(rig->origin), "d"},
		4);
	assert_int_equal(index_get_listing(rig->cache->index, id, &bytes, &size), 0);
	((uint8_t *)bytes)[size / 2] ^= 1;
	assert_int_equal(index_begin(rig->cache->index, &txn), 0);
	assert_int_equal(index_put_listing(txn, id, &(struct iovec){bytes, size}, 1), 0);
	assert_int_equal(index_commit(txn), 0);
	free(bytes);
	tree = tree_start(rig, FOREVER, FOREVER);
	assert_int_equal(list_now(tree, "d"), 300);
	assert_int_equal(asked(rig), 2);
	tree_end(rig);
}

/* Lookups, lists and changes from all sides. */
struct visitor {
	pthread_t thread;
	struct tree *tree;
	struct rig *rig;
	unsigned n;
};

static void *visit(void *arg)
{
	struct visitor *visitor = arg;
	uint64_t seed = visitor->n;

	for (unsigned i = 0; i < 300; i++) {
		unsigned n;
		char path[32];

		seed = seed * 6364136223846793005u + 1442695040888963407u;
		n = (unsigned)(seed >> 20) % 60;
		snprintf(path, sizeof path, "d%u/n%06u", (unsigned)(seed >> 40) % 4, n);
		if (i % 7 == 0)
			tree_forget(visitor->tree, path);
		if (i % 11 == 0) {
			path[2] = '\0';
			check(list_now(visitor->tree, path) == 50);
		} else {
			int r = i % 5 ? look(visitor->tree, path, NULL)
				      : look_again(visitor->tree, path, NULL);

			check(r == (n < 50 ? 0 : -ENOENT));
		}
	}
	return NULL;
}

static void many_visitors(void **state)
{
	struct rig *rig = *state;
	struct visitor visitors[6];
	struct tree *tree;

	world_page(rig->world, 20);
	for (unsigned i = 0; i < 4; i++) {
		char dir[8];

		snprintf(dir, sizeof dir, "d%u", i);
		world_put_many(rig->world, dir, 50);
	}
	for (unsigned round = 0; round < 3; round++) {
		tree = tree_start(rig, round == 0 ? 0 : round == 1 ? 3 : FOREVER, round);
		for (unsigned i = 0; i < 6; i++) {
			visitors[i] = (struct visitor){.tree = tree, .rig = rig, .n = i};
			pthread_create(&visitors[i].thread, NULL, visit, &visitors[i]);
		}
		for (unsigned i = 0; i < 6; i++)
			pthread_join(visitors[i].thread, NULL);
		tree_end(rig);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(small_directories_cost_one_list),
		TEST(many_at_once_ask_once),
		TEST(large_directories_are_asked_by_name),
		TEST(names_are_given_as_they_come),
		TEST(a_stream_ends_with_the_error),
		TEST(a_stream_that_nobody_reads_ends),
		TEST(order_that_is_none),
		TEST(the_older_answer_makes_room),
		TEST(the_index_replaces_nothing_newer),
		TEST(an_older_name_does_not_come_back),
		TEST(the_index_is_doubted_too),
		TEST(what_is_being_saved_is_remembered),
		TEST(without_room_names_are_asked_for),
		TEST(a_listing_that_is_not_saved_is_no_trouble),
		TEST(a_walk_is_listed_ahead),
		TEST(children_ahead_are_counted_once),
		TEST(a_stream_promotes_what_was_ahead),
		TEST(a_walk_goes_on_in_a_directory_that_got_shorter),
		TEST(no_walk_is_not_listed_ahead),
		TEST(a_huge_directory_is_whole),
		TEST(an_error_on_a_page_is_an_error),
		TEST(errors_are_not_missing),
		TEST(ttl_0_asks_each_time),
		TEST(what_was_removed_stays_removed),
		TEST(the_later_question_wins),
		TEST(forgotten_names_are_asked_again),
		TEST(odd_keys),
		TEST(names_without_attributes),
		TEST(out_of_reach),
		TEST(waits_end_when_it_is_out_of_reach),
		TEST(unheard_of_names_are_not_waited_for),
		TEST(listings_survive_a_restart),
		TEST(a_damaged_listing_is_none),
		TEST(many_visitors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
