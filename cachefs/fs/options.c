#include "fs/options.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/units.h"
#include "origin/origin.h"

#define TEXT_MAX 65536

enum kind {
	FLAG,     /* bool, without a value */
	STRING,   /* not empty */
	DURATION, /* uint64_t, milliseconds */
	SIZE,     /* uint64_t, bytes */
	NUMBER,   /* unsigned, least to most */
	ID,       /* uid_t or gid_t */
	MODE,     /* mode_t, octal */
	IGNORED,  /* sets no field: fstab's words, what always holds, and immutable (see ttl) */
	WRITING,  /* belongs to writable volumes */
	UNKNOWN_YET,
};

struct option {
	const char *name;
	enum kind kind;
	size_t offset;
	unsigned least, most;
	bool of_daemon; /* not part of what tells two volumes apart */
};

#define FIELD(member) offsetof(struct volume_options, member)

/* Sorted by name: the normal form follows this order. */
static const struct option table[] = {
	{"_netdev", IGNORED},
	{"addressing", STRING, FIELD(addressing)},
	{"allow_other", FLAG, FIELD(allow_other)},
	{"anonymous", FLAG, FIELD(anonymous)},
	{"auto", IGNORED},
	{"aws_profile", STRING, FIELD(aws_profile)},
	{"bandwidth", SIZE, FIELD(bandwidth_bytes)},
	{"ca", STRING, FIELD(ca)},
	{"compress", UNKNOWN_YET},
	{"connections", NUMBER, FIELD(connections), 1, 256},
	{"credentials", STRING, FIELD(credentials)},
	{"defaults", IGNORED},
	{"dirty", WRITING},
	{"endpoint", STRING, FIELD(endpoint)},
	{"gid", ID, FIELD(gid)},
	{"immutable", IGNORED},
	{"negative_ttl", DURATION, FIELD(negative_ttl_ms)},
	{"noauto", IGNORED},
	{"nodev", IGNORED},
	{"nofail", IGNORED},
	{"nosuid", IGNORED},
	{"priority", UNKNOWN_YET},
	{"profile", UNKNOWN_YET},
	{"protect", FLAG, FIELD(protect)},
	{"quota", UNKNOWN_YET},
	{"readahead", SIZE, FIELD(readahead_bytes)},
	{"region", STRING, FIELD(region)},
	{"ro", IGNORED},
	{"rw", WRITING},
	{"size", STRING, FIELD(size), .of_daemon = true},
	{"store", STRING, FIELD(store), .of_daemon = true},
	{"strict", FLAG, FIELD(strict)},
	{"subdir", STRING, FIELD(subdir)},
	{"timeout", DURATION, FIELD(timeout_ms)},
	{"ttl", DURATION, FIELD(ttl_ms)},
	{"uid", ID, FIELD(uid)},
	{"umask", MODE, FIELD(umask)},
	{"write", WRITING},
};
#define N_OPTIONS (sizeof table / sizeof table[0])

struct parse {
	struct volume_options options;
	bool given[N_OPTIONS];
};

static void *field(struct volume_options *options, const struct option *option)
{
	return (char *)options + option->offset;
}

static void set_defaults(struct volume_options *options)
{
	*options = (struct volume_options){
		.timeout_ms = 5 * 60 * 1000,
		.connections = 32,
		.ttl_ms = 60 * 1000,
		.negative_ttl_ms = 5 * 1000,
		.uid = geteuid(),
		.gid = getegid(),
		.umask = 022,
		/* Pods and jobs are seldom root; a user's own mount is private. */
		.allow_other = geteuid() == 0,
		.readahead_bytes = 4u << 20,
	};
}

static const struct option *find(const char *name)
{
	for (size_t i = 0; i < N_OPTIONS; i++) {
		if (!strcmp(table[i].name, name))
			return &table[i];
	}
	return NULL;
}

static bool was_given(const struct parse *parse, const char *name)
{
	return parse->given[find(name) - table];
}

/* A whole number in this base, without sign or space. */
static int parse_integer(const char *text, int base, uint64_t *ret)
{
	char *end;
	unsigned long long value;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	value = strtoull(text, &end, base);
	if (errno || *end)
		return -EINVAL;
	*ret = value;
	return 0;
}

static int set_number(
	const struct option *option, const char *value, unsigned *ret, struct why *why)
{
	uint64_t number;

	if (parse_integer(value, 10, &number) || number < option->least || number > option->most)
		return why_set(why, -EINVAL, "option %s=%s: give a number from %u to %u",
			option->name, value, option->least, option->most);
	*ret = (unsigned)number;
	return 0;
}

static int set_id(const struct option *option, const char *value, uint32_t *ret, struct why *why)
{
	uint64_t number;

	if (parse_integer(value, 10, &number) || number >= UINT32_MAX)
		return why_set(
			why, -EINVAL, "option %s=%s: give a numeric id", option->name, value);
	*ret = (uint32_t)number;
	return 0;
}

