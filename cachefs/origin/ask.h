/* ask: one question to an origin, and its answer waited for. Blocks for at most the origin's time-out;
 * not on a thread of the engine. */
#ifndef ORIGIN_ASK_H
#define ORIGIN_ASK_H

#include "origin/origin.h"

/* As origin_stat_start's done has it. */
int ask_stat(struct origin *origin, const char *path, struct origin_attr *ret);

#endif
