#include "fake_origin.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/lock.h"

#define ENGINE_THREADS 2
#define PIECE_MAX      (256u << 10)

struct origin {
	_Atomic unsigned refs;
	struct world *world;
	char *identity;
	struct pool_share share;
	_Atomic bool shut;
};

struct thing {
	struct list link;
	char *path;
	uint64_t size_bytes, seed;
};

enum work_kind { GET, STAT, LIST };

/* A request under way. The world's lock guards it; the engine thread that runs it owns `sent`. */
struct request {
	struct list link; /* in runnable or held, or alone while it runs or is paused */
	enum work_kind kind;
	union {
		struct origin_get *get;
		struct origin_stat *stat;
		struct origin_list *list;
	};
	uint64_t sent, fail_after;
	int error;
	bool paused, resumed, cancelled, held;
};

struct world {
	struct lock lock;
	struct cond wake, held_changed;
	struct list runnable, held, paused, names_held;
	struct list things;
	unsigned n_held, n_names_held, n_origins, n_requests, n_running;
	bool holding, holding_names, hide_attrs, unreachable, in_order, ending;
	char hold_path[64];
	uint64_t hold_after;
	size_t piece_bytes;
	uint64_t odd;
	struct {
		char identity[32];
		int error;
		uint64_t after_bytes;
		unsigned times;
	} fail_gets;
	struct {
		int error;
		unsigned skip, times;
	} fail_names;
	unsigned page, names_pass;
	char hidden_dir[64];
	unsigned hidden;
	uint64_t last_seed;
	struct world_counts counts;
	pthread_t threads[ENGINE_THREADS];
};

/* --- bytes --- */

static uint64_t word_of(uint64_t seed, uint64_t index)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15u + index * 0xbf58476d1ce4e5b9u;

	x ^= x >> 31;
	x *= 0x94d049bb133111ebu;
	return x ^ x >> 29;
}

static void bytes_of(uint64_t seed, uint64_t offset, uint8_t *bytes, size_t n)
{
	while (n) {
		uint64_t word = word_of(seed, offset / 8);
		size_t skip = offset % 8, some = 8 - skip < n ? 8 - skip : n;

		memcpy(bytes, (uint8_t *)&word + skip, some);
		bytes += some;
		offset += some;
		n -= some;
	}
}

bool seed_right(uint64_t seed, uint64_t offset, const uint8_t *bytes, size_t n)
{
	uint8_t expected[4096];

	while (n) {
		size_t some = n < sizeof expected ? n : sizeof expected;

		bytes_of(seed, offset, expected, some);
		if (memcmp(expected, bytes, some))
			return false;
		bytes += some;
		offset += some;
		n -= some;
	}
	return true;
}

/* --- things; world.lock held --- */

static struct thing *find(struct world *world, const char *path)
{
	list_for_each (link, &world->things) {
		struct thing *thing = container_of(link, struct thing, link);

		if (!strcmp(thing->path, path))
			return thing;
	}
	return NULL;
}

static void attr_of(const struct thing *thing, struct origin_attr *ret)
{
	*ret = (struct origin_attr){.kind = ORIGIN_FILE,
		.size_bytes = thing->size_bytes,
		.mtime_ns = (int64_t)thing->seed,
		.version.strong = true};
	snprintf(ret->version.text, sizeof ret->version.text, "\"%llu\"",
		(unsigned long long)thing->seed);
}

static bool is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return !n || (!strncmp(path, dir, n) && path[n] == '/');
}

static struct thing *add(struct world *world, const char *path, uint64_t size_bytes)
{
	struct thing *thing = calloc(1, sizeof *thing);

	check(thing);
	thing->path = strdup(path);
	check(thing->path);
	thing->size_bytes = size_bytes;
	thing->seed = ++world->last_seed;
	list_append(&world->things, &thing->link);
	return thing;
}

/* --- the engine --- */

static void get_finish(struct request *request, int error)
{
	struct world *world = request->get->origin->world;
	struct origin_get *get = request->get;
	struct origin *origin = get->origin;

	/* done first: until it returns, resume and cancel may come. */
	get->done(get, error);
	lock_take(&world->lock);
	check(list_empty(&request->link));
	world->n_requests--;
	cond_broadcast(&world->held_changed);
	lock_drop(&world->lock);
	free(request);
	origin_unref(origin);
}

