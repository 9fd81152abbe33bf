#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>

void check_failed(const char *expression, const char *file, int line)
{
	fprintf(stderr, "cachefs: check failed: %s (%s:%d)\n", expression, file, line);
	abort();
}
