/* header: the value of an Authorization header in a file, for web servers. */
#include "credentials/provider.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/list.h"

struct header {
	struct provider base;
	struct credentials credentials;
};

static int fetch(struct provider *provider, const _Atomic bool *stop, struct credentials *ret,
	struct why *why)
{
	(void)stop, (void)why;
	*ret = container_of(provider, struct header, base)->credentials;
	return 0;
}

static void destroy(struct provider *provider)
{
	struct header *header = container_of(provider, struct header, base);

	credentials_wipe(&header->credentials);
	free(header);
}

static const struct provider_ops ops = {"header", true, false, fetch, destroy};

/* "Bearer TOKEN" or "Basic BASE64", perhaps with the header's name before it. */
static int take(const char *text, struct credentials *ret)
{
	static const char name[] = "Authorization:";
	const char *rest;

	if (!strncasecmp(text, name, strlen(name)))
		text += strlen(name);
	text += strspn(text, " \t");
	rest = strchr(text, ' ');
	if (!rest ||
		(strncasecmp(text, "Bearer ", 7) != 0 && strncasecmp(text, "Basic ", 6) != 0) ||
		!rest[1 + strspn(rest + 1, " ")])
		return -EINVAL;
	return credentials_set(ret, "header", "header", text, NULL) ? -EINVAL : 0;
}

int provider_header(const char *path, struct provider **ret, struct why *why)
{
	struct header *header = calloc(1, sizeof *header);
	char *text = NULL;
	int r;

	if (!header)
		return -ENOMEM;
	header->base.ops = &ops;
	r = read_secret_file(path, &text);
	if (r)
		why_set(why, r, "credentials=%s can't be read: %s", path, strerror(-r));
	else if (take(text, &header->credentials))
		r = why_set(why, -EINVAL,
			"credentials=%s is no credential for a web server: give a file with the "
			"one line \"Bearer TOKEN\" or \"Basic BASE64\"",
			path);
	free_secret(text);
	if (r)
		destroy(&header->base);
	else
		*ret = &header->base;
	return r;
}
