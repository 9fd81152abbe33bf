/*
 * web_identity: AssumeRoleWithWebIdentity with the token in a file (IAM roles for service accounts).
 * The token proves who asks, so the call is not signed; its file is rotated, and read at each fetch.
 */
#include "credentials/provider.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"

#include "credentials/sts.h"

struct web_identity {
	struct provider base;
	struct role role;
	struct sts sts;
	char *token_file;
};

static int fetch(struct provider *provider, const _Atomic bool *stop, struct credentials *ret,
	struct why *why)
{
	struct web_identity *own = container_of(provider, struct web_identity, base);
	char *token = NULL;
	struct buf form;
	int r = read_secret_file(own->token_file, &token);

	if (r)
		return why_set(why, -EACCES, "the web identity token file %s can't be read: %s",
			own->token_file, strerror(-r));
	sts_form(&form, "AssumeRoleWithWebIdentity", &own->role);
	sts_form_add(&form, "WebIdentityToken", token);
	r = sts_call(&own->sts, &form, NULL, stop, ret, why);
	if (form.bytes)
		OPENSSL_cleanse(form.bytes, form.size);
	buf_free(&form);
	free_secret(token);
	return r;
}

static void destroy(struct provider *provider)
{
	struct web_identity *own = container_of(provider, struct web_identity, base);

	role_free(&own->role);
	sts_free(&own->sts);
	free(own->token_file);
	free(own);
}

static const struct provider_ops ops = {"web identity", false, false, fetch, destroy};

int provider_web_identity(const struct setup *setup, const struct role *role,
	const char *token_file, struct provider **ret, struct why *why)
{
	struct web_identity *own = calloc(1, sizeof *own);
	int r;

	if (!own)
		return -ENOMEM;
	own->base.ops = &ops;
	own->token_file = strdup(token_file);
	own->base.identity = strdup(role->arn);
	r = own->token_file && own->base.identity ? role_copy(role, &own->role) : -ENOMEM;
	if (!r)
		r = sts_init(&own->sts, setup, why);
	if (r)
		provider_free(&own->base);
	else
		*ret = &own->base;
	return r;
}
