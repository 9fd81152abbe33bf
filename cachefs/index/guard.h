/*
 * guard: knows when a thread dies within LMDB.
 *
 * LMDB believes its pages. What a failing disk has put into them can send it to any address
 * (SIGSEGV), beyond a page that can be read (SIGBUS), or into its own assertions (SIGABRT); and the
 * next daemon, which reads the same pages, dies at the same place. So each call of LMDB is between
 * guard_enter and guard_leave; a thread that dies there leaves a mark in the index's directory,
 * and index_open takes an index with two of them for damaged. One may have been the disk's passing
 * trouble. A clean close takes the mark away.
 */
#ifndef INDEX_GUARD_H
#define INDEX_GUARD_H

#include "base/cleanup.h"

struct index;

/* One byte for each death since the last clean close. */
#define GUARD_MARK "crashed"
/* So many deaths make a damaged index. */
#define GUARD_DEATHS_MAX 2

/* Handlers of the three signals, once in a process. They mark, and let the signal take its course. */
void guard_install(void);
/* This thread is within LMDB until guard_leave; NULL: it is not. Returns what was before. */
const struct index *guard_enter(const struct index *index);
void guard_leave(const struct index **outer);

/* For the rest of a function. */
#define WITHIN_LMDB(which)                                                                         \
	_cleanup_(guard_leave) __attribute__((unused)) const struct index *guard_before =          \
		guard_enter(which)

/* How many deaths the directory's mark says. */
unsigned guard_deaths(const char *dir);

#endif
