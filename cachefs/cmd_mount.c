#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/units.h"
#include "client/client.h"
#include "command.h"
#include "defaults.h"
#include "fs/options.h"
#include "origin/environment.h"
#include "origin/origin.h"
#include "paths.h"
#include "start.h"

const char mount_help[] =
	"Usage: cachefs mount [-o OPT[,OPT…]] [--control SOCK] SOURCE MOUNTPOINT\n"
	"Shows a prefix of an object store as a directory. Starts the node's daemon if none runs,\n"
	"else joins it, so that all mounts share one cache.\n"
	"\n"
	"SOURCE: s3://bucket[/prefix], hf://org/repo[@revision][/path], http://host/path/,\n"
	"https://host/path/, file:///dir\n"
	"MOUNTPOINT: an empty directory\n"
	"\n"
	"  -o, --options OPT,…   a comma in a value is written \\,\n"
	"      ro                read-only, as all volumes of this version are\n"
	"      endpoint=URL region=NAME addressing=auto|path|virtual\n"
	"      aws_profile=NAME credentials=FILE anonymous ca=FILE\n"
	"      ttl=60s           how long listings and attributes are believed\n"
	"      immutable         for ever\n"
	"      strict            asks the origin at every open\n"
	"      negative_ttl=5s   how long a missing name is believed\n"
	"      subdir=PATH       mount only what is below it\n"
	"      uid= gid= umask=022 allow_other\n"
	"      protect           who comes before the mount gets an error, and writes nothing "
	"below it\n"
	"      readahead=4M connections=32 bandwidth=BYTES/S timeout=5m\n"
	"      store=DIR size=500G   of the daemon, when this mount starts it\n"
	"      --control SOCK    the daemon's control socket\n"
	"  -h, --help            this text\n"
	"      --version\n"
	"\n"
	"Environment: CACHEFS_STORE (/var/cache/cachefs), CACHEFS_SIZE (80%), CACHEFS_CONTROL\n"
	"(/run/cachefs/control.sock); AWS_*, HF_* and ~/.aws as the daemon finds them at its\n"
	"start: what this shell has set otherwise, and would count, is refused.\n"
	"\n"
	"Example:\n"
	"  cachefs mount -o endpoint=http://minio:9000 s3://models/llama /mnt/llama\n"
	"In fstab:\n"
	"  s3://models/llama /mnt/llama fuse.cachefs _netdev,endpoint=http://minio:9000 0 0\n";

/* A daemon that is just ending is waited for this often. */
#define TRIES_MAX   3
#define END_WAIT_MS 30000

struct mount_request {
	struct client client;
	const char *source;
	char *mountpoint;
	char *options;      /* normal form, file names absolute */
	char *environment;  /* what of this shell's would count: origin/environment.h */
	char *subdir;       /* the option, or NULL */
	char *store, *size; /* as given by -o, store absolute; or NULL */
};

static void free_request(struct mount_request *request)
{
	free(request->mountpoint);
	free(request->options);
	free(request->environment);
	free(request->subdir);
	free(request->store);
	free(request->size);
}

static int resolve(char **path, struct why *why)
{
	char *resolved;

	if (!*path)
		return 0;
	resolved = path_resolved(*path);
	if (!resolved)
		return why_set(
			why, -errno, "can't make %s an absolute path: %s", *path, strerror(errno));
	free(*path);
	*path = resolved;
	return 0;
}

static int take_environment(
	struct mount_request *request, const struct volume_options *options, struct why *why)
{
	struct origin_config config;
	int r;

	volume_options_origin(options, request->source, &config);
	r = origin_environment_say(&config, &request->environment);
	return r ? why_set(why, r, "can't look at the environment: %s", strerror(-r)) : 0;
}

