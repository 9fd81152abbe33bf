#include "credentials/sso_kept.h"

#include <stdlib.h>
#include <string.h>

#include "base/lock.h"

#include "credentials/provider.h"

struct kept {
	char *file, *text, *document; /* all NULL: a place that is free */
};

static struct lock lock = LOCK_INITIALIZER;
/* lock. The oldest first, free places last. */
static struct kept all[SSO_KEPT_MAX];

static void remove_at(size_t i)
{
	free(all[i].file);
	free_secret(all[i].text);
	free_secret(all[i].document);
	memmove(&all[i], &all[i + 1], (SSO_KEPT_MAX - 1 - i) * sizeof all[0]);
	all[SSO_KEPT_MAX - 1] = (struct kept){0};
}

/* The file's place; SSO_KEPT_MAX: it has none. */
static size_t place_of(const char *file)
{
	size_t i = 0;

	while (i < SSO_KEPT_MAX && (!all[i].file || strcmp(all[i].file, file) != 0))
		i++;
	return i;
}

static void forget(const char *file)
{
	size_t i = place_of(file);

	if (i < SSO_KEPT_MAX)
		remove_at(i);
}

void sso_kept_put(const char *file, const char *text, char *document)
{
	struct kept kept = {strdup(file), strdup(text), document};
	size_t i = 0;

	if (!kept.file || !kept.text) {
		free(kept.file);
		free_secret(kept.text);
		free_secret(document);
		return;
	}
	lock_take(&lock);
	forget(file);
	if (all[SSO_KEPT_MAX - 1].file)
		remove_at(0);
	while (all[i].file)
		i++;
	all[i] = kept;
	lock_drop(&lock);
}

char *sso_kept_get(const char *file, const char *text)
{
	char *document = NULL;
	size_t i;

	lock_take(&lock);
	i = place_of(file);
	if (i < SSO_KEPT_MAX && strcmp(all[i].text, text) != 0)
		remove_at(i);
	else if (i < SSO_KEPT_MAX)
		document = strdup(all[i].document);
	lock_drop(&lock);
	return document;
}

void sso_kept_forget(const char *file)
{
	lock_take(&lock);
	forget(file);
	lock_drop(&lock);
}
