#include "settings.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "defaults.h"
#include "paths.h"

static void free_one(struct settings *settings)
{
	free(settings->store);
	free(settings->size);
	free(settings->control);
	free(settings->metrics);
}

static char **find_setting(struct settings *settings, const char *name)
{
	const struct {
		const char *name;
		char **value;
	} names[] = {
		{"store", &settings->store},
		{"size", &settings->size},
		{"control", &settings->control},
		{"metrics", &settings->metrics},
	};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		if (!strcmp(names[i].name, name))
			return names[i].value;
	}
	return NULL;
}

static char *strip(char *text)
{
	char *end = text + strlen(text);

	while (end > text && isspace((unsigned char)end[-1]))
		*--end = '\0';
	while (isspace((unsigned char)*text))
		text++;
	return text;
}

/* "name = value"; empty lines and those that begin with # say nothing. */
static int take_line(
	struct settings *settings, char *line, const char *file, int number, struct why *why)
{
	char *name = strip(line), *equal, *value, **setting;

	if (!*name || *name == '#')
		return 0;
	equal = strchr(name, '=');
	if (!equal)
		return why_set(why, -EINVAL, "%s, line %d: write name = value", file, number);
	*equal = '\0';
	value = strip(equal + 1);
	name = strip(name);
	setting = find_setting(settings, name);
	if (!setting)
		return why_set(why, -EINVAL,
			"%s, line %d: '%s' is no setting; there are store, size, control and "
			"metrics",
			file, number, name);
	if (!*value || *setting)
		return why_set(
			why, -EINVAL, "%s, line %d: '%s' needs one value", file, number, name);
	*setting = strdup(value);
	return *setting ? 0 : why_set(why, -ENOMEM, "no memory");
}

static int read_file(struct settings *settings, const char *name, struct why *why)
{
	FILE *file = fopen(name, "re");
	char *line = NULL;
	size_t size = 0;
	int r = 0;

	if (!file)
		return why_set(why, -errno, "can't read %s: %s", name, strerror(errno));
	for (int number = 1; !r && getline(&line, &size, file) > 0; number++)
		r = take_line(settings, line, name, number, why);
	if (!r && ferror(file))
		r = why_set(why, -EIO, "can't read %s", name);
	free(line);
	fclose(file);
	return r;
}

static int set(char **setting, const char *value, struct why *why)
{
	free(*setting);
	*setting = strdup(value);
	return *setting ? 0 : why_set(why, -ENOMEM, "no memory");
}

int settings_take(struct settings_sources *sources, int option, const char *value, struct why *why)
{
	switch (option) {
	case SETTINGS_STORE:
		return set(&sources->typed.store, value, why);
	case SETTINGS_SIZE:
		return set(&sources->typed.size, value, why);
	case SETTINGS_METRICS:
		return set(&sources->typed.metrics, value, why);
	case OPTION_CONTROL:
		return set(&sources->typed.control, value, why);
	case SETTINGS_CONFIG:
		return read_file(&sources->file, value, why);
	default:
		return 1;
	}
}

int settings_resolve(
	const struct settings_sources *sources, struct settings_result *ret, struct why *why)
{
	const struct settings *typed = &sources->typed, *file = &sources->file;
	const char *store_name = typed->store ?: file->store ?: default_store();
	const char *socket_name = client_socket(typed->control ?: file->control);
	struct settings_result result = {.store = path_resolved(store_name),
		.size = typed->size ?: file->size ?: default_size(),
		.metrics = typed->metrics ?: file->metrics};

	if (result.store)
		result.socket = path_resolved(socket_name);
	if (!result.socket) {
		int r = why_set(why, -errno, "can't make %s an absolute path: %s",
			result.store ? socket_name : store_name, strerror(errno));

		settings_result_free(&result);
		return r;
	}
	*ret = result;
	return 0;
}

void settings_free(struct settings_sources *sources)
{
	free_one(&sources->typed);
	free_one(&sources->file);
}

void settings_result_free(struct settings_result *result)
{
	free(result->store);
	free(result->socket);
}
