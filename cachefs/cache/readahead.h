/*
 * readahead: which chunks beyond a read are worth fetching with it.
 *
 * A handle follows a few streams, since forked loaders read their own parts of a file through one
 * descriptor. A stream is reads that go on where the last one was, forwards or backwards, in the
 * order that the kernel's own readahead makes of them. Its window is what is asked for beyond it:
 *
 *   none     at its first read; and while more than a third of what it passes over isn't read, so
 *            that random and strided reads fetch their own chunks and no more
 *   at most  four times what was read of it, of an origin that is far sixteen times; what lies before the end of a run as long as the longest of
 *            the last few on this handle, which tensors and columns between gaps are, until it is
 *            half as long again; and its share: three quarters of the buffers divided by the streams of
 *            all handles that were read on within a second, and what the origin would run at once
 *   grows    from WINDOW_FIRST twofold whenever a read has to wait for what it asked for, so that it
 *            becomes what the link delivers while a request is under way, and a slow reader's stays
 *            small
 *
 * Parts are PART_LEAST to PART_MOST chunks, so many that they make up as many GETs as the origin
 * runs at once, and no more than a GET brings within a second: on a link that is long or loses
 * packets it is the number of GETs that makes it fast. PART_LEAST where connections become slow as
 * they are used. The window is refilled a part at a time.
 */
#ifndef CACHE_READAHEAD_H
#define CACHE_READAHEAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "origin/origin.h"

#define READER_STREAMS 4
#define READER_RUNS    4

#define WINDOW_FIRST 16u
#define PART_LEAST   2u
#define PART_MOST    16u

struct stream {
	uint64_t last_use;   /* 0: unused */
	uint64_t first, end; /* of the file: what it passed over so far */
	uint64_t span, read; /* bytes of that, lately, and how many of them were read */
	uint64_t second;     /* when it was counted last */
	uint32_t wish;       /* chunks worth having ahead of it, if it may */
	/* Chunks up to this one were asked for: forwards those before it, backwards from it on. */
	uint32_t asked;
	uint32_t reads, downs; /* how many, and how many of them lay before what was read */
	bool backwards;
};

struct readahead {
	struct lock lock;
	uint64_t uses;                         /* lock */
	struct stream streams[READER_STREAMS]; /* lock */
	uint64_t runs[READER_RUNS];            /* lock; how long the last streams became */
	unsigned n_runs;                       /* lock; ever */
};

/* How many streams of all readers were read on lately. Zeroed at first; any thread. */
struct readahead_streams {
	_Atomic uint64_t second;
	_Atomic unsigned now, before; /* in this second and the one before */
};

/* What may be asked for. */
struct readahead_means {
	struct readahead_streams *streams;
	uint32_t buffers;  /* of the pool */
	uint32_t gets;     /* that the origin runs at once; 0: unknown */
	uint64_t chunk_ns; /* that a chunk takes to come by a GET; 0: unknown */
	bool far;          /* the origin answers late */
	enum origin_aging aging;
};

/* What should be asked for, in ascending order of chunks, which may lie beyond the object's end. */
struct readahead_wish {
	uint32_t from, to; /* none: from == to */
	uint32_t part;     /* chunks of one GET */
};

/* Notes a read of size_bytes > 0 at now_ns; waits: for bytes from the origin. */
void readahead_note(struct readahead *readahead, const struct readahead_means *means,
	uint64_t offset, uint32_t size_bytes, bool waits, uint64_t now_ns,
	struct readahead_wish *ret);

#endif
