#include <stdio.h>

#include "base/units.h"
#include "client/client.h"
#include "command.h"

const char verify_help[] =
	"Usage: cachefs verify [--repair] [--json] [--control SOCK] PATH|SOURCE…|--all\n"
	"Checks every stored byte against its checksum. A bad chunk is dropped, so that the next "
	"read\n"
	"fetches it from the origin; --repair fetches it at once.\n"
	"Exit status 1 if a bad chunk was found and not repaired, or a stored file was "
	"unreadable.\n"
	"\n"
	"      --all         everything in the store, mounted or not; with --repair, what is "
	"mounted\n"
	"                    is repaired\n"
	"      --repair\n"
	"      --json\n"
	"      --control SOCK\n"
	"  -h, --help\n"
	"      --version\n"
	"\n"
	"Example:\n"
	"  cachefs verify --repair /mnt/llama\n";

static bool result_good(const json_t *result)
{
	return !json_object_get(result, "error") && !json_number(result, "unreadable_objects") &&
	       json_number(result, "bad_chunks") <= json_number(result, "repaired_chunks");
}

static void print_result(const json_t *result)
{
	const char *target = json_text(result, "target"), *error = json_text(result, "error");
	unsigned long long objects = json_number(result, "objects");
	char size[16];

	if (*error)
		fprintf(stderr, "cachefs: %s\n", error);
	if (*error && !objects)
		return;
	format_size(json_number(result, "bytes"), size, sizeof size);
	printf("%s: %llu %s, %llu chunks, %s checked, %llu bad, %llu repaired",
		*target ? target : "store", objects, objects == 1 ? "object" : "objects",
		json_number(result, "chunks"), size, json_number(result, "bad_chunks"),
		json_number(result, "repaired_chunks"));
	if (json_number(result, "unreadable_objects"))
		printf(", %llu objects unreadable", json_number(result, "unreadable_objects"));
	if (json_number(result, "forgotten_objects"))
		printf(", %llu records without a file dropped",
			json_number(result, "forgotten_objects"));
	if (json_number(result, "stray_files"))
		printf(", %llu stray files removed", json_number(result, "stray_files"));
	if (*json_text(result, "first_bad"))
		printf(", first bad: %s", json_text(result, "first_bad"));
	putchar('\n');
}

/* Takes answer. */
static int show(json_t *answer, bool json)
{
	bool good = true;
	json_t *result;
	size_t i;

	json_array_foreach(json_object_get(answer, "results"), i, result)
	{
		good &= result_good(result);
		if (!json)
			print_result(result);
	}
	if (json)
		command_print_json(answer);
	else
		json_decref(answer);
	return good ? STATUS_DONE : STATUS_FAILED;
}

int cmd_verify(const struct command *command, int argc, char **argv)
{
	enum { ALL = OPTION_OWN, REPAIR };
	static const struct option long_options[] = {{"all", no_argument, NULL, ALL},
		{"repair", no_argument, NULL, REPAIR}, {"json", no_argument, NULL, OPTION_JSON},
		COMMON_OPTIONS};
	struct client client = {client_socket(NULL)};
	bool all = false, repair = false, json = false;
	json_t *body, *answer;
	struct why why;
	int c;

	while ((c = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
		if (c == ALL)
			all = true;
		else if (c == REPAIR)
			repair = true;
		else if (c == OPTION_JSON)
			json = true;
		else if (c == OPTION_CONTROL)
			client.socket = optarg;
		else
			return command_other_option(command, c);
	}
	if (all == (optind < argc))
		return command_misused(command, "verify takes either PATHs and SOURCEs, or --all");
	body = all ? json_pack("{s:b}", "all", 1)
		   : command_targets(argc - optind, argv + optind, &why);
	if (!body)
		return command_failed(&why);
	if (repair)
		json_object_set_new(body, "repair", json_true());
	if (client_call(&client, "POST", "/v1/verify", body, &answer, &why))
		return command_failed(&why);
	return show(answer, json);
}
