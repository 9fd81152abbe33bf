/* internal: what the files of this room share. */
#ifndef STORE_INTERNAL_H
#define STORE_INTERNAL_H

#include <stdint.h>
#include <stdbool.h>

#include "base/why.h"

#define STORE_RAW_DIR   "raw"
#define STORE_INDEX_DIR "index"

/* Immutable after store_open but for the count, so any thread may read it. */
struct store {
	char *dir;       /* absolute */
	char *index_dir; /* dir/index */
	int dir_fd;
	int raw_fd;  /* dir/raw */
	int lock_fd; /* holds the lock; closing it gives the store up */
	bool direct_io;
	_Atomic uint64_t n_raw; /* struct raw that live */
};

/*
 * What a directory is to us, found without changing anything. Sets *ret_made: it is a store; false:
 * it may become one (empty, or its making was interrupted). 0, -ENOTEMPTY, -EPROTONOSUPPORT or what
 * reading gave, with why. dir is for the text.
 */
int making_inspect(int dir_fd, const char *dir, bool *ret_made, struct why *why);
/* The sub-directories, where missing. 0 or -errno with why. */
int making_dirs(int dir_fd, const char *dir, struct why *why);
/* Writes FORMAT, durably and at once: from now on the directory is a store. */
int making_finish(int dir_fd, const char *dir, struct why *why);

#endif
