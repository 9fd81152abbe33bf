/*
 * credentials: where an access key or a token comes from, that it is renewed before it expires, and
 * that a changed one is picked up.
 *
 * A chain chooses one provider (provider.h) by what is configured, in the order of choose.c, and
 * keeps what it gave. Fetching may take a network call or a process: it is done by a worker of the
 * engine, one at a time for each chain, and never by who asks:
 *
 *     usable --> usable, fetching    its time is nearly up, or files changed: requests go on
 *     none   --> none, fetching      at the start, after expiry, after chain_reject: requests wait
 *     fetching --> usable            the engine's waiting requests are tried again
 *     fetching --> failed            back-off; "refused" is told to requests at once, "no answer" has
 *                                    them wait, as an origin out of reach does
 *
 * Files are looked at no more than once a second. The one secret that is written anywhere is a renewed
 * SSO token, to where it came from (sso_token.h).
 */
#ifndef CREDENTIALS_CREDENTIALS_H
#define CREDENTIALS_CREDENTIALS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/why.h"
#include "origin/origin.h"

#define CREDENTIAL_MAX 256
#define TOKEN_MAX      8192

struct credentials {
	char key_id[CREDENTIAL_MAX], secret[CREDENTIAL_MAX];
	char token
		[TOKEN_MAX]; /* "" when there is none; for http(s):// and hf:// the Authorization header */
	int64_t expires_s; /* wall clock; 0: never, or not known */
};
void credentials_wipe(struct credentials *credentials);

struct chain;

/* Chooses a provider for s3://. region: of the bucket, for the token service. What is at hand is
 * read, nothing is asked of a network. 0; -ENOENT (nothing found, no such profile or file) and
 * -EINVAL with why. */
int chain_new(const struct origin_config *config, const char *region, struct chain **ret,
	struct why *why);
/* For http(s)://: one file with the value of the Authorization header. */
int chain_new_header(const char *path, struct chain **ret, struct why *why);
/* For hf://: a token of credentials=, HF_TOKEN or the file that `hf auth login` leaves. *ret is NULL
 * when there is none, or config says anonymous. */
int chain_new_token(const struct origin_config *config, struct chain **ret, struct why *why);
/* Fetches that are under way end soon, and nothing more is fetched. NULL is allowed. */
void chain_free(struct chain *chain);
/* Access key id, profile, role or file: who asks. Malloc'ed; NULL when memory is short. */
char *chain_identity(const struct chain *chain);

/*
 * A copy of what is valid now, and its number for chain_reject. Any thread; looks at local files at
 * times. engine: whose worker fetches; it lives until its requests and workers have ended.
 * 0; -EAGAIN: a worker is asked, or will be: wait for the engine's call or some 100 ms, then ask
 * again; -EACCES: refused, or nothing to be had. Both with why.
 */
int chain_get(struct chain *chain, struct origin_engine *engine, struct credentials *ret,
	uint64_t *ret_number, struct why *why);
/* The origin says that these credentials are expired or wrong. True when others may be had: ask
 * again. Any thread. */
bool chain_reject(struct chain *chain, uint64_t number);

/* A setting of the profile in the config or credentials file ("region", "endpoint_url"), malloc'ed;
 * NULL when there is none. */
char *profile_setting(const struct origin_config *config, const char *name);

#endif
