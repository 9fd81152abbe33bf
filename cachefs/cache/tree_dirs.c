/*
 * A directory's question, and who waits for it.
 *
 *   1. a question begins      dir_refresh; the index is read first, once
 *   2. the first page comes   it is all: 4. There is more: the directory is large, lookups go to
 *                             their names; who reads the directory for the first time gets the
 *                             listing as it grows
 *   3. further pages          as long as somebody waits for the whole listing or has the growing one.
 *                             Whoever waits for more names is told of each
 *   4. the listing is whole: installed, given to whoever waits, and saved in the index. Or it fails:
 *                             who read it gets the error after its last name
 */
#include "tree_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "whole.h"

void dir_begin(struct dir *dir, struct todo *todo)
{
	dir->asking = true;
	dir->asked_ns = clock_now_ns();
	tree_asking(dir->tree);
	list_append(&todo->dirs, &dir->to_ask);
}

void dir_refresh(struct dir *dir, struct todo *todo)
{
	check(lock_held(&dir->tree->lock));
	if (dir->asking || (dir->failed_ns && clock_now_ns() - dir->failed_ns < TREE_RETRY_NS))
		return;
	dir_begin(dir, todo);
}

void dir_wait_lookup(struct dir *dir, struct tree_lookup *lookup, struct todo *todo)
{
	list_append(&dir->lookups, &lookup->link);
	ahead_wanted(dir);
	if (!dir->asking)
		dir_begin(dir, todo);
}

/* Is there a growing listing that this one may have? A refresh is waited for instead: should it
 * fail, the older listing is the better answer. */
static bool may_stream(const struct dir *dir, const struct tree_list *list)
{
	return list->streams && dir->growing && !dir->listing && listing_count(dir->growing);
}

static void give_growing(struct dir *dir, struct tree_list *list, struct todo *todo)
{
	uint64_t left_ms = 0;

	tree_fresh(dir->asked_ns, dir->tree->config.ttl_ms, &left_ms);
	list_answer(list, 0, dir->growing, left_ms, todo);
}

void dir_wait_list(struct dir *dir, struct tree_list *list, struct todo *todo)
{
	ahead_wanted(dir);
	if (may_stream(dir, list)) {
		give_growing(dir, list, todo);
		return;
	}
	dir->whole |= !list->streams;
	list_append(&dir->lists, &list->link);
	if (!dir->asking)
		dir_begin(dir, todo);
}

static void answer_lists(struct dir *dir, int error, uint64_t fresh_ms, struct todo *todo)
{
	struct list *link;

	while ((link = list_pop(&dir->lists)))
		list_answer(container_of(link, struct tree_list, link), error, dir->listing,
			fresh_ms, todo);
}

static void answer_streams(struct dir *dir, struct todo *todo)
{
	list_for_each_safe (link, after, &dir->lists) {
		struct tree_list *list = container_of(link, struct tree_list, link);

		if (!may_stream(dir, list))
			continue;
		list_remove(&list->link);
		give_growing(dir, list, todo);
	}
}

void dir_give_more(struct tree *tree, const struct listing *listing, struct todo *todo)
{
	int state = listing_state(listing);

	check(lock_held(&tree->lock));
	list_for_each_safe (link, after, &tree->more) {
		struct tree_more *more = container_of(link, struct tree_more, link);

		if (more->listing != listing ||
			(state == LISTING_GROWING && listing_count(listing) <= more->entry))
			continue;
		list_remove(&more->link);
		list_append(&todo->more, &more->link);
	}
}

bool dir_growing_has(struct dir *dir, const char *component, struct listing_entry *ret)
{
	size_t index;

	return dir->growing &&
	       listing_find(dir->growing, component, strlen(component), ret, &index) &&
	       (ret->attr_known || ret->attr.kind == ORIGIN_DIR);
}

/* told: by a whole listing, just now. */
static void step_lookups(struct dir *dir, bool told, struct todo *todo)
{
	struct list waiting;
	struct list *link;

	list_init(&waiting);
	list_splice(&waiting, &dir->lookups);
	while ((link = list_pop(&waiting)))
		lookup_step(container_of(link, struct tree_lookup, link), told, todo);
}

/* The lookups that wait here get what the older listing says; what it doesn't have is the error,
 * never "missing". */
static void lookups_failed(struct dir *dir, int error, struct todo *todo)
{
	struct list *link;

	while ((link = list_pop(&dir->lookups))) {
		struct tree_lookup *lookup = container_of(link, struct tree_lookup, link);
		const char *slash = strrchr(lookup->path, '/');
		const char *component = slash ? slash + 1 : lookup->path;
		struct listing_entry entry;
		size_t index;

		if (error == -EIO && dir->listing &&
			listing_find(dir->listing, component, strlen(component), &entry, &index) &&
			(entry.attr_known || entry.attr.kind == ORIGIN_DIR)) {
			dir->tree->stats.stale++;
			lookup_answer(lookup, 0, &entry.attr, TREE_RETRY_NS / NS_PER_MS, todo);
		} else {
			lookup_answer(lookup, error, NULL, 0, todo);
		}
	}
}