/* What the get is to do next: bytes to give (0: none now), or *ret_end with the error it ends with. */
static size_t get_next(struct request *request, uint64_t *ret_seed, bool *ret_end, int *ret_error)
{
	struct origin_get *get = request->get;
	struct world *world = get->origin->world;
	struct thing *thing = find(world, get->path);
	uint64_t left = get->length - request->sent, stop = UINT64_MAX;
	struct origin_attr attr;
	size_t piece;

	*ret_end = true;
	*ret_error = -ECANCELED;
	if (request->cancelled || atomic_load(&get->origin->shut))
		return 0;
	*ret_error = request->error;
	if (request->error && request->sent >= request->fail_after)
		return 0;
	if (world->holding && (!world->hold_path[0] || !strcmp(world->hold_path, get->path)))
		stop = world->hold_after;
	if (request->sent >= stop) {
		*ret_end = false;
		request->held = true;
		list_append(&world->held, &request->link);
		world->n_held++;
		cond_broadcast(&world->held_changed);
		return 0;
	}
	*ret_error = -ENOENT;
	if (!thing)
		return 0;
	attr_of(thing, &attr);
	*ret_error = -ESTALE;
	if (strcmp(attr.version.text, get->version.text))
		return 0;
	check(get->length && get->offset + get->length <= thing->size_bytes);
	*ret_error = 0;
	*ret_end = !left;
	*ret_seed = thing->seed;
	world->odd = world->odd * 6364136223846793005u + 1442695040888963407u;
	piece = world->piece_bytes ? world->piece_bytes : 1 + (world->odd >> 33) % PIECE_MAX;
	if (piece > left)
		piece = left;
	if (piece > stop - request->sent)
		piece = stop - request->sent;
	if (request->error && piece > request->fail_after - request->sent)
		piece = request->fail_after - request->sent;
	return piece;
}

static void get_run(struct world *world, struct request *request, uint8_t *memory)
{
	struct origin_get *get = request->get;

	for (;;) {
		uint64_t seed = 0;
		size_t piece, taken;
		bool end, pause;
		int error;

		lock_take(&world->lock);
		piece = get_next(request, &seed, &end, &error);
		lock_drop(&world->lock);
		if (end) {
			get_finish(request, error);
			return;
		}
		if (!piece)
			return;
		bytes_of(seed, get->offset + request->sent, memory, piece);
		taken = get->data(get, memory, piece);
		check(taken <= piece);
		request->sent += taken;
		lock_take(&world->lock);
		world->counts.get_bytes += taken;
		/* A resume from inside data, or before it came back, was meant for this pause. */
		pause = taken < piece && !request->resumed && !request->cancelled;
		request->resumed = false;
		request->paused = pause;
		if (pause)
			list_append(&world->paused, &request->link);
		world->counts.pauses += taken < piece;
		lock_drop(&world->lock);
		if (pause)
			return;
	}
}

static int names_error(struct world *world)
{
	if (!world->fail_names.times)
		return 0;
	if (world->fail_names.skip) {
		world->fail_names.skip--;
		return 0;
	}
	world->fail_names.times--;
	return world->fail_names.error;
}

static void stat_run(struct world *world, struct origin_stat *stat)
{
	struct thing *thing;
	int r;

	lock_take(&world->lock);
	world->counts.stats++;
	r = names_error(world);
	if (!r) {
		r = -ENOENT;
		thing = find(world, stat->path);
		if (thing) {
			attr_of(thing, &stat->attr);
			r = 0;
		}
		list_for_each (link, &world->things) {
			if (is_below(container_of(link, struct thing, link)->path, stat->path)) {
				stat->attr = (struct origin_attr){.kind = ORIGIN_DIR};
				r = 0;
			}
		}
	}
	lock_drop(&world->lock);
	stat->done(stat, r);
}

