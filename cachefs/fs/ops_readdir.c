#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/crash.h"
#include "base/list.h"
#include "fs.h"

#define REPLY_MAX (256u << 10)
/* The offset after an entry is its place: of "." 1, of ".." 2, of others the listing's cookie. */
#define COOKIE_DOTDOT 2

/* One answer to READDIR or READDIRPLUS, as it grows. */
struct page {
	struct fs *fs;
	fuse_req_t req;
	struct node *directory;
	char *path;     /* of the directory */
	double seconds; /* that the kernel may keep what it is told */
	struct listing *listing;
	uint64_t fresh_until_ns;
	bool plus;
	char *bytes;
	size_t size, used;
	struct node **told; /* whose lookups this answer counts; a reference of each */
	size_t n_told;
};

static size_t entry_size(const struct page *page, const char *name)
{
	return page->plus ? fuse_add_direntry_plus(page->req, NULL, 0, name, NULL, 0)
			  : fuse_add_direntry(page->req, NULL, 0, name, NULL, 0);
}

static void add(
	struct page *page, const char *name, const struct fuse_entry_param *entry, off_t next)
{
	char *at = page->bytes + page->used;
	size_t room = page->size - page->used;

	page->used += page->plus ? fuse_add_direntry_plus(page->req, at, room, name, entry, next)
				 : fuse_add_direntry(page->req, at, room, name, &entry->attr, next);
}

static bool fits(const struct page *page, const char *name)
{
	return entry_size(page, name) <= page->size - page->used;
}

/* "." or "..": without a node, since the kernel counts no lookup of them. */
static bool add_dots(struct page *page, off_t offset)
{
	const struct node *node = page->directory;
	const char *name = offset ? ".." : ".";
	struct fuse_entry_param entry = {0};

	if (offset && node->parent)
		node = node->parent;
	if (!fits(page, name))
		return false;
	fs_stat_node(page->fs, node, &entry.attr);
	add(page, name, &entry, offset + 1);
	return true;
}

static uint64_t name_ino(const struct page *page, const struct listing_entry *entry)
{
	char path[ORIGIN_PATH_MAX + TABLE_NAME_MAX + 2];
	char *at = stpcpy(path, page->path);

	if (*page->path)
		*at++ = '/';
	memcpy(at, entry->name, entry->name_size + 1);
	return path_ino(path);
}

/* With a node when the listing says enough for one; else the kernel looks up what it needs. */
static void make_node(struct page *page, const struct listing_entry *entry, uint64_t ino,
	struct fuse_entry_param *ret)
{
	struct nodes *nodes = &page->fs->nodes;
	struct node_name name = {page->directory, entry->name, entry->name_size, ino};
	struct node *node;

	if ((!entry->attr_known && entry->attr.kind != ORIGIN_DIR) || !nodes_are_plenty(nodes))
		return;
	if (nodes_lookup(nodes, &name, &entry->attr, page->fresh_until_ns, &node))
		return;
	ret->ino = node->id;
	ret->attr_timeout = ret->entry_timeout = page->seconds;
	fs_stat_node(page->fs, node, &ret->attr);
	page->told[page->n_told++] = node;
}

static bool add_entry(struct page *page, size_t i)
{
	struct fuse_entry_param entry = {0};
	struct listing_entry listed;
	uint64_t ino;

	listing_get(page->listing, i, &listed);
	if (listed.name_size > TABLE_NAME_MAX)
		return true;
	if (!fits(page, listed.name))
		return false;
	ino = name_ino(page, &listed);
	fs_stat(page->fs, &listed.attr, ino, &entry.attr);
	if (page->plus)
		make_node(page, &listed, ino, &entry);
	add(page, listed.name, &entry, (off_t)listing_cookie(page->listing, i));
	return true;
}

/* 0: what there is was added, perhaps nothing, which is the end; -EAGAIN: nothing is there yet, and
 * entry *ret_next is what to wait for; else the error that the directory's stream ends with. */