static void lists_failed(struct dir *dir, int error, struct todo *todo)
{
	if (error == -EIO && dir->listing) {
		dir->tree->stats.stale += !list_empty(&dir->lists);
		answer_lists(dir, 0, TREE_RETRY_NS / NS_PER_MS, todo);
	} else {
		answer_lists(dir, error, 0, todo);
	}
}

static void question_ended(struct dir *dir)
{
	dir->asking = false;
	dir->whole = false;
	ahead_ended(dir);
	listing_unref(dir->growing);
	dir->growing = NULL;
	free(dir->request.token);
	free(dir->request.next_token);
	dir->request.token = dir->request.next_token = NULL;
	tree_asked(dir->tree);
	dirs_trim(dir->tree, TREE_BYTES_MAX, dir);
}

/* Who reads the growing listing finds the error at its end. */
static void growing_failed(struct dir *dir, int error, struct todo *todo)
{
	if (!dir->growing)
		return;
	listing_fail(dir->growing, error);
	dir_give_more(dir->tree, dir->growing, todo);
}

/* Memory has no room for the listing, which says nothing of its names. */
static bool is_refusal(int error)
{
	return error == -EFBIG || error == -ENOMEM;
}

/* There may be names all the same. */
static bool is_no_listing(const struct dir *dir, int error)
{
	return !origin_lists_all(dir->tree->origin) && (error == -ENOENT || error == -EACCES);
}

bool dir_refused(const struct dir *dir)
{
	return dir->refused && clock_now_ns() - dir->failed_ns < TREE_RETRY_NS;
}

static void question_failed(struct dir *dir, int error, struct todo *todo)
{
	uint64_t negative_ms = dir->tree->config.negative_ttl_ms;
	struct list *link;

	growing_failed(dir, error, todo);
	dir->refused = is_refusal(error);
	dir->large |= error == -EFBIG || is_no_listing(dir, error);
	if (dir->refused || is_no_listing(dir, error)) {
		dir->failed_ns = clock_now_ns();
		step_lookups(dir, false, todo);
	}
	if (error == -ENOENT) {
		dir_install(dir, NULL);
		dir->missing_from_ns = dir->asked_ns;
		dir->fresh_from_ns = dir->failed_ns = 0;
		while ((link = list_pop(&dir->lookups)))
			lookup_answer(container_of(link, struct tree_lookup, link), error, NULL,
				negative_ms, todo);
		answer_lists(dir, error, negative_ms, todo);
		return;
	}
	dir->failed_ns = clock_now_ns();
	lookups_failed(dir, error, todo);
	lists_failed(dir, error, todo);
}

static void question_answered(struct dir *dir, struct todo *todo)
{
	dir_give_more(dir->tree, dir->growing, todo);
	dir_install(dir, listing_ref(dir->growing));
	/* As of when it was asked for: what happened to names since, it needn't have. */
	dir->fresh_from_ns = dir->asked_ns;
	dir->missing_from_ns = dir->failed_ns = 0;
	/* The index has an older one, until this is saved, and for good if it can't be. */
	dir->index_read = true;
	dir->doubted = !dir->asked_ns;
	dir->refused = false;
	step_lookups(dir, true, todo);
	answer_lists(dir, 0, dir->tree->config.ttl_ms, todo);
	dir_save(dir);
}

/* The pages turned out to have no order: what was given of them fails, and for who got nothing yet
 * the listing is asked for once more. */
static bool begin_anew(struct dir *dir, struct todo *todo)
{
	bool wanted = dir->whole || !list_empty(&dir->lists);
	struct listing *anew = wanted ? listing_new(&dir->tree->cache->listing_room) : NULL;

	dir->unordered = true;
	if (!anew)
		return false;
	growing_failed(dir, -EIO, todo);
	listing_unref(dir->growing);
	dir->growing = anew;
	free(dir->request.next_token);
	dir->request.next_token = NULL;
	return true;
}

/* True: the next page is wanted. */
static bool page_came(struct dir *dir, struct todo *todo)
{
	dir->large = true;
	step_lookups(dir, false, todo);
	answer_streams(dir, todo);
	dir_give_more(dir->tree, dir->growing, todo);
	return dir->whole || !list_empty(&dir->lists) || listing_is_shared(dir->growing) ||
	       (dir->ahead && listing_grown(dir->growing) < AHEAD_NAMES_MAX);
}

static void page_entry(struct origin_list *list, const struct origin_entry *entry)
{
	listing_add(container_of(list, struct dir, request)->growing, entry);
}

