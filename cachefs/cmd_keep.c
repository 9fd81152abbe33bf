/* pin, unpin and evict: the same request and the same answer with other words. */
#include <stdio.h>
#include <stdlib.h>

#include "base/units.h"
#include "client/client.h"
#include "command.h"

const char pin_help[] =
	"Usage: cachefs pin [--ttl 24h] [--json] [--control SOCK] PATH|SOURCE…\n"
	"Keeps files from being evicted. What is not cached yet is kept once it has been read.\n"
	"A directory stands for all files below it, a SOURCE (s3://…) for everything of the "
	"mounted\n"
	"volumes below that prefix.\n"
	"\n"
	"      --ttl TIME    only for so long\n"
	"      --json\n"
	"      --control SOCK\n"
	"  -h, --help\n"
	"      --version\n"
	"\n"
	"Example:\n"
	"  cachefs pin --ttl 24h /mnt/llama/*.safetensors\n";

const char unpin_help[] = "Usage: cachefs unpin [--json] [--control SOCK] PATH|SOURCE…\n"
			  "Lets files be evicted again that `cachefs pin` keeps.\n"
			  "\n"
			  "      --json\n"
			  "      --control SOCK\n"
			  "  -h, --help\n"
			  "      --version\n"
			  "\n"
			  "Example:\n"
			  "  cachefs unpin s3://models/llama\n";

const char evict_help[] = "Usage: cachefs evict [--json] [--control SOCK] PATH|SOURCE…\n"
			  "Gives the space of cached files back. Files that are open or mapped, "
			  "and pinned ones, are\n"
			  "kept. The origin is not touched.\n"
			  "Exit status 1 if something named was not there, or in use.\n"
			  "\n"
			  "      --json\n"
			  "      --control SOCK\n"
			  "  -h, --help\n"
			  "      --version\n"
			  "\n"
			  "Example:\n"
			  "  cachefs evict /mnt/llama\n";

/* Returns true if all went as asked. */
static bool print_kept(const json_t *result, const char *word)
{
	unsigned long long objects = json_number(result, "objects");
	const char *error = json_text(result, "error");
	char size[16];

	if (*error)
		fprintf(stderr, "cachefs: %s\n", error);
	if (*error && !objects)
		return false;
	format_size(json_number(result, "bytes"), size, sizeof size);
	printf("%s: %llu %s %s, %s\n", json_text(result, "target"), objects,
		objects == 1 ? "object" : "objects", word, size);
	return !*error;
}

static bool print_evicted(const json_t *result, const char *word)
{
	const char *error = json_text(result, "error");
	unsigned long long objects = json_number(result, "objects");
	unsigned long long in_use = json_number(result, "in_use");
	unsigned long long pinned = json_number(result, "pinned");
	char size[16];

	(void)word;
	if (*error)
		fprintf(stderr, "cachefs: %s\n", error);
	if (*error && !objects && !in_use && !pinned)
		return false;
	format_size(json_number(result, "bytes"), size, sizeof size);
	printf("%s: %llu %s, %s freed; kept: %llu in use, %llu pinned\n",
		json_text(result, "target"), objects, objects == 1 ? "object" : "objects", size,
		in_use, pinned);
	return !*error && !in_use;
}

static bool result_good(const json_t *result)
{
	return !json_object_get(result, "error") && !json_number(result, "in_use");
}

/* Of a pin's answer. */
static void warn_of_pins(const json_t *answer)
{
	unsigned long long pinned = json_number(answer, "pinned_bytes");
	unsigned long long capacity = json_number(answer, "capacity_bytes");
	char has[16], needs[16];

	if (pinned <= capacity)
		return;
	format_size(pinned, needs, sizeof needs);
	format_size(capacity, has, sizeof has);
	fprintf(stderr,
		"cachefs: warning: pinned files are %s in all, and the store holds %s: not all of "
		"them will be kept, and nothing else once it is full; unpin some, or give the "
		"daemon a larger size\n",
		needs, has);
}

/* Takes answer. */
static int show(json_t *answer, bool json, bool (*print)(const json_t *result, const char *word),
	const char *word)
{
	bool good = true;
	json_t *result;
	size_t i;

	json_array_foreach(json_object_get(answer, "targets"), i, result) good &=
		json ? result_good(result) : print(result, word);
	warn_of_pins(answer);
	if (json)
		command_print_json(answer);
	else
		json_decref(answer);
	return good ? STATUS_DONE : STATUS_FAILED;
}

struct action {
	const char *url;
	bool takes_ttl;
	bool (*print)(const json_t *result, const char *word);
	const char *word;
};

struct arguments {
	struct client client;
	bool json;
	uint64_t ttl_ms; /* 0: none */
};

/* STATUS_DONE to go on, with optind at the targets; else *ret_end is set. */
static int parse(const struct command *command, const struct action *action, int argc, char **argv,
	struct arguments *arguments, bool *ret_end)
{
	enum { TTL = OPTION_OWN };
	static const struct option plain[] = {
		{"json", no_argument, NULL, OPTION_JSON}, COMMON_OPTIONS};
	static const struct option with_ttl[] = {{"ttl", required_argument, NULL, TTL},
		{"json", no_argument, NULL, OPTION_JSON}, COMMON_OPTIONS};
	int c;

	*ret_end = true;
	while ((c = getopt_long(argc, argv, "h", action->takes_ttl ? with_ttl : plain, NULL)) !=
		-1) {
		if (c == OPTION_JSON)
			arguments->json = true;
		else if (c == OPTION_CONTROL)
			arguments->client.socket = optarg;
		else if (c != TTL)
			return command_other_option(command, c);
		else if (parse_duration(optarg, &arguments->ttl_ms) || !arguments->ttl_ms)
			return command_misused(
				command, "--ttl %s is no duration like 90s, 10m or 24h", optarg);
	}
	if (optind == argc)
		return command_misused(
			command, "%s takes at least one PATH or SOURCE", command->name);
	*ret_end = false;
	return STATUS_DONE;
}

static int act(const struct command *command, const struct action *action, int argc, char **argv)
{
	struct arguments arguments = {.client = {client_socket(NULL)}};
	json_t *body, *answer;
	struct why why;
	bool end;
	int status = parse(command, action, argc, argv, &arguments, &end);

	if (end)
		return status;
	body = command_targets(argc - optind, argv + optind, &why);
	if (!body)
		return command_failed(&why);
	if (arguments.ttl_ms)
		json_object_set_new(body, "ttl_ms", json_integer((json_int_t)arguments.ttl_ms));
	if (client_call(&arguments.client, "POST", action->url, body, &answer, &why))
		return command_failed(&why);
	return show(answer, arguments.json, action->print, action->word);
}

int cmd_pin(const struct command *command, int argc, char **argv)
{
	static const struct action pin = {"/v1/pin", true, print_kept, "pinned"};

	return act(command, &pin, argc, argv);
}

int cmd_unpin(const struct command *command, int argc, char **argv)
{
	static const struct action unpin = {"/v1/unpin", false, print_kept, "unpinned"};

	return act(command, &unpin, argc, argv);
}

int cmd_evict(const struct command *command, int argc, char **argv)
{
	static const struct action evict = {"/v1/evict", false, print_evicted, "evicted"};

	return act(command, &evict, argc, argv);
}
