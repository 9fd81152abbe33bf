/*
 * fake_origin: origin/origin.h over objects in memory, with faults and stops that a test switches
 * on while requests run. A world is what is out there; each struct origin of it asks with an
 * identity of its own. Bytes are computed, never stored, so objects may be large.
 */
#ifndef TEST_CACHE_FAKE_ORIGIN_H
#define TEST_CACHE_FAKE_ORIGIN_H

#include "origin/origin.h"

struct world;

struct world *world_new(void);
/* Every origin of it must be unreferenced. */
void world_free(struct world *world);
struct origin *world_origin(struct world *world, const char *identity);

/* Makes or replaces an object: another version, other bytes. Returns the version's seed. */
uint64_t world_put(struct world *world, const char *path, uint64_t size_bytes);
/* n objects "dir/n000000", … of one byte. */
void world_put_many(struct world *world, const char *dir, unsigned n);
void world_remove(struct world *world, const char *path);
/* As the origin would tell it now. */
struct origin_attr world_attr(struct world *world, const char *path);

/* True when bytes are those of [offset, offset + n) of the version with this seed. */
bool seed_right(uint64_t seed, uint64_t offset, const uint8_t *bytes, size_t n);

/* --- gets --- */

/* Most bytes of one call of data; 0: odd numbers that change. */
void world_pieces(struct world *world, size_t bytes);
/* From now on gets of path ("": of all) stop when they have given this many bytes of their range. */
void world_hold(struct world *world, const char *path, uint64_t after_bytes);
/* Waits until n gets have stopped. */
void world_wait_held(struct world *world, unsigned n);
/* All go on, and none stops any more. */
void world_release(struct world *world);
/* The next `times` gets that start (of identity, NULL: of anybody) fail with error after this many
 * bytes of their range. */
void world_fail_gets(
	struct world *world, const char *identity, int error, uint64_t after_bytes, unsigned times);

/* Gets that are paused now fail with error, without being resumed. */
void world_break_paused(struct world *world, int error);

/* --- names --- */

/* Entries of a page when the request sets no limit; 1,000 at first. */
void world_page(struct world *world, unsigned entries);
/* The origin says that names come in their order; things were put so, or it lies. */
void world_in_order(struct world *world);
/* Entries come without attributes. */
void world_hide_attrs(struct world *world, bool hide);
/* As many keys of dir can't be names. */
void world_hidden_keys(struct world *world, const char *dir, unsigned n);
/* Lists and stats wait until world_release_names. */
void world_hold_names(struct world *world);
/* After so many more. */
void world_hold_names_after(struct world *world, unsigned pass);
void world_wait_names_held(struct world *world, unsigned n);
void world_release_names(struct world *world);
/* The next `times` lists and stats, after `skip` more that succeed, fail with error. */
void world_fail_names(struct world *world, int error, unsigned skip, unsigned times);
void world_reachable(struct world *world, bool reachable);

struct world_counts {
	uint64_t gets, get_bytes, lists, stats, pauses, promotions;
};
/* Waits until every request is done, held or paused, so that what was counted is what was done. */
struct world_counts world_counts(struct world *world);

#endif
