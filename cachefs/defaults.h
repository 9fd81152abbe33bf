/* defaults: what the environment says, or else what every installation has. */
#ifndef DEFAULTS_H
#define DEFAULTS_H

/* CACHEFS_STORE, or /var/cache/cachefs. */
const char *default_store(void);
/* CACHEFS_SIZE, or NULL: the cache's own default. */
const char *default_size(void);

#endif
