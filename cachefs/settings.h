/* settings: what serve and hold are told by command line, file and environment. */
#ifndef SETTINGS_H
#define SETTINGS_H

#include "base/why.h"
#include "command.h"

/* As said by one source. NULL: not said. */
struct settings {
	char *store, *size, *control, *metrics;
};

/* Zero at first. The command line goes before the file, and the environment after both. */
struct settings_sources {
	struct settings typed, file;
};

struct settings_result {
	char *store, *socket;       /* absolute, the result's own */
	const char *size, *metrics; /* of the sources or the environment; may be NULL */
};

enum {
	SETTINGS_STORE = OPTION_OWN,
	SETTINGS_SIZE,
	SETTINGS_METRICS,
	SETTINGS_CONFIG,
	SETTINGS_OWN
};

/* For the table of long options; a command's own start at SETTINGS_OWN. */
#define SETTINGS_OPTIONS                                                                           \
	{"store", required_argument, NULL, SETTINGS_STORE},                                        \
		{"size", required_argument, NULL, SETTINGS_SIZE},                                  \
		{"metrics", required_argument, NULL, SETTINGS_METRICS},                            \
	{                                                                                          \
		"config", required_argument, NULL, SETTINGS_CONFIG                                 \
	}

/* Takes what getopt_long returned. 1: the option is none of ours; 0; -errno with why. */
int settings_take(struct settings_sources *sources, int option, const char *value, struct why *why);
/* 0 or -errno with why; ret is to be freed on success. */
int settings_resolve(
	const struct settings_sources *sources, struct settings_result *ret, struct why *why);
void settings_free(struct settings_sources *sources);
void settings_result_free(struct settings_result *result);

#endif
