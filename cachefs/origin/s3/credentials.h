/*
 * credentials: where an access key comes from, and that a changed one is picked up.
 *
 * Providers are asked in the order of one table; the first that has something decides. Files are
 * read again when their mtime changes, which is looked at no more than once a second. Nothing here
 * writes a secret anywhere.
 */
#ifndef S3_CREDENTIALS_H
#define S3_CREDENTIALS_H

#include "base/why.h"
#include "origin/origin.h"

#define CREDENTIAL_MAX 256
#define TOKEN_MAX      8192

struct credentials {
	char key_id[CREDENTIAL_MAX], secret[CREDENTIAL_MAX];
	char token[TOKEN_MAX]; /* "" when there is none */
};
void credentials_wipe(struct credentials *credentials);

struct chain;

/* Finds the provider and reads the credentials once. 0; -ENOENT (nothing found, no such profile or
 * file) and -EINVAL with why. */
int chain_new(const struct origin_config *config, struct chain **ret, struct why *why);
/* NULL is allowed. */
void chain_free(struct chain *chain);
/* Access key id, profile or file: who asks. Malloc'ed; NULL when memory is short. */
char *chain_identity(const struct chain *chain);
/* A copy of what is valid now. again: read even when nothing seems to have changed (the origin said
 * that they are expired). Any thread; reads small local files at times. 0 or -errno. */
int chain_get(struct chain *chain, bool again, struct credentials *ret);

/* A setting of the profile in the config or credentials file ("region", "endpoint_url"), malloc'ed;
 * NULL when there is none. */
char *profile_setting(const struct origin_config *config, const char *name);

#endif
