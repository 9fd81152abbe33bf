#include "hf/places.h"

#include <stdlib.h>
#include <string.h>

bool commit_valid(const char *text)
{
	return strspn(text, "0123456789abcdef") == COMMIT_SIZE - 1 && !text[COMMIT_SIZE - 1];
}

void commits_learn(struct commits *commits, const char *sha, uint64_t asked_ns)
{
	unsigned at = 0;

	if (commits->n && asked_ns < commits->asked_ns)
		return;
	commits->asked_ns = asked_ns;
	while (at < commits->n && strcmp(commits->sha[at], sha) != 0)
		at++;
	/* A revision may go back to a commit that it was: each is here once. */
	if (at == commits->n)
		at = commits->n < COMMITS_MAX ? commits->n++ : COMMITS_MAX - 1;
	memmove(commits->sha[1], commits->sha[0], at * sizeof commits->sha[0]);
	memcpy(commits->sha[0], sha, COMMIT_SIZE);
}

static void empty(struct place *place)
{
	free(place->path);
	free(place->url);
	*place = (struct place){.path = NULL};
}

void places_free(struct places *places)
{
	for (size_t i = 0; i < PLACES_MAX; i++)
		empty(&places->all[i]);
}

struct place *places_find(struct places *places, const char *path, const char *version)
{
	for (size_t i = 0; i < PLACES_MAX; i++) {
		struct place *place = &places->all[i];

		if (place->path && !strcmp(place->path, path) && !strcmp(place->version, version)) {
			place->used = ++places->uses;
			return place;
		}
	}
	return NULL;
}

/* Free ones have the lowest number of all. */
static struct place *longest_unused(struct places *places)
{
	struct place *found = &places->all[0];

	for (size_t i = 1; i < PLACES_MAX; i++) {
		if (places->all[i].used < found->used)
			found = &places->all[i];
	}
	return found;
}

struct place *places_put(
	struct places *places, const char *path, const char *version, const char *url)
{
	struct place *place = places_find(places, path, version);

	if (!place)
		place = longest_unused(places);
	empty(place);
	place->path = strdup(path);
	place->url = strdup(url);
	if (!place->path || !place->url) {
		empty(place);
		return NULL;
	}
	strncpy(place->version, version, sizeof place->version - 1);
	place->used = place->number = ++places->uses;
	return place;
}

void places_drop(struct places *places, const char *path, const char *version, uint64_t number)
{
	struct place *place = places_find(places, path, version);

	if (place && place->number == number)
		empty(place);
}
