/*
 * One page of a directory.
 *
 * The token that the caller keeps between pages is "V circle circle |TOKEN": the listing's version,
 * TOKEN as the server gave it (V2) or the marker (V1), and three numbers each of a circle over the
 * tokens and one over the last keys of the pages, so that a server whose pages repeat ends in an
 * error and not in an endless listing.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#include "circle.h"
#include "later.h"
#include "name.h"
#include "s3/s3.h"

struct s3_listing {
	struct s3_request request;
	struct origin_list *list;
	struct circle tokens, keys;
	bool exists;
};

static struct s3_listing *listing_of(const struct request *request)
{
	return container_of(s3_request_of(request), struct s3_listing, request);
}

/* --- tokens --- */

static int parse_token(const char *text, struct s3_listing *listing)
{
	struct circle *tokens = &listing->tokens, *keys = &listing->keys;
	uint64_t *fields[] = {&tokens->steps, &tokens->power, &tokens->hash, &keys->steps,
		&keys->power, &keys->hash};
	char *rest;

	if (!text)
		return (listing->request.token = strdup("")) ? 0 : -ENOMEM;
	listing->request.v1 = *text == '1';
	rest = (char *)text + 1;
	for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
		*fields[i] = strtoull(rest, &rest, 16);
	if (strncmp(rest, " |", 2) != 0)
		return -EINVAL;
	listing->request.token = strdup(rest + 2);
	return listing->request.token ? 0 : -ENOMEM;
}

static int make_token(struct s3_listing *listing, const struct list_page *page,
	const struct buf *next, struct verdict *verdict)
{
	/* A page may be tried again. */
	struct circle tokens = listing->tokens, keys = listing->keys;
	char *token;

	if (!page->n_keys || memchr(buf_string(next), '\0', next->size) ||
		circle_closed(&tokens, hash64(buf_string(next), next->size)) ||
		circle_closed(&keys, hash64(buf_string(&page->last), page->last.size))) {
		verdict_fail(verdict, -EIO, ORIGIN_SERVER_ERROR,
			"the listing's pages repeat or do not advance");
		return -EIO;
	}
	if (asprintf(&token,
		    "%c %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64
		    " |%s",
		    listing->request.v1 ? '1' : '2', tokens.steps, tokens.power, tokens.hash,
		    keys.steps, keys.power, keys.hash, buf_string(next)) < 0) {
		verdict_fail(verdict, -ENOMEM, ORIGIN_SERVER_ERROR, "out of memory");
		return -ENOMEM;
	}
	free(listing->list->next_token);
	listing->list->next_token = token;
	return 0;
}

/* Where the next page begins; NULL when the answer doesn't say it. */
static const struct buf *next_page(struct s3_listing *listing, const struct list_page *page)
{
	/* It answered in the old way without a word. */
	if (!listing->request.v1 && !page->next_token.size && !page->has_key_count &&
		!*listing->request.token) {
		listing->request.v1 = true;
		atomic_store(&s3_of(listing->request.base.origin)->list_v1, true);
	}
	if (!listing->request.v1)
		return page->next_token.size ? &page->next_token : NULL;
	if (page->next_marker.size)
		return &page->next_marker;
	return page->last.size ? &page->last : NULL;
}

/* --- entries --- */

/* A server that doesn't know `prefix` must not pass for one that found something. */
static bool is_below(const char *directory, const struct list_key *key)
{
	size_t n = strlen(directory);

	return key->key_size >= n && !memcmp(key->key, directory, n);
}

static void give_file(
	struct s3_listing *listing, const struct list_key *key, struct origin_entry *entry)
{
	struct origin_attr *attr = &entry->attr;

	attr->kind = ORIGIN_FILE;
	attr->size_bytes = key->size_bytes;
	attr->mtime_ns = key->modified_s * 1000000000ll;
	if (key->sized && *key->etag && strlen(key->etag) < sizeof attr->version.text) {
		strcpy(attr->version.text, key->etag);
		attr->version.strong = strncmp(key->etag, "W/", 2) != 0;
		entry->attr_known = true;
	}
	listing->list->entry(listing->list, entry);
}