static int fill(struct page *page, off_t offset, size_t *ret_next)
{
	size_t i, count;
	int r, state;

	if (offset < 0)
		return -EINVAL;
	for (; offset < COOKIE_DOTDOT; offset++) {
		if (!add_dots(page, offset))
			return 0;
	}
	state = listing_state(page->listing);
	count = listing_count(page->listing);
	r = listing_seek(page->listing, (uint64_t)offset, &i);
	if (r)
		return r;
	while (i < count && add_entry(page, i))
		i++;
	*ret_next = i;
	if (page->used || i < count)
		return 0;
	return state == LISTING_GROWING ? -EAGAIN : state;
}

static void end_told(struct page *page, bool answered)
{
	for (size_t i = 0; i < page->n_told; i++) {
		/* Nobody to tell: nobody will forget it. */
		if (!answered)
			nodes_forget(&page->fs->nodes, page->told[i]->id, 1);
		node_put(&page->fs->nodes, page->told[i]);
	}
	if (page->n_told && nodes_are_crowded(&page->fs->nodes))
		sweeper_wake(&page->fs->sweeper);
}

/* Answers, or returns -EAGAIN with what to wait for. */
static int reply_page(struct page *page, size_t size, off_t offset, size_t *ret_next)
{
	uint64_t now = clock_now_ns();
	int r;

	if (page->fresh_until_ns > now)
		page->seconds =
			fs_entry_seconds(page->fs, (page->fresh_until_ns - now) / NS_PER_MS);
	page->size = size < REPLY_MAX ? size : REPLY_MAX;
	page->bytes = malloc(page->size + 1);
	page->told = malloc(sizeof *page->told * (page->size / entry_size(page, "") + 1));
	r = page->bytes && page->told
		    ? node_path(&page->fs->nodes, page->directory, NULL, 0, &page->path)
		    : -ENOMEM;
	if (!r)
		r = fill(page, offset, ret_next);
	if (!r) {
		crash_point("after_table");
		end_told(page, fuse_reply_buf(page->req, page->bytes, page->used) >= 0);
	} else if (r != -EAGAIN) {
		fuse_reply_err(page->req, -r);
	}
	free(page->path);
	free(page->bytes);
	free(page->told);
	return r;
}

/*
 * A request that waits: OPENDIR, for the directory's first names; READDIR, for the next ones; READDIR of
 * a handle that a daemon before this one gave out, for the listing that the handle goes on in.
 */
struct list_request {
	struct parked parked;
	struct fs *fs;
	struct node *node; /* a directory: no reference needed */
	struct tree_list list;
	struct tree_more more;
	char *path;
	struct fuse_file_info info;
	uint64_t fh;
	struct handle
		*handle; /* READDIR: one reference; NULL: the kernel gave an fh that nobody knows */
	bool opening, plus;
	size_t size;
	off_t offset;
};

static void reply_opened(struct list_request *request)
{
	struct fs *fs = request->fs;
	struct handle *handle;
	int r;

	node_ref(&fs->nodes, request->node);
	handle = handle_new(&fs->handles, request->node, TABLE_DIRECTORY, NULL,
		listing_ref(request->list.listing));
	if (handle)
		handle->fresh_until_ns = fs_fresh_until(request->list.fresh_ms);
	r = handle ? handles_add(&fs->handles, handle, request->fh, (uint32_t)request->info.flags)
		   : -ENOMEM;
	crash_point("after_table");
	handle_put(&fs->handles, handle);
	if (r)
		fuse_reply_err(request->parked.req, -r);
	else
		fs_reply_open(fs, request->parked.req, &request->info,
			&(struct opened){.ino = request->node->id,
				.fh = request->fh,
				.mode = TABLE_DIRECTORY});
}

static void request_end(struct list_request *request)
{
	handle_put(&request->fs->handles, request->handle);
	free(request->path);
	parked_end(&request->parked);
	free(request);
}

/* Answers a parked READDIR. */
static void read_on(struct list_request *request, struct listing *listing, uint64_t fresh_until_ns)
{
	struct page page = {
		.fs = request->fs,
		.req = request->parked.req,
		.directory = request->node,
		.listing = listing,
		.fresh_until_ns = fresh_until_ns,
		.plus = request->plus,
	};
	size_t next;

	if (reply_page(&page, request->size, request->offset, &next) == -EAGAIN)
		fuse_reply_err(request->parked.req, EIO);
}