/* One page, gathered under the lock, given without it. */
struct page {
	struct origin_entry *entries;
	char (*names)[64];
	unsigned n;
	bool more;
	unsigned long next;
};

static void page_gather(struct world *world, const struct origin_list *list, struct page *page)
{
	unsigned limit = list->limit ? list->limit : world->page;
	unsigned long from = list->token ? strtoul(list->token, NULL, 10) : 0, i = 0;
	size_t dir_size = strlen(list->path);

	page->entries = calloc(limit, sizeof *page->entries);
	page->names = calloc(limit, sizeof *page->names);
	check(page->entries && page->names);
	list_for_each (link, &world->things) {
		struct thing *thing = container_of(link, struct thing, link);
		const char *name = thing->path + (dir_size ? dir_size + 1 : 0);
		struct origin_entry *entry = &page->entries[page->n];
		const char *slash;

		if (!is_below(thing->path, list->path) || i++ < from)
			continue;
		if (page->n == limit) {
			page->more = true;
			page->next = i - 1;
			return;
		}
		slash = strchr(name, '/');
		snprintf(page->names[page->n], sizeof page->names[0], "%.*s",
			(int)(slash ? slash - name : (long)strlen(name)), name);
		entry->name = page->names[page->n++];
		entry->name_size = strlen(entry->name);
		entry->attr_known = slash || !world->hide_attrs;
		if (slash)
			entry->attr.kind = ORIGIN_DIR;
		else if (entry->attr_known)
			attr_of(thing, &entry->attr);
	}
}

static void list_run(struct world *world, struct origin_list *list)
{
	struct page page = {0};
	int r;

	lock_take(&world->lock);
	world->counts.lists++;
	r = names_error(world);
	if (!r) {
		page_gather(world, list, &page);
		if (!page.n && *list->path)
			r = -ENOENT;
		if (!list->token && !strcmp(world->hidden_dir, list->path))
			list->hidden_keys = world->hidden;
	}
	lock_drop(&world->lock);
	for (unsigned i = 0; i < page.n; i++)
		list->entry(list, &page.entries[i]);
	if (page.more)
		check(asprintf(&list->next_token, "%lu", page.next) > 0);
	free(page.entries);
	free(page.names);
	list->done(list, r);
}

static void *engine(void *arg)
{
	struct world *world = arg;
	uint8_t *memory = malloc(PIECE_MAX > (1 << 20) ? PIECE_MAX : 1 << 20);
	struct list *link;

	check(memory);
	lock_take(&world->lock);
	for (;;) {
		struct request *request;
		enum work_kind kind;

		while (!(link = list_pop(&world->runnable)) && !world->ending)
			cond_wait(&world->wake, &world->lock);
		if (!link)
			break;
		request = container_of(link, struct request, link);
		kind = request->kind;
		if (kind != GET && world->holding_names && !world->names_pass) {
			list_append(&world->names_held, link);
			world->n_names_held++;
			cond_broadcast(&world->held_changed);
			continue;
		}
		if (kind != GET && world->holding_names)
			world->names_pass--;
		world->n_running++;
		lock_drop(&world->lock);
		if (kind == GET) {
			get_run(world, request, memory);
		} else {
			struct origin *origin =
				kind == STAT ? request->stat->origin : request->list->origin;

			if (kind == STAT)
				stat_run(world, request->stat);
			else
				list_run(world, request->list);
			free(request);
			origin_unref(origin);
		}
		lock_take(&world->lock);
		if (kind != GET)
			world->n_requests--;
		world->n_running--;
		cond_broadcast(&world->held_changed);
	}
	lock_drop(&world->lock);
	free(memory);
	return NULL;
}

static struct request *request_new(struct origin *origin, enum work_kind kind)
{
	struct request *request = calloc(1, sizeof *request);

	check(request);
	origin_ref(origin);
	request->kind = kind;
	list_init(&request->link);
	return request;
}

/* world.lock held. */
static void run(struct world *world, struct request *request)
{
	list_append(&world->runnable, &request->link);
	cond_signal(&world->wake);
}

static void request_start(struct world *world, struct request *request)
{
	lock_take(&world->lock);
	world->n_requests++;
	run(world, request);
	lock_drop(&world->lock);
}

