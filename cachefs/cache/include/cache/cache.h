/*
 * cache: what is where and what comes next. Joins one store, its index and the origins: objects are
 * opened and read here, whatever is absent is fetched once, kept, and evicted when space is short.
 *
 * All calls: any thread. Requests are embedded in the caller's struct; each gets exactly one done,
 * from inside start or later from another thread, no lock held; done must not block.
 */
#ifndef CACHE_CACHE_H
#define CACHE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/why.h"
#include "cache/stalls.h"

#define CHUNK_SIZE (1u << 20)

struct cache;
struct origin;

struct cache_config {
	const char *store_dir;
	const char *capacity;  /* as typed: "500G", "80%" of the store's file system; NULL: 80% */
	uint64_t memory_bytes; /* for the buffer pool; 0: 192 MiB */
	unsigned lock_wait_ms; /* for another daemon on the store to end */
};

/* Opens store and index, starts the threads. 0 or -errno with why. */
int cache_new(const struct cache_config *config, struct cache **ret, struct why *why);
/* 0 if cache_new would understand the store that is there (also none): takes no lock, changes
 * nothing, and is right while another daemon uses it. Else -errno with why. */
int cache_check(const char *dir, struct why *why);
/* Every object must be unreferenced. Makes written chunks durable first. NULL is allowed. */
void cache_free(struct cache *cache);

struct cache_stats {
	uint64_t capacity_bytes, used_bytes, objects;
	uint64_t hit_bytes;              /* read from memory or store */
	uint64_t miss_bytes;             /* read after a wait for the origin */
	uint64_t fetches, fetched_bytes; /* ranges asked for, bytes that came */
	uint64_t uncached_bytes;         /* fetched, and not kept: no space, or the disk refused */
	uint64_t written_bytes, commits;
	uint64_t checksum_failures; /* chunks that were dropped because their bytes were wrong */
	uint64_t store_errors;      /* reads or writes that the disk failed */
	uint64_t evicted_objects, evicted_bytes;
	uint64_t pool_buffers, pool_in_use, pool_waiters;
	uint64_t index_map_used_bytes, index_map_bytes;
	uint64_t stray_files;       /* removed after an unclean stop */
	unsigned indexes_set_aside; /* damaged ones that lie in the store's directory */
	bool store_full;            /* the last try to keep a chunk found no space */
	bool direct_io;
};
void cache_stats(struct cache *cache, struct cache_stats *ret);
/* The directory, as given. */
const char *cache_store_dir(const struct cache *cache);

/*
 * What a read waited for. It counts once, for the first of origin, store and nothing that it waited
 * for at all, with all of its time. A wait for memory counts to what the memory was for: bytes that
 * can't come from the origin, or from the store.
 */
enum waited_for { WAITED_NONE, WAITED_STORE, WAITED_ORIGIN, WAITED_FOR };

/* Told to the cache by its users, for the counters of one volume; alive as long as its readers and
 * their requests for names. */
struct cache_account {
	_Atomic uint64_t hit_bytes, miss_bytes, opens, passthrough_opens;
	struct waits reads[WAITED_FOR];
	struct waits names; /* requests for names that waited for the origin's word */
	/* Reads that wait for bytes of the origin, and requests for names as above. What is fetched
	 * ahead of readers is in neither. */
	struct stalls stalled_reads, stalled_names;
};
void cache_account_init(struct cache_account *account);
void cache_account_destroy(struct cache_account *account);

#endif
