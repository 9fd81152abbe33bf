/* keys: an access key that is at hand, from the environment or a file. */
#include "credentials/provider.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"

struct keys {
	struct provider base;
	struct credentials credentials;
};

static int fetch(struct provider *provider, const _Atomic bool *stop, struct credentials *ret,
	struct why *why)
{
	(void)stop, (void)why;
	*ret = container_of(provider, struct keys, base)->credentials;
	return 0;
}

static void destroy(struct provider *provider)
{
	struct keys *keys = container_of(provider, struct keys, base);

	credentials_wipe(&keys->credentials);
	free(keys);
}

static const struct provider_ops environment_ops = {"environment", true, true, fetch, destroy};
static const struct provider_ops file_ops = {"file", true, false, fetch, destroy};

int provider_keys(const char *file, const char *key_id, const char *secret, const char *token,
	struct provider **ret, struct why *why)
{
	struct keys *keys = calloc(1, sizeof *keys);
	struct why reason;

	if (!keys)
		return -ENOMEM;
	keys->base.ops = file ? &file_ops : &environment_ops;
	if (credentials_set(&keys->credentials, key_id, secret, token, &reason)) {
		destroy(&keys->base);
		return why_set(
			why, -EINVAL, "%s: %s", file ? file : "AWS_ACCESS_KEY_ID", reason.text);
	}
	if (!file)
		keys->base.identity = strdup(key_id);
	*ret = &keys->base;
	return 0;
}
