/*
 * provider: one place that credentials come from. A provider belongs to its chain; what may block is
 * only its fetch, which a worker calls, one at a time.
 */
#ifndef CREDENTIALS_PROVIDER_H
#define CREDENTIALS_PROVIDER_H

#include <stdatomic.h>

#include "credentials/credentials.h"

struct provider;

struct provider_ops {
	const char *name; /* as people know it */
	bool local;       /* fetch only copies: may be called by any thread */
	bool fixed;       /* gives the same for ever */
	/*
	 * Fills *ret, which is zeroed, only on success. Ends soon with -ECANCELED once *stop is set.
	 * -EACCES: refused, and nothing changes by itself. -EIO: no answer, or one that may be
	 * another next time. Both with why.
	 */
	int (*fetch)(struct provider *provider, const _Atomic bool *stop, struct credentials *ret,
		struct why *why);
	/* All but what struct provider has. */
	void (*destroy)(struct provider *provider);
};

struct provider {
	const struct provider_ops *ops;
	char *identity; /* who asks, never a secret; NULL: the profile */
};

/* NULL is allowed. */
void provider_free(struct provider *provider);

/* What the choice of a provider goes by. */
struct setup {
	char *files[2]; /* credentials file, config file; the second NULL for credentials=FILE */
	char *profile;
	bool explicit_file, explicit_profile; /* given as options, not by the environment */
	char *region;
	char *ca;    /* trusted by a token service that was named; may be NULL */
	bool header; /* files[0] holds an Authorization header, and nothing else counts */
	bool hub;    /* files[0], or HF_TOKEN when it is NULL, holds a token; nothing else counts */
};

/* choose.c: the order. Reads files. 0, or -ENOENT and -EINVAL with why. */
int provider_choose(const struct setup *setup, struct provider **ret, struct why *why);
/* keys.c. What is at hand: keys or a hub's token of a file or of the environment, a
 * header's value in a file. */
int provider_keys(const char *file, const char *key_id, const char *secret, const char *token,
	struct provider **ret, struct why *why);
int provider_header(const char *path, struct provider **ret, struct why *why);
/* path NULL: of the environment. */
int provider_token(const char *path, struct provider **ret, struct why *why);
/* token.c. NULL when there is none. */
const char *token_of_environment(void);
/* *ret is malloc'ed, or NULL when there is no such file. 0 or -ENOMEM. */
int token_file(char **ret);
/* process.c. Runs a command that prints JSON. */
int provider_process(const char *command, struct provider **ret, struct why *why);

struct role {
	const char *arn, *session_name, *external_id,
		*duration_seconds; /* all but arn: may be NULL */
};
/* role.c. AssumeRole; takes source over, also on failure. */
int provider_role(const struct setup *setup, const struct role *role, struct provider *source,
	struct provider **ret, struct why *why);
/* web_identity.c. AssumeRoleWithWebIdentity with the token in a file, read at each fetch. */
int provider_web_identity(const struct setup *setup, const struct role *role,
	const char *token_file, struct provider **ret, struct why *why);
/* sso.c. By the token of `aws sso login`. session: its name, or the start URL when there is no
 * such name. */
int provider_sso(const char *session, const char *region, const char *account, const char *role,
	struct provider **ret, struct why *why);
/* container.c, instance.c. What the environment says is looked at when fetching. */
int provider_container(struct provider **ret, struct why *why);
int provider_instance(const struct setup *setup, struct provider **ret, struct why *why);

/* fields.c: the checked way into struct credentials. -EIO with why when something is missing, too
 * long or has a control byte. */
int credentials_set(struct credentials *ret, const char *key_id, const char *secret,
	const char *token, struct why *why);
/* The value of an environment variable, NULL when unset or empty. */
const char *environment(const char *name);
/* Of the user, malloc'ed, NULL when memory is short. */
char *home_directory(void);
/* NAME in ~/.aws, malloc'ed, NULL when memory is short. */
char *home_aws_file(const char *name);
/* A small text file without the white space at its end, malloc'ed: -errno, -EFBIG. */
int read_secret_file(const char *path, char **ret);
/* Wipes and frees; NULL is allowed. */
void free_secret(char *secret);
/* Copies text for a log or a person: control bytes become blanks, and a word that may be a secret
 * becomes "...". */
void redact(const char *text, char *out, size_t size);

#endif
