/* rig: a cache over a store in a directory of its own, and a fake origin before it. */
#ifndef TEST_CACHE_RIG_H
#define TEST_CACHE_RIG_H

/* What cmocka.h needs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/check.h"
#include "cache/tree.h"
#include "chunks.h"
#include "fake_origin.h"
#include "objects.h"
#include "whole.h"

struct rig {
	char *dir; /* the store is dir/store */
	const char *capacity;
	uint64_t memory_bytes;
	struct world *world;
	struct origin *origin;
	struct cache *cache;
	/* For the tear-down of a test that failed: what it left open. */
	struct list handles;
	struct tree *tree;
};

/* cmocka's set-up and tear-down. */
int rig_set_up(void **state);
int rig_tear_down(void **state);
/* For rigs of other sizes: set-up with no cache yet; then rig_start. */
int rig_set_up_idle(void **state);
void rig_start(struct rig *rig);
void rig_stop(struct rig *rig);
static inline void rig_restart(struct rig *rig)
{
	rig_stop(rig);
	rig_start(rig);
}
/* Stops the cache, and leaves the store as the machine does when it goes down in use. */
void rig_machine_crash(struct rig *rig);
/* No buffer answers for the store any more. */
void rig_drop_memory(struct rig *rig);
struct cache_stats rig_stats(struct rig *rig);
/* Blocks that everything below the directory uses. */
uint64_t rig_disk_bytes(const char *dir);

struct open_parts;

/* An open handle of the version that is out there now. */
struct handle {
	struct rig *rig;
	struct object *object;
	struct reader *reader;
	struct open_parts *parts; /* owns these */
	struct origin_attr attr;
	uint64_t seed;
	char path[64];
};
void handle_open_by(struct rig *rig, struct origin *origin, const char *path, struct handle *ret);
void handle_open(struct rig *rig, const char *path, struct handle *ret);
void handle_close(struct handle *handle);
/* What an open of a version that was made up ends with. */
int open_error(struct rig *rig, const char *path, struct origin_attr attr);
/* The raw file's path; malloc'ed. */
char *handle_raw_path(const struct handle *handle);
/* Waits until no verification of the object is under way. */
void handle_wait_verified(const struct handle *handle);
/* Changes one bit of a file. */
void flip_byte(const char *path, uint64_t offset);
/* Waits until every chunk that is on its way to the store is there or given up. */
void rig_settle(struct rig *rig);

/* One read. The bytes are compared while they are there; wrong ones end the test program. */
struct reading {
	struct object_read read;
	const struct handle *handle;
	struct lock lock;
	struct cond cond;
	bool done;    /* lock */
	int error;    /* lock */
	uint64_t got; /* lock */
};
void reading_start(
	struct reading *reading, const struct handle *handle, uint64_t offset, uint32_t size_bytes);
bool reading_done(struct reading *reading);
/* The error, or how many bytes came. */
int64_t reading_wait(struct reading *reading);
int64_t read_now(const struct handle *handle, uint64_t offset, uint32_t size_bytes);
/* Every byte, in reads of this size. 0, or the first error. */
int read_whole(const struct handle *handle, uint32_t size_bytes);

#endif
