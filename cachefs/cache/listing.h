/*
 * listing: the names of one directory, as they come and when they are all there.
 *
 *     struct listing_head
 *     struct listing_slot[count]   in the order of names, each as if a slash followed it
 *     heap                         names and versions
 *
 * is what the index keeps, in the host's byte order, and checked as a whole when it comes from there:
 * what is damaged is as good as absent.
 *
 * A listing grows page by page under one thread at a time, while others read what is ready: the names
 * that no later page can come before. That is why the order is what it is: S3 gives keys in byte
 * order, with common prefixes among them by their slash, so after a key K only names can come whose
 * slashed form is above K, a directory beside its file included. Slots and heap never move once
 * somebody may read them.
 */
#ifndef CACHE_LISTING_H
#define CACHE_LISTING_H

#include <sys/uio.h>

#include "cache/tree.h"

/* Memory of all listings of the daemon, growing, remembered, and read. */
#define LISTINGS_BYTES_MAX (192u << 20)
/* The last of it is for listings that are small, so that those which are not take no other directory's
 * names away. */
#define LISTINGS_SPARE_BYTES (16u << 20)
#define LISTING_SMALL_BYTES  (1u << 20)

/* Shared by all listings of a cache; zero at first, and lives longer than they. */
struct listing_room {
	_Atomic size_t used_bytes;
	/* Tried once when a listing finds no room: lets go what is only remembered. Takes locks: no
	 * listing's memory is asked for with one held. */
	void (*make)(struct listing_room *room);
};

/* make of a cache's room: trees forget listings that nobody reads. */
void trees_make_room(struct listing_room *room);

/* Empty and growing, one reference; NULL: no memory. */
struct listing *listing_new(struct listing_room *room);
/* Errors are remembered for listing_page_end. */
void listing_add(struct listing *listing, const struct origin_entry *entry);
void listing_add_hidden(struct listing *listing, uint64_t keys);
/*
 * After each page but the last. ordered: the origin gives names in their order, so that what is ready
 * can be read. 0; -EFBIG: more than a listing may take; -ENOMEM: others take too much; -EBADMSG: the
 * pages came in another order after some names were ready.
 */
int listing_page_end(struct listing *listing, bool ordered);
/*
 * After the last page: drops repeated names (a directory wins over an object of its name, which
 * counts as hidden), and everything is ready. Errors as above; the listing goes on growing then.
 */
int listing_finish(struct listing *listing);
/* It will never be whole, and says why to who reads it. */
void listing_fail(struct listing *listing, int error);
/* True while somebody but the caller has a reference. */
bool listing_is_shared(const struct listing *listing);
/* Names so far, ready or not. The growing thread. */
size_t listing_grown(const struct listing *listing);

/* Takes over malloc'ed bytes from the index, also on error. -EUCLEAN: damaged; -ENOENT: of another
 * format; -ENOMEM, -EFBIG. */
int listing_from_bytes(struct listing_room *room, void *bytes, size_t size, struct listing **ret);
#define LISTING_PARTS 3
/* What the index keeps, in pieces, of a whole listing. */
void listing_parts(struct listing *listing, struct iovec ret[LISTING_PARTS]);
size_t listing_bytes(const struct listing *listing);
/* Binary search in what is ready. False: no such name. */
bool listing_find(const struct listing *listing, const char *name, size_t name_size,
	struct listing_entry *ret, size_t *ret_index);
int64_t listing_wall_ns(const struct listing *listing);
uint64_t listing_hidden_keys(const struct listing *listing);

#endif
