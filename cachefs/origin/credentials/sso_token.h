/*
 * sso_token: the token that `aws sso login` leaves in ~/.aws/sso/cache, and its renewal by the refresh
 * token beside it
 * (https://docs.aws.amazon.com/sdkref/latest/guide/feature-sso-credentials.html, and CreateToken of
 * https://docs.aws.amazon.com/singlesignon/latest/OIDCAPIReference/). For a worker: calls block.
 *
 * A renewed token is written back, since the refresh token changes with it and belongs to the user's
 * other programs too. Where the file can't be written, all of the process go on with it from memory for
 * as long as the file stays as it was (sso_kept.h); the next process finds a refresh token that is used
 * up, and needs a login. A file that is gone means that the user has logged out.
 */
#ifndef CREDENTIALS_SSO_TOKEN_H
#define CREDENTIALS_SSO_TOKEN_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/why.h"

struct sso_token {
	char *file, *url; /* the cache's file, and where a token is renewed */
};

/* session: its name, or the start URL when there is no such name. 0, -ENOMEM, or -EINVAL with why. */
int sso_token_init(
	struct sso_token *token, const char *session, const char *region, struct why *why);
void sso_token_free(struct sso_token *token);

/*
 * *ret: the access token, for free_secret. refused: the one that was got before is not accepted, so
 * another is wanted. Errors as of a provider's fetch, with why.
 */
int sso_token_get(const struct sso_token *token, bool refused, const _Atomic bool *stop, char **ret,
	struct why *why);
/* -EACCES: "the SSO token in FILE WHAT: run aws sso login". */
int sso_token_useless(const struct sso_token *token, const char *what, struct why *why);

#endif
