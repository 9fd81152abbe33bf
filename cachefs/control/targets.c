#include "targets.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/list.h"
#include "base/percent.h"
#include "base/waiting.h"
#include "walk.h"

#define TARGETS_MAX 4096
#define MATCHES_MAX 256

struct pending_lookup {
	struct tree_lookup lookup;
	struct waiting waiting;
};

static void looked_up(struct tree_lookup *lookup, int error)
{
	waiting_end(&container_of(lookup, struct pending_lookup, lookup)->waiting, error);
}

static int explain(struct volume *volume, const char *path, int error, struct why *why)
{
	const char *source = origin_source(volume_origin(volume));

	if (error == -ENOENT)
		return why_set(why, error, "there is no '%s' in %s", path, source);
	if (error == -EACCES)
		return why_set(why, error,
			"%s denies access to '%s': check the volume's credentials", source, path);
	if (error == -EOVERFLOW)
		return why_set(why, error,
			"'%s' of %s has too many directories for one request: name parts of it",
			path, source);
	return why_set(why, error, "can't look at '%s' of %s: %s", path, source, strerror(-error));
}

int target_lookup(struct volume *volume, const char *path, struct origin_attr *ret, struct why *why)
{
	struct pending_lookup pending = {
		.lookup = {.tree = volume_tree(volume), .path = path, .done = looked_up}};
	int error;

	waiting_begin(&pending.waiting);
	tree_lookup_start(&pending.lookup);
	error = waiting_wait(&pending.waiting);
	if (error)
		return explain(volume, path, error, why);
	*ret = pending.lookup.attr;
	return 0;
}

struct visit {
	struct control *control;
	struct volume *volume;
	target_file *file;
	void *arg;
	struct why *why;
	bool explained;
};

static int visit_file(void *arg, const char *path, const struct origin_attr *attr)
{
	struct visit *visit = arg;
	struct origin_attr asked;
	int r = 0;

	visit->explained = true;
	if (visit->control->ending)
		return why_set(visit->why, -ESHUTDOWN, "the daemon is ending");
	if (!attr)
		r = target_lookup(visit->volume, path, &asked, visit->why);
	/* What went since it was listed is no error of this target. */
	if (r == -ENOENT)
		r = 0;
	else if (!r)
		r = visit->file(visit->arg, visit->volume, path, attr ? attr : &asked);
	if (!r)
		visit->explained = false;
	return r;
}

static int visit_directory(struct visit *visit, const char *path)
{
	int r = walk(volume_tree(visit->volume), path, visit_file, visit);

	return r && !visit->explained ? explain(visit->volume, path, r, visit->why) : r;
}

static int visit_path(struct visit *visit, const char *path)
{
	struct origin_attr attr = {0};
	int r;

	if (!*path)
		return visit_directory(visit, path);
	r = target_lookup(visit->volume, path, &attr, visit->why);
	if (r)
		return r;
	return attr.kind == ORIGIN_DIR ? visit_directory(visit, path)
				       : visit_file(visit, path, &attr);
}

int target_visit_volume(struct control *control, struct volume *volume, target_file *file,
	void *arg, struct why *why)
{
	struct visit visit = {
		.control = control, .volume = volume, .file = file, .arg = arg, .why = why};

	return visit_directory(&visit, "");
}

static int visit_mounted(
	struct control *control, const char *path, target_file *file, void *arg, struct why *why)
{
	struct visit visit = {.control = control, .file = file, .arg = arg, .why = why};
	char *inner;
	int r = volumes_find(control->config.volumes, path, &visit.volume, &inner, why);

	if (r)
		return r;
	r = visit_path(&visit, inner);
	free(inner);
	volume_unref(visit.volume);
	return r;
}

/* Mounted volumes that a SOURCE names, as paths to visit: a volume at or below the SOURCE wholly,
 * else what lies at the SOURCE in a volume above it. */
struct matches {
	const char *source;
	size_t source_size;
	char *paths[MATCHES_MAX];
	size_t count;
	int error;
};