static int set_mode(const struct option *option, const char *value, mode_t *ret, struct why *why)
{
	uint64_t number;

	if (parse_integer(value, 8, &number) || number > 0777)
		return why_set(why, -EINVAL, "option %s=%s: give an octal mask like 022",
			option->name, value);
	*ret = (mode_t)number;
	return 0;
}

static int set_string(const char *value, char **ret, struct why *why)
{
	*ret = strdup(value);
	return *ret ? 0 : why_set(why, -ENOMEM, "out of memory");
}

static int set_value(struct parse *parse, const struct option *option, char *value, struct why *why)
{
	void *to = field(&parse->options, option);

	switch (option->kind) {
	case STRING:
		return set_string(value, to, why);
	case DURATION:
		if (parse_duration(value, to))
			return why_set(why, -EINVAL,
				"option %s=%s: give a duration like 90s, 10m or 24h", option->name,
				value);
		return 0;
	case SIZE:
		if (parse_size(value, to))
			return why_set(why, -EINVAL,
				"option %s=%s: give a size like 4M, 100G or 1.5TiB", option->name,
				value);
		return 0;
	case NUMBER:
		return set_number(option, value, to, why);
	case ID:
		return set_id(option, value, to, why);
	case MODE:
		return set_mode(option, value, to, why);
	default:
		return 0;
	}
}

/* Those that mount(8) knows and that can't be had are told from misspelt ones. */
static int unknown_option(const char *name, struct why *why)
{
	if (!strncmp(name, "x-", 2))
		return 0; /* comments for other programs, fstab(5) */
	if (!strcmp(name, "remount"))
		return why_set(why, -EINVAL,
			"option remount: what is mounted keeps its options; unmount it, and mount "
			"it with the new ones");
	if (!strcmp(name, "noexec"))
		return why_set(why, -EINVAL,
			"option noexec: this version can't forbid programs to run; leave it out");
	return why_set(why, -EINVAL, "option %s is not known; see cachefs mount --help", name);
}

static int set_option(struct parse *parse, char *name, char *value, struct why *why)
{
	const struct option *option = find(name);
	bool takes_value;

	if (!option)
		return unknown_option(name, why);
	if (option->kind == WRITING)
		return why_set(why, -EINVAL,
			"option %s: volumes are read-only in this version; leave it out", name);
	if (option->kind == UNKNOWN_YET)
		return why_set(why, -EINVAL,
			"option %s is not available in this version; leave it out", name);
	takes_value = option->kind != FLAG && option->kind != IGNORED;
	if (takes_value && (!value || !*value))
		return why_set(why, -EINVAL, "option %s needs a value: %s=…", name, name);
	if (!takes_value && value)
		return why_set(
			why, -EINVAL, "option %s takes no value, got %s=%s", name, name, value);
	if (parse->given[option - table] && option->kind != IGNORED)
		return why_set(why, -EINVAL, "option %s is given twice; keep one", name);
	parse->given[option - table] = true;
	if (option->kind == FLAG)
		*(bool *)field(&parse->options, option) = true;
	return takes_value ? set_value(parse, option, value, why) : 0;
}

static int contradiction(const char *a, const char *b, struct why *why)
{
	return why_set(why, -EINVAL, "options %s and %s contradict each other; keep one", a, b);
}

/* Leaves "a/b": no slash at the ends, no empty, "." or ".." component. */
static int normalize_subdir(char *subdir, struct why *why)
{
	size_t n = strlen(subdir), start = strspn(subdir, "/");

	while (n > start && subdir[n - 1] == '/')
		n--;
	memmove(subdir, subdir + start, n - start);
	subdir[n - start] = '\0';
	for (const char *part = subdir;; part += strcspn(part, "/") + 1) {
		size_t length = strcspn(part, "/");

		if (!length || (length <= 2 && strspn(part, ".") >= length))
			return why_set(why, -EINVAL,
				"option subdir=%s: give a path below SOURCE without empty, . or "
				".. components",
				subdir);
		if (!part[length])
			return 0;
	}
}

static int check_addressing(const char *value, struct why *why)
{
	if (!strcmp(value, "auto") || !strcmp(value, "path") || !strcmp(value, "virtual"))
		return 0;
	return why_set(why, -EINVAL, "option addressing=%s: give auto, path or virtual", value);
}