void origin_get_start(struct origin_get *get)
{
	struct world *world = get->origin->world;
	struct request *request = request_new(get->origin, GET);

	request->get = get;
	get->private.state = request;
	lock_take(&world->lock);
	world->counts.gets++;
	if (world->fail_gets.times &&
		(!world->fail_gets.identity[0] ||
			!strcmp(world->fail_gets.identity, get->origin->identity))) {
		world->fail_gets.times--;
		request->error = world->fail_gets.error;
		request->fail_after = world->fail_gets.after_bytes;
	}
	lock_drop(&world->lock);
	request_start(world, request);
}

/* world.lock held. */
static void unpause(struct world *world, struct request *request)
{
	list_remove(&request->link);
	request->paused = false;
	run(world, request);
}

void origin_get_resume(struct origin_get *get)
{
	struct world *world = get->origin->world;
	struct request *request = get->private.state;

	lock_take(&world->lock);
	if (request->paused)
		unpause(world, request);
	else
		request->resumed = true;
	lock_drop(&world->lock);
}

void origin_get_unpace(struct origin_get *get)
{
	check(get->private.state);
}

void origin_get_promote(struct origin_get *get, enum origin_priority priority)
{
	struct world *world = get->origin->world;

	check(priority == ORIGIN_DEMAND && get->private.state);
	lock_take(&world->lock);
	world->counts.promotions++;
	lock_drop(&world->lock);
}

/* Takes a held request out of where it stands. world.lock held. */
static void unhold(struct world *world, struct request *request)
{
	list_remove(&request->link);
	request->held = false;
	world->n_held--;
	run(world, request);
}

void origin_get_cancel(struct origin_get *get)
{
	struct world *world = get->origin->world;
	struct request *request = get->private.state;

	lock_take(&world->lock);
	request->cancelled = true;
	if (request->held)
		unhold(world, request);
	else if (request->paused)
		unpause(world, request);
	lock_drop(&world->lock);
}

void origin_stat_start(struct origin_stat *stat)
{
	struct request *request = request_new(stat->origin, STAT);

	request->stat = stat;
	request_start(stat->origin->world, request);
}

void origin_list_start(struct origin_list *list)
{
	struct request *request = request_new(list->origin, LIST);

	request->list = list;
	list->next_token = NULL;
	list->hidden_keys = 0;
	request_start(list->origin->world, request);
}

/* --- origins --- */

struct origin *world_origin(struct world *world, const char *identity)
{
	struct origin *origin = calloc(1, sizeof *origin);

	check(origin);
	origin->world = world;
	origin->identity = strdup(identity);
	check(origin->identity);
	atomic_init(&origin->refs, 1);
	lock_take(&world->lock);
	world->n_origins++;
	lock_drop(&world->lock);
	return origin;
}

struct origin *origin_ref(struct origin *origin)
{
	check(atomic_fetch_add(&origin->refs, 1) > 0);
	return origin;
}

void origin_unref(struct origin *origin)
{
	struct world *world;

	if (!origin || atomic_fetch_sub(&origin->refs, 1) > 1)
		return;
	world = origin->world;
	free(origin->identity);
	free(origin);
	lock_take(&world->lock);
	world->n_origins--;
	cond_broadcast(&world->held_changed);
	lock_drop(&world->lock);
}

bool origin_lists_all(const struct origin *origin)
{
	(void)origin;
	return true;
}

struct pool_share *origin_share(struct origin *origin)
{
	return &origin->share;
}

/* Ends the gets of the origin that stand in the list. world.lock held. */
static void shut_all(struct origin *origin, struct list *requests, bool held)
{
	list_for_each_safe (link, after, requests) {
		struct request *request = container_of(link, struct request, link);

		if (request->get->origin != origin)
			continue;
		if (held)
			unhold(origin->world, request);
		else
			unpause(origin->world, request);
	}
}

void origin_shutdown(struct origin *origin)
{
	struct world *world = origin->world;

	lock_take(&world->lock);
	atomic_store(&origin->shut, true);
	shut_all(origin, &world->held, true);
	shut_all(origin, &world->paused, false);
	lock_drop(&world->lock);
}

