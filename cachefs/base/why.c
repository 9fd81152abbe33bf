#include "base/why.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/check.h"

int(why_set)(struct why *why, int error, const char *format, ...)
{
	va_list args;

	check(error < 0);
	if (why) {
		va_start(args, format);
		vsnprintf(why->text, sizeof why->text, format, args);
		va_end(args);
	}
	return error;
}
