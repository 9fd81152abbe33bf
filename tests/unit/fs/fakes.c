#include "fakes.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/lock.h"

#define FILES 16
#define HELD  64
#define FRESH 1000

struct file {
	char path[64];
	struct origin_attr attr;
};

struct object {
	int refs; /* fakes.lock */
	struct origin_attr attr;
};

struct reader {
	struct object *object;
};

struct listing {
	int refs; /* fakes.lock */
	size_t count;
	struct file files[FILES];
};

enum held_kind { HELD_LOOKUP, HELD_READ };

static struct {
	struct lock lock;
	struct file files[FILES];
	size_t n_files;
	bool warm, fresh, hold;
	int read_error;
	struct {
		enum held_kind kind;
		void *request;
	} held[HELD];
	size_t n_held, alive;
	unsigned forgotten;
} fakes = {.lock = LOCK_INITIALIZER};

void fakes_reset(void)
{
	lock_take(&fakes.lock);
	assert_int_equal(fakes.alive, 0);
	fakes.n_files = fakes.n_held = 0;
	fakes.warm = fakes.hold = false;
	fakes.fresh = true;
	fakes.read_error = 0;
	fakes.forgotten = 0;
	lock_drop(&fakes.lock);
}

static struct file *find(const char *path)
{
	for (size_t i = 0; i < fakes.n_files; i++) {
		if (!strcmp(fakes.files[i].path, path))
			return &fakes.files[i];
	}
	return NULL;
}

void fake_put(const char *path, const char *version, uint64_t size_bytes)
{
	size_t n = strlen(path);
	bool directory = path[n - 1] == '/';
	char name[64];
	struct file *file;

	strcpy(name, path);
	if (directory)
		name[n - 1] = '\0';
	lock_take(&fakes.lock);
	file = find(name);
	if (!file)
		file = &fakes.files[fakes.n_files++];
	*file = (struct file){.attr = {
				      .kind = directory ? ORIGIN_DIR : ORIGIN_FILE,
				      .size_bytes = size_bytes,
				      .mtime_ns = 1500000000,
			      }};
	strcpy(file->path, name);
	strcpy(file->attr.version.text, version);
	lock_drop(&fakes.lock);
}

void fake_delete(const char *path)
{
	lock_take(&fakes.lock);
	*find(path) = fakes.files[--fakes.n_files];
	lock_drop(&fakes.lock);
}

void fake_set_warm(bool warm)
{
	lock_take(&fakes.lock);
	fakes.warm = warm;
	lock_drop(&fakes.lock);
}

void fake_set_fresh(bool fresh)
{
	lock_take(&fakes.lock);
	fakes.fresh = fresh;
	lock_drop(&fakes.lock);
}

void fake_set_read_error(int error)
{
	lock_take(&fakes.lock);
	fakes.read_error = error;
	lock_drop(&fakes.lock);
}

void fake_hold(void)
{
	lock_take(&fakes.lock);
	fakes.hold = true;
	lock_drop(&fakes.lock);
}

size_t fake_held(void)
{
	size_t n;

	lock_take(&fakes.lock);
	n = fakes.n_held;
	lock_drop(&fakes.lock);
	return n;
}

size_t fake_alive(void)
{
	size_t n;

	lock_take(&fakes.lock);
	n = fakes.alive;
	lock_drop(&fakes.lock);
	return n;
}

unsigned fake_forgotten(void)
{
	unsigned n;

	lock_take(&fakes.lock);
	n = fakes.forgotten;
	lock_drop(&fakes.lock);
	return n;
}

static bool held(enum held_kind kind, void *request)
{
	bool hold;

	lock_take(&fakes.lock);
	hold = fakes.hold;
	if (hold) {
		fakes.held[fakes.n_held].kind = kind;
		fakes.held[fakes.n_held++].request = request;
	}
	lock_drop(&fakes.lock);
	return hold;
}

static void count_alive(int change)
{
	lock_take(&fakes.lock);
	fakes.alive += (size_t)change;
	lock_drop(&fakes.lock);
}

/* --- tree --- */

static void answer_lookup(struct tree_lookup *lookup)
{
	const struct file *file;

	lock_take(&fakes.lock);
	file = find(lookup->path);
	lookup->fresh_ms = FRESH * 1000;
	if (file)
		lookup->attr = file->attr;
	lock_drop(&fakes.lock);
	lookup->done(lookup, file ? 0 : -ENOENT);
}

void tree_lookup_start(struct tree_lookup *lookup)
{
	if (!held(HELD_LOOKUP, lookup))
		answer_lookup(lookup);
}

int tree_peek(struct tree *tree, const char *path, struct origin_attr *ret)
{
	const struct file *file;
	int r = -EAGAIN;

	(void)tree;
	lock_take(&fakes.lock);
	file = find(path);
	if (fakes.fresh)
		r = file ? 0 : -ENOENT;
	if (file)
		*ret = file->attr;
	lock_drop(&fakes.lock);
	return r;
}

void tree_forget(struct tree *tree, const char *path)
{
	(void)tree;
	(void)path;
	lock_take(&fakes.lock);
	fakes.forgotten++;
	lock_drop(&fakes.lock);
}

/* Bits of a name for its cookie. */
static uint64_t cookie_bits(const struct file *file)
{
	return hash64(file->path, strlen(file->path)) & UINT32_MAX;
}

static int name_order(const void *a, const void *b)
{
	const struct file *left = a, *right = b;

	return strcmp(left->path, right->path);
}

