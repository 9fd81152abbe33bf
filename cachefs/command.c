#include "command.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "paths.h"

int command_other_option(const struct command *command, int option)
{
	switch (option) {
	case 'h':
		fputs(command->help, stdout);
		return STATUS_DONE;
	case OPTION_VERSION:
		puts("cachefs " CACHEFS_VERSION);
		return STATUS_DONE;
	default:
		/* getopt has said what was wrong. */
		fprintf(stderr, "cachefs: see `cachefs %s --help`\n", command->name);
		return STATUS_USAGE;
	}
}

int command_failed(const struct why *why)
{
	fprintf(stderr, "cachefs: %s\n", why->text);
	return STATUS_FAILED;
}

int command_misused(const struct command *command, const char *format, ...)
{
	va_list args;

	fputs("cachefs: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "; see `cachefs %s --help`\n", command->name);
	return STATUS_USAGE;
}

bool command_fd(const char *text, int *ret)
{
	char *end;
	long fd = strtol(text, &end, 10);

	if (!*text || *end || fd < 0 || fd > 1 << 20 || fcntl((int)fd, F_SETFD, FD_CLOEXEC) < 0)
		return false;
	*ret = (int)fd;
	return true;
}

void command_add_options(struct buf *options, const char *more)
{
	if (options->size)
		buf_add_string(options, ",");
	buf_add_string(options, more);
}

static json_t *target(const char *argument, struct why *why)
{
	json_t *value;
	char *path;

	if (strstr(argument, "://"))
		return client_target(argument);
	path = path_below_mounts(argument);
	if (!path) {
		why_set(why, -errno, "can't make %s an absolute path: %s", argument,
			strerror(errno));
		return NULL;
	}
	value = client_target(path);
	free(path);
	return value;
}

json_t *command_targets(int count, char **arguments, struct why *why)
{
	json_t *targets = json_array();

	why_set(why, -ENOMEM, "no memory");
	for (int i = 0; i < count; i++) {
		if (json_array_append_new(targets, target(arguments[i], why))) {
			json_decref(targets);
			return NULL;
		}
	}
	return json_pack("{s:o}", "targets", targets);
}

void command_print_json(json_t *value)
{
	json_dumpf(value, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(value);
}

unsigned long long json_number(const json_t *value, const char *name)
{
	return (unsigned long long)json_integer_value(json_object_get(value, name));
}

const char *json_text(const json_t *value, const char *name)
{
	const char *text = json_string_value(json_object_get(value, name));

	return text ? text : "";
}