static size_t trimmed(const char *source)
{
	size_t size = strlen(source);

	while (size && source[size - 1] == '/')
		size--;
	return size;
}

static bool at_or_below(const char *low, size_t low_size, const char *high, size_t high_size)
{
	return low_size >= high_size && !memcmp(low, high, high_size) &&
	       (low_size == high_size || low[high_size] == '/');
}

static void match_volume(void *arg, struct volume *volume)
{
	struct matches *matches = arg;
	struct volume_info info;
	size_t size;
	int inner;

	volume_info(volume, &info);
	size = trimmed(info.source);
	if (!info.mountpoint[0] || matches->error)
		return;
	if (at_or_below(info.source, size, matches->source, matches->source_size))
		inner = 0;
	else if (at_or_below(matches->source, matches->source_size, info.source, size))
		inner = (int)(matches->source_size - size);
	else
		return;
	if (matches->count == MATCHES_MAX)
		matches->error = -E2BIG;
	else if (asprintf(&matches->paths[matches->count], "%s%.*s", info.mountpoint, inner,
			 matches->source + (inner ? size : 0)) < 0)
		matches->error = -ENOMEM;
	else
		matches->count++;
}

static int visit_source(
	struct control *control, const char *source, target_file *file, void *arg, struct why *why)
{
	struct matches matches = {.source = source, .source_size = trimmed(source)};
	int r;

	volumes_each(control->config.volumes, match_volume, &matches);
	r = matches.error;
	if (r)
		why_set(why, r, "'%s' names too many mounted volumes", source);
	else if (!matches.count)
		r = why_set(why, -ENOENT,
			"no mounted volume holds %s: mount it, or see `cachefs status`", source);
	for (size_t i = 0; i < matches.count; i++) {
		if (!r)
			r = visit_mounted(control, matches.paths[i], file, arg, why);
		free(matches.paths[i]);
	}
	return r;
}

int target_visit(
	struct control *control, const char *target, target_file *file, void *arg, struct why *why)
{
	return strstr(target, "://") && target[0] != '/'
		       ? visit_source(control, target, file, arg, why)
		       : visit_mounted(control, target, file, arg, why);
}

/* Undoes percent-encoding. malloc'ed; NULL: it is none, or has a %00. */
static char *decode(const char *text)
{
	_cleanup_(buf_free) struct buf decoded;

	buf_init(&decoded, strlen(text) + 1);
	if (percent_decode(&decoded, text, strlen(text), false) ||
		strlen(buf_string(&decoded)) != decoded.size)
		return NULL;
	return strdup(buf_string(&decoded));
}

/* The target's bytes, malloc'ed; NULL: it is none. */
static char *target_text(const json_t *value)
{
	const json_t *encoded = json_object_get(value, "encoded");
	const char *text = json_string_value(encoded ? encoded : value);
	char *copy = !text ? NULL : encoded ? decode(text) : strdup(text);

	if (copy && copy[0] != '/' && !strstr(copy, "://"))
		free(steal_pointer(&copy));
	return copy;
}

int target_each(const json_t *targets, int (*each)(void *arg, const char *target, struct why *why),
	void *arg, struct why *why)
{
	size_t count = json_array_size(targets);
	int r = 0;

	if (!count || count > TARGETS_MAX)
		return why_set(why, -EINVAL, "'targets' must be a list of 1 to %d paths or sources",
			TARGETS_MAX);
	for (size_t i = 0; i < count; i++) {
		char *target = target_text(json_array_get(targets, i));

		if (!target)
			return why_set(why, -EINVAL,
				"target %zu is neither an absolute path nor a SOURCE", i + 1);
		free(target);
	}
	for (size_t i = 0; i < count && !r; i++) {
		char *target = target_text(json_array_get(targets, i));

		r = target ? each(arg, target, why) : why_set(why, -ENOMEM, "no memory");
		free(target);
	}
	return r;
}
