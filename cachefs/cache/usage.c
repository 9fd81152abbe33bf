/* How much of the store each volume has. */
#include "usage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cache/object.h"
#include "whole.h"

uint64_t usage_of_object(const struct index_object *object)
{
	uint64_t bytes = (uint64_t)object->n_present * CHUNK_SIZE;

	return bytes < object->size_bytes ? bytes : object->size_bytes;
}

struct prefix {
	char *text; /* what every name at or below the origin's root begins with */
	size_t size;
};

struct usage {
	struct prefix *prefixes;
	size_t count;
	uint64_t *bytes;
};

/* The name of "x" without the x: how a root itself is named differs between kinds of origins. */
static int prefix_of(const struct origin *origin, struct prefix *ret)
{
	char name[INDEX_NAME_MAX];
	int r = origin_object_name(origin, "x", name, sizeof name);

	if (r)
		return r;
	ret->size = strlen(name) - 1;
	ret->text = strndup(name, ret->size);
	return ret->text ? 0 : -ENOMEM;
}

static int add_record(void *arg, struct id128 id, const struct index_object_record *record)
{
	struct usage *usage = arg;

	(void)id;
	for (size_t i = 0; i < usage->count; i++) {
		if (!strncmp(record->name, usage->prefixes[i].text, usage->prefixes[i].size))
			usage->bytes[i] += usage_of_object(&record->object);
	}
	return 0;
}

int cache_origin_bytes(
	struct cache *cache, struct origin *const *origins, size_t count, uint64_t *ret_bytes)
{
	_cleanup_(freep) struct prefix *prefixes = calloc(count + 1, sizeof *prefixes);
	struct usage usage = {.prefixes = prefixes, .count = count, .bytes = ret_bytes};
	int r = prefixes ? 0 : -ENOMEM;

	memset(ret_bytes, 0, count * sizeof *ret_bytes);
	for (size_t i = 0; i < count && !r; i++)
		r = prefix_of(origins[i], &prefixes[i]);
	if (!r)
		r = index_each_object(cache->index, add_record, &usage);
	for (size_t i = 0; prefixes && i < count; i++)
		free(prefixes[i].text);
	return r;
}

struct pins {
	int64_t now_ns;
	uint64_t bytes;
};

static int add_pinned(void *arg, struct id128 id, const struct index_object_record *record)
{
	struct pins *pins = arg;

	(void)id;
	if (record->object.pinned_until_ns > pins->now_ns)
		pins->bytes += record->object.size_bytes;
	return 0;
}

int cache_pinned_bytes(struct cache *cache, uint64_t *ret_bytes)
{
	struct pins pins = {.now_ns = clock_wall_ns()};
	int r = index_each_object(cache->index, add_pinned, &pins);

	if (!r)
		*ret_bytes = pins.bytes;
	return r;
}
