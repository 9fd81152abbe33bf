#include "colour.h"

#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

static bool colours(void)
{
	const char *no = getenv("NO_COLOR");

	return isatty(STDOUT_FILENO) && !(no && *no);
}

const char *colour_bold(void)
{
	return colours() ? "\033[1m" : "";
}

const char *colour_red(void)
{
	return colours() ? "\033[31m" : "";
}

const char *colour_plain(void)
{
	return colours() ? "\033[0m" : "";
}
