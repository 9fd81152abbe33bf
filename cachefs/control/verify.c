#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "targets.h"

struct verify {
	struct control *control;
	bool repair;
	struct verify_result result;
	json_t *results;
};

static int verify_file(
	void *arg, struct volume *volume, const char *path, const struct origin_attr *attr)
{
	struct verify *verify = arg;
	int r = cache_object_verify(volume_cache(volume), volume_origin(volume), path, attr,
		verify->repair, &verify->result);

	/* What isn't cached has nothing to verify. */
	return r == -ENOENT ? 0 : r;
}

static json_t *result_json(const struct verify_result *result)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "objects",
		(json_int_t)result->objects, "chunks", (json_int_t)result->chunks, "bytes",
		(json_int_t)result->bytes, "bad_chunks", (json_int_t)result->bad_chunks,
		"repaired_chunks", (json_int_t)result->repaired_chunks, "unreadable_objects",
		(json_int_t)result->unreadable_objects, "forgotten_objects",
		(json_int_t)result->forgotten_objects, "stray_files",
		(json_int_t)result->stray_files, "first_bad", json_shown(result->first_bad));
}

static int verify_target(void *arg, const char *target, struct why *why)
{
	struct verify *verify = arg;
	struct why reason = {""};
	json_t *result;
	int r;

	verify->result = (struct verify_result){0};
	r = target_visit(verify->control, target, verify_file, verify, &reason);
	if (r && !reason.text[0])
		why_set(&reason, r, "%s", strerror(-r));
	result = result_json(&verify->result);
	json_object_set_new(result, "target", json_shown(target));
	if (r)
		json_object_set_new(result, "error", json_shown(reason.text));
	if (json_array_append_new(verify->results, result))
		return why_set(why, -ENOMEM, "no memory");
	return r == -ESHUTDOWN ? why_set(why, r, "%s", reason.text) : 0;
}

#define VOLUMES_MAX 1024

struct mountpoints {
	char *paths[VOLUMES_MAX];
	size_t count;
};

static void note_mountpoint(void *arg, struct volume *volume)
{
	struct mountpoints *mountpoints = arg;
	struct volume_info info;

	volume_info(volume, &info);
	if (!info.mountpoint[0] || mountpoints->count == VOLUMES_MAX)
		return;
	mountpoints->paths[mountpoints->count] = strdup(info.mountpoint);
	if (mountpoints->paths[mountpoints->count])
		mountpoints->count++;
}

/* Only an origin can repair, and only a mounted volume knows one: so these first, then whatever
 * the store has. */
static int repair_mounted(struct verify *verify, struct why *why)
{
	_cleanup_(freep) struct mountpoints *mountpoints = calloc(1, sizeof *mountpoints);
	int r = 0;

	if (!mountpoints)
		return why_set(why, -ENOMEM, "no memory");
	volumes_each(verify->control->config.volumes, note_mountpoint, mountpoints);
	for (size_t i = 0; i < mountpoints->count; i++) {
		if (!r)
			r = target_visit(
				verify->control, mountpoints->paths[i], verify_file, verify, why);
		free(mountpoints->paths[i]);
	}
	return r;
}

static int verify_all(struct verify *verify, struct why *why)
{
	struct verify_result mounted;
	int r = 0;

	if (verify->repair)
		r = repair_mounted(verify, why);
	if (r)
		return r;
	mounted = verify->result;
	verify->result = (struct verify_result){0};
	r = cache_verify_all(verify->control->config.cache, &verify->result);
	if (r)
		return why_set(why, r, "can't verify the store: %s", strerror(-r));
	verify->result.bad_chunks += mounted.bad_chunks;
	verify->result.repaired_chunks += mounted.repaired_chunks;
	verify->result.unreadable_objects += mounted.unreadable_objects;
	verify->result.forgotten_objects += mounted.forgotten_objects;
	if (mounted.first_bad[0])
		memcpy(verify->result.first_bad, mounted.first_bad, sizeof mounted.first_bad);
	return 0;
}

int handle_verify(
	struct control *control, const char *path, json_t *body, json_t **ret, struct why *why)
{
	struct verify verify = {.control = control};
	json_t *targets = NULL;
	int all = 0, repair = 0, r;
	json_error_t at;

	(void)path;
	if (json_unpack_ex(body, &at, 0, "{s?o, s?b, s?b !}", "targets", &targets, "all", &all,
		    "repair", &repair))
		return why_set(why, -EINVAL, "verify: %s", at.text);
	if (!all == !targets)
		return why_set(why, -EINVAL, "verify: give either 'targets' or 'all': true");
	verify.repair = repair;
	verify.results = json_array();
	if (all) {
		r = verify_all(&verify, why);
		if (!r)
			json_array_append_new(verify.results, result_json(&verify.result));
	} else {
		r = target_each(targets, verify_target, &verify, why);
	}
	if (r)
		json_decref(verify.results);
	else
		*ret = json_pack("{s:o}", "results", verify.results);
	return r;
}