static int take_key(void *arg, const struct list_key *key)
{
	struct s3_listing *listing = arg;
	size_t skip = strlen(listing->request.key);
	struct origin_entry entry = {.attr_known = false};

	if (!is_below(listing->request.key, key))
		return -EBADMSG;
	listing->exists = true;
	entry.name = key->key + skip;
	entry.name_size = key->key_size - skip;
	if (!entry.name_size && !key->prefix) {
		/* The directory's own marker. */
		listing->list->hidden_keys += key->size_bytes > 0;
		return 0;
	}
	if (key->prefix && (!entry.name_size || entry.name[entry.name_size - 1] != '/'))
		return -EBADMSG;
	entry.name_size -= key->prefix;
	if (memchr(entry.name, '/', entry.name_size))
		return -EBADMSG;
	if (!name_valid(entry.name, entry.name_size)) {
		listing->list->hidden_keys++;
		return 0;
	}
	if (!key->prefix) {
		give_file(listing, key, &entry);
		return 0;
	}
	entry.attr.kind = ORIGIN_DIR;
	entry.attr_known = true;
	listing->list->entry(listing->list, &entry);
	return 0;
}

static int probe_key(void *arg, const struct list_key *key)
{
	return is_below(arg, key) ? 0 : -EBADMSG;
}

/* --- the page --- */

/* Parses the body. True when it is a listing; else the verdict says what it is. */
static bool parse_page(struct request *request, int (*each)(void *, const struct list_key *),
	void *arg, struct list_page *page, struct verdict *verdict)
{
	struct error_document error;
	int r = list_xml_parse(
		buf_string(&request->body), request->body.size, each, arg, page, &error);

	if (!r)
		return true;
	if (r == -EREMOTEIO)
		s3_judge_error(request, &error, verdict);
	else if (r == -ENOMEM)
		verdict_fail(verdict, r, ORIGIN_SERVER_ERROR, "out of memory");
	else
		verdict_bad_answer(verdict, "the listing is cut or makes no sense");
	return false;
}

static void end_page(
	struct s3_listing *listing, const struct list_page *page, struct verdict *verdict)
{
	const struct buf *next;

	if (page->truncated) {
		next = next_page(listing, page);
		if (!next)
			verdict_fail(verdict, -EIO, ORIGIN_SERVER_ERROR,
				"the listing goes on but doesn't say where");
		else if (!make_token(listing, page, next, verdict))
			verdict_done(verdict);
		return;
	}
	if (!listing->exists && !*listing->request.token && *listing->list->path)
		verdict_fail(verdict, -ENOENT, ORIGIN_OK, "no key below the directory");
	else
		verdict_done(verdict);
}

static void accept_page(struct request *request, struct verdict *verdict)
{
	struct s3_listing *listing = listing_of(request);
	struct list_page page;

	list_page_init(&page);
	listing->list->hidden_keys = 0;
	if (parse_page(request, take_key, listing, &page, verdict))
		end_page(listing, &page, verdict);
	list_page_free(&page);
}

static bool is_missing_bucket(const struct request *request)
{
	struct error_document error;

	if (request->answer.status != 404 || !request->body.size)
		return false;
	error_xml_parse(buf_string(&request->body), request->body.size, &error);
	return !strcmp(error.code, "NoSuchBucket");
}

static void finish(struct request *request, int error)
{
	struct origin_list *list = listing_of(request)->list;

	if (error == -EIO && !*list->path && is_missing_bucket(request))
		error = -ENXIO;
	if (error) {
		free(list->next_token);
		list->next_token = NULL;
	}
	list->done(list, error);
}

static void release(struct request *request)
{
	struct s3_listing *listing = listing_of(request);

	s3_request_free(&listing->request);
	free(listing);
}

void s3_list(struct origin_list *list)
{
	struct s3_listing *listing = calloc(1, sizeof *listing);
	int r = listing ? parse_token(list->token, listing) : -ENOMEM;

	if (!r) {
		listing->request.key = s3_key(s3_of(list->origin), list->path, true);
		r = listing->request.key ? 0 : -ENOMEM;
	}
	if (r) {
		if (listing)
			s3_request_free(&listing->request);
		free(listing);
		later_list(list, r);
		return;
	}
	listing->list = list;
	listing->request.limit = list->limit;
	request_init(&listing->request.base, REQUEST_LIST, list->origin, list->priority);
	listing->request.base.accept = accept_page;
	listing->request.base.finish = finish;
	listing->request.base.release = release;
	list->private.state = &listing->request.base;
	engine_submit(&listing->request.base);
}

/* --- is there anything below? --- */

static void accept_probe(struct request *request, struct verdict *verdict)
{
	struct list_page page;

	list_page_init(&page);
	if (parse_page(request, probe_key, s3_request_of(request)->key, &page, verdict)) {
		if (page.n_keys)
			verdict_done(verdict);
		else
			verdict_fail(verdict, -ENOENT, ORIGIN_OK, "no key below the directory");
	}
	list_page_free(&page);
}

void s3_probe_init(struct s3_request *request, struct origin *origin)
{
	request_init(&request->base, REQUEST_LIST, origin, ORIGIN_DEMAND);
	request->base.accept = accept_probe;
	request->probe = true;
	request->limit = 1;
}