/* The daemon has another working directory, so file names become absolute here. */
static int take_options(struct mount_request *request, const char *text, struct why *why)
{
	struct volume_options options;
	int r = volume_options_parse(text, &options, why);

	if (r)
		return r;
	r = resolve(&options.credentials, why);
	if (!r)
		r = resolve(&options.ca, why);
	if (!r)
		r = resolve(&options.store, why);
	if (!r)
		r = take_environment(request, &options, why);
	if (!r) {
		request->options = volume_options_normal(&options);
		request->subdir = steal_pointer(&options.subdir);
		request->store = steal_pointer(&options.store);
		request->size = steal_pointer(&options.size);
		if (!request->options)
			r = why_set(why, -ENOMEM, "no memory");
	}
	volume_options_free(&options);
	return r;
}

static json_t *request_json(const struct mount_request *request)
{
	json_t *body = json_pack("{s:s, s:s, s:s}", "source", request->source, "mountpoint",
		request->mountpoint, "options", request->options);

	if (*request->environment)
		json_object_set_new(body, "environment", json_string(request->environment));
	if (request->store)
		json_object_set_new(body, "store", json_string(request->store));
	if (request->size)
		json_object_set_new(body, "size", json_string(request->size));
	return body;
}

/* Not refused: the file system may grow, and what finds no room is passed on. */
static void warn_of_size(const char *store, const char *size)
{
	uint64_t whole, bytes;
	struct statvfs fs;
	char has[16];

	if (!size || statvfs(store, &fs) < 0)
		return;
	whole = (uint64_t)fs.f_blocks * fs.f_frsize;
	if (parse_size_of(size, whole, &bytes) || bytes <= whole)
		return;
	format_size(whole, has, sizeof has);
	fprintf(stderr,
		"cachefs: warning: size=%s is more than the file system of %s has, which is %s\n",
		size, store, has);
}

static int start(const struct mount_request *request, struct why *why)
{
	const char *size = request->size ? request->size : default_size();
	int r;
	_cleanup_(freep) char *store =
		request->store ? strdup(request->store) : path_resolved(default_store());

	if (!store)
		return why_set(why, -errno, "can't make %s an absolute path: %s", default_store(),
			strerror(errno));
	r = start_daemon(&request->client, store, size, why);
	if (!r)
		warn_of_size(store, size);
	return r;
}

/* Takes answer. What has nothing yet may be filled later, or be mistyped. */
static void warn(const struct mount_request *request, json_t *answer)
{
	const char *of = request->subdir ? " of " : "";
	const char *subdir = request->subdir ? request->subdir : "";

	if (json_is_true(json_object_get(answer, "empty")))
		fprintf(stderr,
			"cachefs: warning: %s%s%s%s has nothing in it yet: if that is not so, "
			"check its spelling. It is mounted, and names show up within ttl=\n",
			request->subdir ? "subdir=" : "", subdir, of, request->source);
	if (json_is_true(json_object_get(answer, "unlisted")))
		fprintf(stderr,
			"cachefs: warning: %s%s%s%s: the server shows no names there: what is "
			"below it can only be opened by its path. If you expect names, check the "
			"spelling. It is mounted\n",
			request->subdir ? "subdir=" : "", subdir, of, request->source);
	json_decref(answer);
}

static int ask(const struct mount_request *request, struct why *why)
{
	int r = -ESHUTDOWN;

	for (int i = 0; i < TRIES_MAX; i++) {
		json_t *body = request_json(request), *answer = NULL;

		if (!body)
			return why_set(
				why, -EINVAL, "SOURCE, MOUNTPOINT and options must be UTF-8 text");
		r = client_call(&request->client, "POST", "/v1/mount", body, &answer, why);
		if (!r)
			warn(request, answer);
		if (r == -ECONNRESET && path_is_mount(request->mountpoint))
			return 0; /* it had come so far */
		if (r == -ECONNRESET)
			continue;
		if (r == -ESHUTDOWN)
			r = client_wait_end(&request->client, END_WAIT_MS);
		else if (!client_no_daemon(r))
			return r;
		if (r == -ETIMEDOUT)
			return why_set(why, r, "the daemon on %s is ending, but does not end",
				request->client.socket);
		r = start(request, why);
		if (r && r != -ESHUTDOWN)
			return r;
		r = -ESHUTDOWN;
	}
	return why_set(why, r, "the daemon on %s ended each time before it mounted",
		request->client.socket);
}

