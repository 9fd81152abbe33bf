/* role: AssumeRole, signed by what another provider gives. */
#include "credentials/provider.h"

#include <errno.h>
#include <stdlib.h>

#include "base/list.h"

#include "credentials/sts.h"

struct role_provider {
	struct provider base;
	struct role role;
	struct sts sts;
	struct provider *source;
};

static int fetch_signed(struct role_provider *own, const struct credentials *signer,
	const _Atomic bool *stop, struct credentials *ret, struct why *why)
{
	struct buf form;
	int r;

	sts_form(&form, "AssumeRole", &own->role);
	sts_form_add(&form, "ExternalId", own->role.external_id);
	r = sts_call(&own->sts, &form, signer, stop, ret, why);
	buf_free(&form);
	return r;
}

static int fetch(struct provider *provider, const _Atomic bool *stop, struct credentials *ret,
	struct why *why)
{
	struct role_provider *own = container_of(provider, struct role_provider, base);
	struct credentials *signer = calloc(1, sizeof *signer);
	int r;

	if (!signer)
		return -ENOMEM;
	r = own->source->ops->fetch(own->source, stop, signer, why);
	if (!r)
		r = fetch_signed(own, signer, stop, ret, why);
	credentials_wipe(signer);
	free(signer);
	return r;
}

static void destroy(struct provider *provider)
{
	struct role_provider *own = container_of(provider, struct role_provider, base);

	provider_free(own->source);
	role_free(&own->role);
	sts_free(&own->sts);
	free(own);
}

static const struct provider_ops ops = {"role", false, false, fetch, destroy};

int provider_role(const struct setup *setup, const struct role *role, struct provider *source,
	struct provider **ret, struct why *why)
{
	struct role_provider *own = calloc(1, sizeof *own);
	int r;

	if (!own) {
		provider_free(source);
		return -ENOMEM;
	}
	own->base.ops = &ops;
	own->source = source;
	r = role_copy(role, &own->role);
	if (!r)
		r = sts_init(&own->sts, setup, why);
	if (r)
		provider_free(&own->base);
	else
		*ret = &own->base;
	return r;
}
