/*
 * fakes: a cache and a tree of a few names, which answer at once, or hold requests until they are
 * let go. Any thread calls them as it would the real ones.
 *
 * The bytes of every object are its version's text again and again.
 */
#ifndef FAKES_H
#define FAKES_H

#include <stdbool.h>
#include <stddef.h>

#include "cache/object.h"
#include "cache/tree.h"

void fakes_reset(void);
/* Makes or replaces a file; "dir/" makes a directory. */
void fake_put(const char *path, const char *version, uint64_t size_bytes);
void fake_delete(const char *path);
/* Complete: object_backing_fd gives a descriptor. */
void fake_set_warm(bool warm);
/* The tree has nothing fresh: peek says -EAGAIN. */
void fake_set_fresh(bool fresh);
/* Reads end with this error. */
void fake_set_read_error(int error);
/* From now on lookups and reads are held. */
void fake_hold(void);
size_t fake_held(void);
/* Answers what is held, and holds no more. */
void fake_let_go(void);
/* What was made and is not freed yet: objects, readers, listings. */
size_t fake_alive(void);
unsigned fake_forgotten(void);

#endif
