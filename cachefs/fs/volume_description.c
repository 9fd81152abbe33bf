#include "volume_description.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

static void add(FILE *out, const char *key, const char *value)
{
	fprintf(out, "%s=", key);
	for (; *value; value++) {
		unsigned char byte = (unsigned char)*value;

		if (byte == '%' || byte < ' ')
			fprintf(out, "%%%02X", byte);
		else
			fputc(byte, out);
	}
	fputc('\n', out);
}

char *volume_description_write(const struct volume_description *description)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	bool failed;

	if (!out)
		return NULL;
	add(out, "source", description->source);
	add(out, "options", description->options);
	add(out, "mountpoint", description->mountpoint);
	fprintf(out, "device=%u:%u\n", description->id.major, description->id.minor);
	failed = ferror(out);
	if (fclose(out) || failed) {
		free(text);
		return NULL;
	}
	return text;
}

/* In place. */
static void unescape(char *text)
{
	char *to = text;

	for (const char *from = text; *from; to++) {
		if (from[0] == '%' && isxdigit((unsigned char)from[1]) &&
			isxdigit((unsigned char)from[2])) {
			char digits[] = {from[1], from[2], '\0'};

			*to = (char)strtoul(digits, NULL, 16);
			from += 3;
		} else {
			*to = *from++;
		}
	}
	*to = '\0';
}

static int set(char **field, const char *value)
{
	char *copy = strdup(value);

	if (!copy)
		return -ENOMEM;
	free(*field);
	*field = copy;
	return 0;
}

static int read_line(struct volume_description *description, char *line)
{
	char *value = strchr(line, '=');

	if (!value)
		return 0;
	*value++ = '\0';
	unescape(value);
	if (!strcmp(line, "source"))
		return set(&description->source, value);
	if (!strcmp(line, "options"))
		return set(&description->options, value);
	if (!strcmp(line, "mountpoint"))
		return set(&description->mountpoint, value);
	if (!strcmp(line, "device") &&
		sscanf(value, "%u:%u", &description->id.major, &description->id.minor) != 2)
		return -EINVAL;
	return 0;
}

int volume_description_read(const char *text, struct volume_description *ret)
{
	_cleanup_(freep) char *copy = strdup(text);
	struct volume_description description = {
		.source = strdup(""), .options = strdup(""), .mountpoint = strdup("")};
	char *rest = copy, *line;
	int r = copy && description.source && description.options && description.mountpoint
			? 0
			: -ENOMEM;

	while (!r && (line = strsep(&rest, "\n")))
		r = read_line(&description, line);
	if (!r && !*description.source)
		r = -EINVAL;
	if (r)
		volume_description_free(&description);
	else
		*ret = description;
	return r;
}

void volume_description_free(struct volume_description *description)
{
	free(description->source);
	free(description->options);
	free(description->mountpoint);
	*description = (struct volume_description){0};
}