bool origin_is_shut(const struct origin *origin)
{
	return atomic_load(&origin->shut);
}

void origin_list_promote(struct origin_list *list)
{
	struct world *world = list->origin->world;

	lock_take(&world->lock);
	world->counts.promotions++;
	lock_drop(&world->lock);
}

bool origin_is_far(const struct origin *origin)
{
	(void)origin;
	return true;
}

bool origin_lists_in_order(const struct origin *origin)
{
	bool in_order;

	lock_take(&origin->world->lock);
	in_order = origin->world->in_order;
	lock_drop(&origin->world->lock);
	return in_order;
}

const char *origin_source(const struct origin *origin)
{
	(void)origin;
	return "fake://world";
}

const char *origin_identity(const struct origin *origin)
{
	return origin->identity;
}

int origin_object_name(const struct origin *origin, const char *path, char *name, size_t size)
{
	(void)origin;
	return snprintf(name, size, "fake://world/%s", path) < (int)size ? 0 : -ENAMETOOLONG;
}

unsigned origin_limit(const struct origin *origin)
{
	(void)origin;
	return 16;
}

bool origin_is_slow_to_answer(const struct origin *origin)
{
	(void)origin;
	return false;
}

enum origin_aging origin_aging(const struct origin *origin)
{
	(void)origin;
	return ORIGIN_LASTS;
}

uint64_t origin_mib_ns(const struct origin *origin)
{
	(void)origin;
	return 0;
}

void origin_stats(struct origin *origin, struct origin_stats *ret)
{
	struct world *world = origin->world;

	lock_take(&world->lock);
	*ret = (struct origin_stats){.reachable = !world->unreachable};
	lock_drop(&world->lock);
}

/* --- the world --- */

struct world *world_new(void)
{
	struct world *world = calloc(1, sizeof *world);

	check(world);
	lock_init(&world->lock);
	cond_init(&world->wake);
	cond_init(&world->held_changed);
	list_init(&world->runnable);
	list_init(&world->held);
	list_init(&world->paused);
	list_init(&world->names_held);
	list_init(&world->things);
	world->page = 1000;
	for (int i = 0; i < ENGINE_THREADS; i++)
		check(pthread_create(&world->threads[i], NULL, engine, world) == 0);
	return world;
}

void world_free(struct world *world)
{
	struct list *link;

	lock_take(&world->lock);
	while (world->n_requests || world->n_origins)
		cond_wait(&world->held_changed, &world->lock);
	world->ending = true;
	cond_broadcast(&world->wake);
	lock_drop(&world->lock);
	for (int i = 0; i < ENGINE_THREADS; i++)
		pthread_join(world->threads[i], NULL);
	while ((link = list_pop(&world->things))) {
		struct thing *thing = container_of(link, struct thing, link);

		free(thing->path);
		free(thing);
	}
	cond_destroy(&world->wake);
	cond_destroy(&world->held_changed);
	lock_destroy(&world->lock);
	free(world);
}

uint64_t world_put(struct world *world, const char *path, uint64_t size_bytes)
{
	struct thing *thing;
	uint64_t seed;

	lock_take(&world->lock);
	thing = find(world, path);
	if (!thing)
		thing = add(world, path, size_bytes);
	else
		thing->seed = ++world->last_seed;
	thing->size_bytes = size_bytes;
	seed = thing->seed;
	lock_drop(&world->lock);
	return seed;
}

void world_put_many(struct world *world, const char *dir, unsigned n)
{
	char path[64];

	lock_take(&world->lock);
	for (unsigned i = 0; i < n; i++) {
		snprintf(path, sizeof path, "%s/n%06u", dir, i);
		add(world, path, 1);
	}
	lock_drop(&world->lock);
}

void world_remove(struct world *world, const char *path)
{
	struct thing *thing;

	lock_take(&world->lock);
	thing = find(world, path);
	check(thing);
	list_remove(&thing->link);
	free(thing->path);
	free(thing);
	lock_drop(&world->lock);
}

struct origin_attr world_attr(struct world *world, const char *path)
{
	struct origin_attr attr;
	struct thing *thing;