static int check_together(struct parse *parse, struct why *why)
{
	static const char *const pairs[][2] = {
		{"immutable", "ttl"},
		{"immutable", "strict"},
		{"anonymous", "credentials"},
		{"anonymous", "aws_profile"},
	};
	struct volume_options *options = &parse->options;
	int r = 0;

	for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
		if (was_given(parse, pairs[i][0]) && was_given(parse, pairs[i][1]))
			return contradiction(pairs[i][0], pairs[i][1], why);
	}
	if (options->addressing)
		r = check_addressing(options->addressing, why);
	if (!r && options->subdir)
		r = normalize_subdir(options->subdir, why);
	if (!r && was_given(parse, "immutable"))
		options->ttl_ms = UINT64_MAX;
	if (!r && !options->timeout_ms)
		r = why_set(why, -EINVAL, "option timeout=0: give a duration like 5m");
	return r;
}

/* Cuts the first option off *rest, in place: a comma in it is written "\,". */
static char *next_option(char **rest)
{
	char *start = *rest, *from = start, *to = start;

	while (*from && *from != ',') {
		if (from[0] == '\\' && from[1] == ',')
			from++;
		*to++ = *from++;
	}
	*rest = *from ? from + 1 : from;
	*to = '\0';
	return start;
}

int volume_options_parse(const char *text, struct volume_options *ret, struct why *why)
{
	struct parse parse = {0};
	_cleanup_(freep) char *copy = NULL;
	char *rest;
	int r = 0;

	set_defaults(&parse.options);
	if (text && strlen(text) > TEXT_MAX)
		return why_set(why, -EINVAL, "the options are longer than %d bytes", TEXT_MAX);
	copy = rest = strdup(text ? text : "");
	if (!copy)
		return why_set(why, -ENOMEM, "out of memory");
	while (!r && *rest) {
		char *name = next_option(&rest);
		char *value = strchr(name, '=');

		if (value)
			*value++ = '\0';
		if (*name || value)
			r = set_option(&parse, name, value, why);
	}
	if (!r)
		r = check_together(&parse, why);
	if (r) {
		volume_options_free(&parse.options);
		return r;
	}
	*ret = parse.options;
	return 0;
}

void volume_options_free(struct volume_options *options)
{
	for (size_t i = 0; i < N_OPTIONS; i++) {
		if (table[i].kind == STRING)
			free(*(char **)field(options, &table[i]));
	}
	*options = (struct volume_options){0};
}

static void add_string(struct buf *text, const char *value)
{
	for (; *value; value++) {
		if (*value == ',')
			buf_add(text, "\\", 1);
		buf_add(text, value, 1);
	}
}

static void add_value(struct buf *text, const struct option *option, void *at)
{
	switch (option->kind) {
	case STRING:
		add_string(text, *(char **)at);
		return;
	case DURATION:
		buf_printf(text, "%llums", (unsigned long long)*(uint64_t *)at);
		return;
	case SIZE:
		buf_printf(text, "%llu", (unsigned long long)*(uint64_t *)at);
		return;
	case MODE:
		buf_printf(text, "%03o", *(unsigned *)at);
		return;
	default:
		buf_printf(text, "%u", *(unsigned *)at);
		return;
	}
}

static size_t field_size(enum kind kind)
{
	switch (kind) {
	case FLAG:
		return sizeof(bool);
	case NUMBER:
	case ID:
	case MODE:
		return sizeof(unsigned);
	default:
		return sizeof(uint64_t);
	}
}

static void add_option(struct buf *text, const struct option *option,
	struct volume_options *options, struct volume_options *defaults)
{
	void *at = field(options, option);

	if (option->kind >= IGNORED || option->of_daemon ||
		!memcmp(at, field(defaults, option), field_size(option->kind)))
		return;
	if (text->size)
		buf_add(text, ",", 1);
	if (at == &options->ttl_ms && options->ttl_ms == UINT64_MAX) {
		buf_add_string(text, "immutable");
		return;
	}
	buf_add_string(text, option->name);
	if (option->kind == FLAG)
		return;
	buf_add(text, "=", 1);
	add_value(text, option, at);
}

void volume_options_origin(
	const struct volume_options *options, const char *source, struct origin_config *ret)
{
	*ret = (struct origin_config){
		.source = source,
		.endpoint = options->endpoint,
		.region = options->region,
		.addressing = options->addressing,
		.aws_profile = options->aws_profile,
		.credentials = options->credentials,
		.ca = options->ca,
		.anonymous = options->anonymous,
		.timeout_ms = options->timeout_ms,
		.connections = options->connections,
		.bandwidth_bytes = options->bandwidth_bytes,
	};
}

char *volume_options_normal(const struct volume_options *options)
{
	struct volume_options defaults, copy = *options;
	struct buf text;
	char *normal;

	set_defaults(&defaults);
	buf_init(&text, 2 * TEXT_MAX);
	buf_add_string(&text, "");
	for (size_t i = 0; i < N_OPTIONS; i++)
		add_option(&text, &table[i], &copy, &defaults);
	normal = text.size ? buf_steal(&text) : strdup("");
	buf_free(&text);
	return normal;
}
