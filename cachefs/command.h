/* command: what the sub-commands share. Each is one cmd_NAME.c; main.c has their table. */
#ifndef COMMAND_H
#define COMMAND_H

#include <getopt.h>
#include <stdbool.h>

#include <jansson.h>

#include "base/buf.h"
#include "base/why.h"

enum { STATUS_DONE, STATUS_FAILED, STATUS_USAGE };

struct command {
	const char *name;
	const char *help; /* the text of --help */
	/* Returns the exit status. */
	int (*run)(const struct command *command, int argc, char **argv);
};

int cmd_mount(const struct command *command, int argc, char **argv);
int cmd_mount_helper(const struct command *command, int argc, char **argv);
int cmd_umount(const struct command *command, int argc, char **argv);
int cmd_status(const struct command *command, int argc, char **argv);
int cmd_top(const struct command *command, int argc, char **argv);
int cmd_pin(const struct command *command, int argc, char **argv);
int cmd_unpin(const struct command *command, int argc, char **argv);
int cmd_evict(const struct command *command, int argc, char **argv);
int cmd_verify(const struct command *command, int argc, char **argv);
int cmd_serve(const struct command *command, int argc, char **argv);
int cmd_hold(const struct command *command, int argc, char **argv);
int cmd_upgrade(const struct command *command, int argc, char **argv);
int cmd_doctor(const struct command *command, int argc, char **argv);

extern const char mount_help[], umount_help[], status_help[], top_help[], pin_help[], unpin_help[],
	evict_help[], verify_help[], serve_help[], hold_help[], upgrade_help[], doctor_help[];

/* What getopt_long returns for options without a letter. */
enum {
	OPTION_CONTROL = 256,
	OPTION_JSON,
	OPTION_VERSION,
	OPTION_OWN, /* a command's own options start here */
};

/* For every command's table of long options. */
#define COMMON_OPTIONS                                                                             \
	{"control", required_argument, NULL, OPTION_CONTROL}, {"help", no_argument, NULL, 'h'},    \
		{"version", no_argument, NULL, OPTION_VERSION},                                    \
	{                                                                                          \
	}

/* --help, --version and whatever is no option: prints what is due and returns the exit status. */
int command_other_option(const struct command *command, int option);
/* "cachefs: sentence" on standard error. Returns STATUS_FAILED. */
int command_failed(const struct why *why);
/* The same with a hint at --help. Returns STATUS_USAGE. */
int command_misused(const struct command *command, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* A descriptor that was inherited; from now on it is closed at exec. False: it is not open. */
bool command_fd(const char *text, int *ret);

/* One more -o: several are one list. */
void command_add_options(struct buf *options, const char *more);
/* {"targets": […]} of the arguments, absolute where they are paths; NULL with why. */
json_t *command_targets(int count, char **arguments, struct why *why);
/* Prints value in one line, and drops it. */
void command_print_json(json_t *value);
/* An integer member, 0 when there is none. */
unsigned long long json_number(const json_t *value, const char *name);
/* A string member, "" when there is none. */
const char *json_text(const json_t *value, const char *name);

#endif
