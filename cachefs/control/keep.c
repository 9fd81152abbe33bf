/* What commands do to the cached objects: pin, unpin, evict. */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/clock.h"
#include "targets.h"

struct keep {
	struct control *control;
	target_file *file;
	json_t *results;
	int64_t until_ns; /* pin */
	/* of the target at work: */
	uint64_t objects, bytes, busy, pinned;
};

/* What the store refused with. */
static int explain(const struct control *control, int error, struct why *why)
{
	const char *store = control->config.store;

	if (error == -EROFS)
		return why_set(why, error,
			"the store %s is on a read-only file system: nothing in it can be pinned "
			"or "
			"evicted; see the kernel's log for why it became so, and remount it rw",
			store);
	return why_set(why, error, "the store %s: %s", store, strerror(-error));
}

static int keep_target(void *arg, const char *target, struct why *why)
{
	struct keep *keep = arg;
	struct why reason = {""};
	json_t *result;
	int r;

	keep->objects = keep->bytes = keep->busy = keep->pinned = 0;
	r = target_visit(keep->control, target, keep->file, keep, &reason);
	if (r && !reason.text[0])
		explain(keep->control, r, &reason);
	result = json_pack("{s:o, s:I, s:I, s:I, s:I}", "target", json_shown(target), "objects",
		(json_int_t)keep->objects, "bytes", (json_int_t)keep->bytes, "in_use",
		(json_int_t)keep->busy, "pinned", (json_int_t)keep->pinned);
	/* One target's failure is told in its result and doesn't stop the others. */
	if (r)
		json_object_set_new(result, "error", json_shown(reason.text));
	if (json_array_append_new(keep->results, result))
		return why_set(why, -ENOMEM, "no memory");
	return r == -ESHUTDOWN ? why_set(why, r, "%s", reason.text) : 0;
}

static int keep_all(struct keep *keep, const json_t *targets, json_t **ret, struct why *why)
{
	int r;

	keep->results = json_array();
	r = target_each(targets, keep_target, keep, why);
	if (r)
		json_decref(keep->results);
	else
		*ret = json_pack("{s:o}", "targets", keep->results);
	return r;
}

static int pin_file(
	void *arg, struct volume *volume, const char *path, const struct origin_attr *attr)
{
	struct keep *keep = arg;
	int r = cache_object_pin(
		volume_cache(volume), volume_origin(volume), path, attr, keep->until_ns);

	if (!r) {
		keep->objects++;
		keep->bytes += attr->size_bytes;
	}
	return r;
}

static int unpin_file(
	void *arg, struct volume *volume, const char *path, const struct origin_attr *attr)
{
	struct keep *keep = arg;
	struct cache *cache = volume_cache(volume);
	struct object_status status;
	int r = cache_object_status(cache, volume_origin(volume), path, attr, &status);

	if (r || !status.pinned)
		return r;
	r = cache_object_pin(cache, volume_origin(volume), path, attr, 0);
	if (!r) {
		keep->objects++;
		keep->bytes += attr->size_bytes;
	}
	return r;
}

static int evict_file(
	void *arg, struct volume *volume, const char *path, const struct origin_attr *attr)
{
	struct keep *keep = arg;
	uint64_t freed = 0;
	int r = cache_object_evict(volume_cache(volume), volume_origin(volume), path, attr, &freed);

	switch (r) {
	case 0:
		keep->objects++;
		keep->bytes += freed;
		return 0;
	case -EBUSY:
		keep->busy++;
		return 0;
	case -EPERM:
		keep->pinned++;
		return 0;
	case -ENOENT:
		return 0;
	default:
		return r;
	}
}

/* What is pinned stays, so more of it than the store holds leaves no room for anything else. */
static void add_pinned(const struct control *control, json_t *answer)
{
	struct cache_stats stats;
	uint64_t pinned_bytes;

	if (cache_pinned_bytes(control->config.cache, &pinned_bytes))
		return;
	cache_stats(control->config.cache, &stats);
	json_object_set_new(answer, "pinned_bytes", json_integer((json_int_t)pinned_bytes));
	json_object_set_new(
		answer, "capacity_bytes", json_integer((json_int_t)stats.capacity_bytes));
}

int handle_pin(
	struct control *control, const char *path, json_t *body, json_t **ret, struct why *why)
{
	struct keep keep = {.control = control, .file = pin_file, .until_ns = INT64_MAX};
	json_int_t ttl_ms = 0;
	json_error_t at;
	json_t *targets;
	int r;

	(void)path;
	if (json_unpack_ex(body, &at, 0, "{s:o, s?I !}", "targets", &targets, "ttl_ms", &ttl_ms))
		return why_set(why, -EINVAL, "pin: %s", at.text);
	if (ttl_ms < 0 || ttl_ms > INT64_MAX / 2 / (json_int_t)NS_PER_MS)
		return why_set(why, -EINVAL, "pin: 'ttl_ms' is out of range");
	if (ttl_ms)
		keep.until_ns = clock_wall_ns() + ttl_ms * (int64_t)NS_PER_MS;
	r = keep_all(&keep, targets, ret, why);
	if (!r)
		add_pinned(control, *ret);
	return r;
}

int handle_unpin(
	struct control *control, const char *path, json_t *body, json_t **ret, struct why *why)
{
	struct keep keep = {.control = control, .file = unpin_file};
	json_error_t at;
	json_t *targets;

	(void)path;
	if (json_unpack_ex(body, &at, 0, "{s:o !}", "targets", &targets))
		return why_set(why, -EINVAL, "unpin: %s", at.text);
	return keep_all(&keep, targets, ret, why);
}

int handle_evict(
	struct control *control, const char *path, json_t *body, json_t **ret, struct why *why)
{
	struct keep keep = {.control = control, .file = evict_file};
	json_error_t at;
	json_t *targets;

	(void)path;
	if (json_unpack_ex(body, &at, 0, "{s:o !}", "targets", &targets))
		return why_set(why, -EINVAL, "evict: %s", at.text);
	return keep_all(&keep, targets, ret, why);
}
