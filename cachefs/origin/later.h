/* later: requests that need no network, or found no memory for it: done runs soon, on a worker. */
#ifndef ORIGIN_LATER_H
#define ORIGIN_LATER_H

#include "origin/origin.h"

void later_get(struct origin_get *get, int error);
/* error 0: attr is set. */
void later_stat(struct origin_stat *stat, int error);
void later_list(struct origin_list *list, int error);

#endif