static int mount_source(
	const char *source, const char *mountpoint, const char *options, const char *socket)
{
	_cleanup_(free_request) struct mount_request request = {
		.client = {client_socket(socket)}, .source = source};
	struct why why;

	if (take_options(&request, options, &why)) {
		command_failed(&why);
		return STATUS_USAGE;
	}
	request.mountpoint = path_of_mountpoint(mountpoint);
	if (!request.mountpoint) {
		why_set(&why, -errno, "the mountpoint %s can't be found: %s", mountpoint,
			strerror(errno));
		return command_failed(&why);
	}
	return ask(&request, &why) ? command_failed(&why) : STATUS_DONE;
}

int cmd_mount(const struct command *command, int argc, char **argv)
{
	static const struct option long_options[] = {
		{"options", required_argument, NULL, 'o'}, COMMON_OPTIONS};
	_cleanup_(buf_free) struct buf options;
	const char *socket = NULL;
	int c;

	buf_init(&options, 1 << 20);
	while ((c = getopt_long(argc, argv, "ho:", long_options, NULL)) != -1) {
		if (c == 'o')
			command_add_options(&options, optarg);
		else if (c == OPTION_CONTROL)
			socket = optarg;
		else
			return command_other_option(command, c);
	}
	if (argc - optind != 2)
		return command_misused(command, "mount takes SOURCE and MOUNTPOINT");
	return mount_source(argv[optind], argv[optind + 1], buf_string(&options), socket);
}

/* True for what fstab says to mount(8) and not to us. */
static bool is_for_mount(const char *option, size_t size)
{
	static const char *const names[] = {"rw", "dev", "nodev", "suid", "nosuid", "exec", "auto",
		"noauto", "user", "nouser", "users", "owner", "group", "_netdev", "nofail",
		"defaults", "async", "sync", "dirsync", "atime", "noatime", "relatime",
		"norelatime", "strictatime", "nostrictatime", "lazytime", "nolazytime", "diratime",
		"nodiratime", "silent", "loud", "iversion", "noiversion"};

	if (!size || !strncasecmp(option, "x-", 2) || !strncmp(option, "comment=", 8))
		return true;
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		if (strlen(names[i]) == size && !memcmp(names[i], option, size))
			return true;
	}
	return false;
}

static void add_helper_options(struct buf *options, const char *text)
{
	while (*text) {
		size_t size = 0;

		while (text[size] && text[size] != ',')
			size += text[size] == '\\' && text[size + 1] == ',' ? 2 : 1;
		if (!is_for_mount(text, size)) {
			if (options->size)
				buf_add_string(options, ",");
			buf_add(options, text, size);
		}
		text += size + (text[size] == ',');
	}
}

/* mount(8): mount.fuse.cachefs SOURCE DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE] */
int cmd_mount_helper(const struct command *command, int argc, char **argv)
{
	static const struct option long_options[] = {COMMON_OPTIONS};
	_cleanup_(buf_free) struct buf options;
	bool fake = false;
	int c;

	buf_init(&options, 1 << 20);
	while ((c = getopt_long(argc, argv, "hsfnvN:o:t:", long_options, NULL)) != -1) {
		if (c == 'o')
			add_helper_options(&options, optarg);
		else if (c == 'f')
			fake = true;
		else if (!strchr("snvt", c))
			return command_other_option(command, c);
	}
	if (argc - optind != 2)
		return command_misused(command, "mount takes SOURCE and MOUNTPOINT");
	if (fake)
		return STATUS_DONE;
	return mount_source(argv[optind], argv[optind + 1], buf_string(&options), NULL);
}
