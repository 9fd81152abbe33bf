/* sts: calls of the token service, and what it answers. For a worker: they block. */
#ifndef CREDENTIALS_STS_H
#define CREDENTIALS_STS_H

#include "base/buf.h"
#include "credentials/provider.h"

/* Where the service is. */
struct sts {
	char *url, *host; /* url ends with "/" */
	char *region;     /* for the signature */
	char *ca;         /* of a service that was named; may be NULL */
};
/* By AWS_ENDPOINT_URL_STS, AWS_ENDPOINT_URL, else AWS's own of the region. -EINVAL with why. */
int sts_init(struct sts *sts, const struct setup *setup, struct why *why);
void sts_free(struct sts *sts);

/* What every call has: Action, Version, RoleArn, RoleSessionName, DurationSeconds. */
void sts_form(struct buf *form, const char *action, const struct role *role);
void sts_form_add(struct buf *form, const char *name, const char *value);
/* POSTs the form; signed by signer unless that is NULL. Errors as of a provider's fetch. */
int sts_call(const struct sts *sts, const struct buf *form, const struct credentials *signer,
	const _Atomic bool *stop, struct credentials *ret, struct why *why);

/* A role with strings of its own. */
int role_copy(const struct role *role, struct role *ret);
void role_free(struct role *role);

#endif
