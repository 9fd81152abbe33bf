#include "defaults.h"

#include <stdlib.h>

const char *default_store(void)
{
	const char *store = getenv("CACHEFS_STORE");

	return store && *store ? store : "/var/cache/cachefs";
}

const char *default_size(void)
{
	const char *size = getenv("CACHEFS_SIZE");

	return size && *size ? size : NULL;
}