	lock_take(&world->lock);
	thing = find(world, path);
	check(thing);
	attr_of(thing, &attr);
	lock_drop(&world->lock);
	return attr;
}

void world_pieces(struct world *world, size_t bytes)
{
	lock_take(&world->lock);
	world->piece_bytes = bytes;
	lock_drop(&world->lock);
}

void world_hold(struct world *world, const char *path, uint64_t after_bytes)
{
	lock_take(&world->lock);
	world->holding = true;
	snprintf(world->hold_path, sizeof world->hold_path, "%s", path);
	world->hold_after = after_bytes;
	lock_drop(&world->lock);
}

void world_wait_held(struct world *world, unsigned n)
{
	lock_take(&world->lock);
	while (world->n_held < n)
		cond_wait(&world->held_changed, &world->lock);
	lock_drop(&world->lock);
}

void world_release(struct world *world)
{
	lock_take(&world->lock);
	world->holding = false;
	while (!list_empty(&world->held))
		unhold(world, container_of(world->held.next, struct request, link));
	lock_drop(&world->lock);
}

void world_fail_gets(
	struct world *world, const char *identity, int error, uint64_t after_bytes, unsigned times)
{
	lock_take(&world->lock);
	snprintf(world->fail_gets.identity, sizeof world->fail_gets.identity, "%s",
		identity ? identity : "");
	world->fail_gets.error = error;
	world->fail_gets.after_bytes = after_bytes;
	world->fail_gets.times = times;
	lock_drop(&world->lock);
}

void world_break_paused(struct world *world, int error)
{
	lock_take(&world->lock);
	while (!list_empty(&world->paused)) {
		struct request *request = container_of(world->paused.next, struct request, link);

		request->error = error;
		request->fail_after = 0;
		unpause(world, request);
	}
	lock_drop(&world->lock);
}

void world_page(struct world *world, unsigned entries)
{
	lock_take(&world->lock);
	world->page = entries;
	lock_drop(&world->lock);
}

void world_in_order(struct world *world)
{
	lock_take(&world->lock);
	world->in_order = true;
	lock_drop(&world->lock);
}

void world_hide_attrs(struct world *world, bool hide)
{
	lock_take(&world->lock);
	world->hide_attrs = hide;
	lock_drop(&world->lock);
}

void world_hidden_keys(struct world *world, const char *dir, unsigned n)
{
	lock_take(&world->lock);
	snprintf(world->hidden_dir, sizeof world->hidden_dir, "%s", dir);
	world->hidden = n;
	lock_drop(&world->lock);
}

void world_hold_names(struct world *world)
{
	world_hold_names_after(world, 0);
}

void world_hold_names_after(struct world *world, unsigned pass)
{
	lock_take(&world->lock);
	world->holding_names = true;
	world->names_pass = pass;
	lock_drop(&world->lock);
}

void world_wait_names_held(struct world *world, unsigned n)
{
	lock_take(&world->lock);
	while (world->n_names_held < n)
		cond_wait(&world->held_changed, &world->lock);
	lock_drop(&world->lock);
}

void world_release_names(struct world *world)
{
	struct list *link;

	lock_take(&world->lock);
	world->holding_names = false;
	world->n_names_held = 0;
	while ((link = list_pop(&world->names_held)))
		run(world, container_of(link, struct request, link));
	lock_drop(&world->lock);
}

void world_fail_names(struct world *world, int error, unsigned skip, unsigned times)
{
	lock_take(&world->lock);
	world->fail_names.error = error;
	world->fail_names.skip = skip;
	world->fail_names.times = times;
	lock_drop(&world->lock);
}

void world_reachable(struct world *world, bool reachable)
{
	lock_take(&world->lock);
	world->unreachable = !reachable;
	lock_drop(&world->lock);
}

struct world_counts world_counts(struct world *world)
{
	struct world_counts counts;

	lock_take(&world->lock);
	while (world->n_running || !list_empty(&world->runnable))
		cond_wait(&world->held_changed, &world->lock);
	counts = world->counts;
	lock_drop(&world->lock);
	return counts;
}