static void more_came(struct tree_more *more)
{
	struct list_request *request = container_of(more, struct list_request, more);
	uint64_t fresh_until_ns;
	struct listing *listing =
		handle_listing(&request->fs->handles, request->handle, &fresh_until_ns);

	if (parked_claim(&request->parked))
		read_on(request, listing, fresh_until_ns);
	request_end(request);
}

static void done(struct tree_list *list, int error)
{
	struct list_request *request = container_of(list, struct list_request, list);
	struct fs *fs = request->fs;
	uint64_t fresh_until_ns = fs_fresh_until(list->fresh_ms);

	if (parked_claim(&request->parked)) {
		if (error)
			fuse_reply_err(request->parked.req, -error);
		else if (request->opening)
			reply_opened(request);
		else
			read_on(request, list->listing, fresh_until_ns);
	}
	if (!error && request->handle)
		handle_give_listing(
			&fs->handles, request->handle, listing_ref(list->listing), fresh_until_ns);
	if (!error)
		listing_unref(list->listing);
	request_end(request);
}

/* Takes over request and its handle. 0: it owns the FUSE request. */
static int start(struct fs *fs, fuse_req_t req, fuse_ino_t ino, struct list_request *request)
{
	struct node *node = nodes_get(&fs->nodes, ino);
	int r = node ? 0 : -ESTALE;

	if (!r && !node_is_directory(node))
		r = -ENOTDIR;
	if (!r && !request)
		r = -ENOMEM;
	if (!r)
		r = node_path(&fs->nodes, node, NULL, 0, &request->path);
	node_put(&fs->nodes, node);
	if (r) {
		if (request)
			handle_put(&fs->handles, request->handle);
		free(request);
		return r;
	}
	request->fs = fs;
	request->node = node;
	request->list.tree = fs->config.tree;
	request->list.path = request->path;
	request->list.account = fs->config.account;
	request->list.streams = request->opening;
	request->list.goes_on = !request->opening;
	request->list.done = done;
	parked_begin(&fs->parking, &request->parked, req);
	tree_list_start(&request->list);
	return 0;
}

void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	struct fs *fs = fs_of(req);
	struct list_request *request;
	int r;

	if (fs_open_again(fs, req, ino, info))
		return;
	request = calloc(1, sizeof *request);
	if (request) {
		request->opening = true;
		request->fh = session_unique();
		request->info = *info;
	}
	r = start(fs, req, ino, request);
	if (r)
		fuse_reply_err(req, -r);
}

/* Names are still to come: the answer waits for them. */
static void wait_for_more(fuse_req_t req, struct listing *listing, struct list_request *request)
{
	struct fs *fs = fs_of(req);

	request->fs = fs;
	request->node = request->handle->node;
	request->more.tree = fs->config.tree;
	request->more.listing = listing;
	request->more.account = fs->config.account;
	request->more.done = more_came;
	parked_begin(&fs->parking, &request->parked, req);
	tree_more_start(&request->more);
}

static void read_directory(
	fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, uint64_t fh, bool plus)
{
	struct fs *fs = fs_of(req);
	struct handle *handle = handles_get(&fs->handles, fh, ino);
	struct page page = {.fs = fs, .req = req, .plus = plus};
	struct list_request *request;
	size_t next = 0;
	int r = 0;

	if (handle)
		page.listing = handle_listing(&fs->handles, handle, &page.fresh_until_ns);
	if (page.listing) {
		page.directory = handle->node;
		if (reply_page(&page, size, offset, &next) != -EAGAIN) {
			handle_put(&fs->handles, handle);
			return;
		}
	}
	request = calloc(1, sizeof *request);
	if (!request) {
		handle_put(&fs->handles, handle);
		fuse_reply_err(req, ENOMEM);
		return;
	}
	request->handle = handle;
	request->plus = plus;
	request->size = size;
	request->offset = offset;
	request->more.entry = next;
	if (page.listing)
		wait_for_more(req, page.listing, request);
	else
		r = start(fs, req, ino, request);
	if (r)
		fuse_reply_err(req, -r);
}

void op_readdir(
	fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *info)
{
	read_directory(req, ino, size, offset, info->fh, false);
}

void op_readdirplus(
	fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *info)
{
	read_directory(req, ino, size, offset, info->fh, true);
}