/* Takes the page in; what is wrong with it. */
static int page_in(struct dir *dir, struct origin_list *list, int error)
{
	struct tree *tree = dir->tree;

	if (!error && list->next_token)
		error = listing_page_end(
			dir->growing, origin_lists_in_order(tree->origin) && !dir->unordered);
	else if (!error)
		error = listing_finish(dir->growing);
	/* The bucket itself is gone, which is nothing that a name can be; and what had a first page is
	 * not missing. */
	if (error == -ENXIO || (error == -ENOENT && list->token))
		error = -EIO;
	/* A line for the first of a row of refusals. */
	if (is_refusal(error) && !dir->refused)
		log_error("listing_refused", "source=%s directory=%s entries=%zu limit_bytes=%u",
			origin_source(tree->origin), dir->path,
			dir->growing ? listing_grown(dir->growing) : 0, LISTINGS_BYTES_MAX);
	if (error == -EBADMSG)
		log_warn("listing_out_of_order", "source=%s directory=%s",
			origin_source(tree->origin), dir->path);
	return error;
}

static void start_page(struct dir *dir)
{
	dir->request.priority = dir->ahead ? ORIGIN_READAHEAD : ORIGIN_DEMAND;
	origin_list_start(&dir->request);
}

static void page_done(struct origin_list *list, int error)
{
	struct dir *dir = container_of(list, struct dir, request);
	struct tree *tree = dir->tree;
	bool next = false;
	struct todo todo;

	if (!error)
		listing_add_hidden(dir->growing, list->hidden_keys);
	error = page_in(dir, list, error);
	todo_init(&todo);
	lock_take(&tree->lock);
	tree->stats.refused += is_refusal(error);
	if (error == -EBADMSG) {
		next = begin_anew(dir, &todo);
		if (!next)
			question_failed(dir, -EIO, &todo);
	} else if (error) {
		question_failed(dir, error, &todo);
	} else if (list->next_token) {
		next = page_came(dir, &todo);
	} else {
		dir->large = list->token != NULL;
		question_answered(dir, &todo);
	}
	if (next) {
		free(list->token);
		list->token = list->next_token;
		start_page(dir);
	} else {
		question_ended(dir);
	}
	lock_drop(&tree->lock);
	todo_do(&todo);
}

static void ask_origin(struct dir *dir)
{
	struct tree *tree = dir->tree;
	struct listing *growing = listing_new(&tree->cache->listing_room);

	dir->request = (struct origin_list){
		.origin = tree->origin, .path = dir->path, .entry = page_entry, .done = page_done};
	lock_take(&tree->lock);
	dir->growing = growing;
	if (growing)
		start_page(dir);
	lock_drop(&tree->lock);
	if (!growing)
		page_done(&dir->request, -ENOMEM);
}

/* The monotonic time that corresponds to when the listing was made; 0 if that is no time of the
 * past. */
static uint64_t listing_from_ns(const struct listing *listing)
{
	int64_t age_ns = clock_wall_ns() - listing_wall_ns(listing);
	uint64_t now = clock_now_ns();

	if (age_ns < 0)
		return 0;
	return (uint64_t)age_ns < now ? now - (uint64_t)age_ns : 1;
}

static void answer_those_who_go_on(struct dir *dir, struct todo *todo)
{
	list_for_each_safe (link, after, &dir->lists) {
		struct tree_list *list = container_of(link, struct tree_list, link);

		if (!list->goes_on)
			continue;
		list_remove(&list->link);
		list_answer(list, 0, dir->listing, 0, todo);
	}
}

static void index_run(struct job *job)
{
	struct dir *dir = container_of(job, struct dir, job);
	struct tree *tree = dir->tree;
	struct listing *listing = dir_saved(dir);
	uint64_t left_ms = 0, from_ns;
	bool fresh = false;
	struct todo todo;

	todo_init(&todo);
	lock_take(&tree->lock);
	if (listing) {
		dir_install(dir, listing);
		from_ns = listing_from_ns(listing);
		/* One that was there since may not have been saved. */
		dir->fresh_from_ns = dir->doubted || from_ns < dir->fresh_from_ns ? 0 : from_ns;
		fresh = tree_fresh(dir->fresh_from_ns, tree->config.ttl_ms, &left_ms);
	}
	if (fresh) {
		answer_lists(dir, 0, left_ms, &todo);
		step_lookups(dir, false, &todo);
		/* It may have expired in between: who waits here again is to be answered. */
		fresh = list_empty(&dir->lookups);
	} else if (listing) {
		answer_those_who_go_on(dir, &todo);
	}
	if (fresh)
		question_ended(dir);
	lock_drop(&tree->lock);
	if (!fresh)
		ask_origin(dir);
	todo_do(&todo);
}

void dir_ask(struct dir *dir)
{
	struct tree *tree = dir->tree;
	bool read;

	lock_take(&tree->lock);
	read = dir->index_read;
	dir->index_read = true;
	lock_drop(&tree->lock);
	if (read) {
		ask_origin(dir);
	} else {
		dir->job.run = index_run;
		work_post(tree->cache->names, &dir->job);
	}
}

void dirs_release(struct tree *tree, uint64_t now, struct todo *todo)
{
	list_for_each (link, &tree->dirs_lru) {
		struct dir *dir = container_of(link, struct dir, lru);

		if (!dir->asking || !dir->listing || now - dir->asked_ns < TREE_PATIENCE_NS)
			continue;
		lookups_failed(dir, -EIO, todo);
		lists_failed(dir, -EIO, todo);
	}
}