/* Of the root, whatever the path: all names without a slash. */
void tree_list_start(struct tree_list *list)
{
	struct listing *listing = calloc(1, sizeof *listing);

	assert_non_null(listing);
	count_alive(1);
	listing->refs = 1;
	lock_take(&fakes.lock);
	for (size_t i = 0; i < fakes.n_files; i++) {
		if (!strchr(fakes.files[i].path, '/'))
			listing->files[listing->count++] = fakes.files[i];
	}
	lock_drop(&fakes.lock);
	qsort(listing->files, listing->count, sizeof listing->files[0], name_order);
	list->listing = listing;
	list->fresh_ms = FRESH * 1000;
	list->done(list, 0);
}

struct listing *listing_ref(struct listing *listing)
{
	lock_take(&fakes.lock);
	listing->refs++;
	lock_drop(&fakes.lock);
	return listing;
}

void listing_unref(struct listing *listing)
{
	bool last;

	if (!listing)
		return;
	lock_take(&fakes.lock);
	last = --listing->refs == 0;
	fakes.alive -= last;
	lock_drop(&fakes.lock);
	if (last)
		free(listing);
}

size_t listing_count(const struct listing *listing)
{
	return listing->count;
}

void listing_get(const struct listing *listing, size_t i, struct listing_entry *ret)
{
	const struct file *file = &listing->files[i];

	*ret = (struct listing_entry){
		.name = file->path,
		.name_size = strlen(file->path),
		.attr = file->attr,
		.attr_known = file->attr.kind == ORIGIN_FILE && file->attr.version.text[0],
	};
}

/* Listings here are whole. */
int listing_state(const struct listing *listing)
{
	(void)listing;
	return 0;
}

void tree_more_start(struct tree_more *more)
{
	more->done(more);
}

uint64_t listing_cookie(const struct listing *listing, size_t i)
{
	return (uint64_t)(i + 1) << 32 | cookie_bits(&listing->files[i]);
}

int listing_seek(const struct listing *listing, uint64_t cookie, size_t *ret)
{
	for (size_t i = 0; i < listing->count && cookie >= LISTING_COOKIE_MIN; i++) {
		if (cookie_bits(&listing->files[i]) != (cookie & UINT32_MAX))
			continue;
		*ret = i + 1;
		return 0;
	}
	*ret = 0;
	return cookie < LISTING_COOKIE_MIN ? 0 : -ESTALE;
}

/* --- cache --- */

void cache_stats(struct cache *cache, struct cache_stats *ret)
{
	(void)cache;
	*ret = (struct cache_stats){.capacity_bytes = 1 << 30, .used_bytes = 1 << 29};
}

int cache_object_status(struct cache *cache, const struct origin *origin, const char *path,
	const struct origin_attr *attr, struct object_status *ret)
{
	(void)cache;
	(void)origin;
	(void)path;
	(void)attr;
	*ret = (struct object_status){.warm = true};
	return 0;
}

void object_open_start(struct object_open *open)
{
	struct object *object = calloc(1, sizeof *object);

	assert_non_null(object);
	count_alive(1);
	object->refs = 1;
	object->attr = open->attr;
	open->object = object;
	open->done(open, 0);
}

struct object *object_ref(struct object *object)
{
	lock_take(&fakes.lock);
	object->refs++;
	lock_drop(&fakes.lock);
	return object;
}

void object_unref(struct object *object)
{
	bool last;

	lock_take(&fakes.lock);
	last = --object->refs == 0;
	fakes.alive -= last;
	lock_drop(&fakes.lock);
	if (last)
		free(object);
}

int object_backing_fd(struct object *object)
{
	bool warm;

	(void)object;
	lock_take(&fakes.lock);
	warm = fakes.warm;
	lock_drop(&fakes.lock);
	return warm ? 0 : -EAGAIN;
}

int reader_new(struct object *object, struct origin *origin, const char *path,
	struct cache_account *account, struct reader **ret)
{
	struct reader *reader = calloc(1, sizeof *reader);

	(void)origin;
	(void)path;
	(void)account;
	assert_non_null(reader);
	count_alive(1);
	reader->object = object_ref(object);
	*ret = reader;
	return 0;
}

void reader_free(struct reader *reader)
{
	if (!reader)
		return;
	object_unref(reader->object);
	count_alive(-1);
	free(reader);
}

static void answer_read(struct object_read *read)
{
	const struct origin_attr *attr = &read->reader->object->attr;
	size_t period = strlen(attr->version.text);
	char bytes[4096];
	struct iovec iov = {bytes, 0};
	int error;

	while (iov.iov_len < read->size_bytes && iov.iov_len < sizeof bytes &&
		read->offset + iov.iov_len < attr->size_bytes) {
		bytes[iov.iov_len] = attr->version.text[(read->offset + iov.iov_len) % period];
		iov.iov_len++;
	}
	lock_take(&fakes.lock);
	error = fakes.read_error;
	lock_drop(&fakes.lock);
	read->done(read, error, &iov, iov.iov_len != 0);
}

void object_read_start(struct object_read *read)
{
	if (!held(HELD_READ, read))
		answer_read(read);
}

void fake_let_go(void)
{
	size_t n;

	lock_take(&fakes.lock);
	n = fakes.n_held;
	fakes.n_held = 0;
	fakes.hold = false;
	lock_drop(&fakes.lock);
	for (size_t i = 0; i < n; i++) {
		if (fakes.held[i].kind == HELD_LOOKUP)
			answer_lookup(fakes.held[i].request);
		else
			answer_read(fakes.held[i].request);
	}
}
