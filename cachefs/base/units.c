#include "base/units.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A non-negative decimal number with at most one point, without sign, exponent or white space. */
static int parse_number(const char *text, double *ret, const char **ret_rest)
{
	size_t digits = strspn(text, "0123456789");
	size_t length = digits;
	char number[32];

	if (text[length] == '.') {
		size_t fraction = strspn(text + length + 1, "0123456789");

		digits += fraction;
		length += 1 + fraction;
	}
	if (!digits || length >= sizeof number)
		return -EINVAL;
	memcpy(number, text, length);
	number[length] = '\0';
	*ret = strtod(number, NULL);
	*ret_rest = text + length;
	return 0;
}

static int scale(double number, double unit, uint64_t *ret)
{
	double value = number * unit;

	if (!(value < 9.2e18))
		return -ERANGE;
	*ret = (uint64_t)llround(value);
	return 0;
}

int parse_size(const char *text, uint64_t *ret_bytes)
{
	static const char letters[] = "KMGTP";
	const char *rest, *letter;
	double number;
	int exponent, r = parse_number(text, &number, &rest);

	if (r)
		return r;
	if (!*rest || !strcmp(rest, "B"))
		return scale(number, 1, ret_bytes);
	letter = strchr(letters, toupper((unsigned char)*rest));
	if (!letter)
		return -EINVAL;
	exponent = (int)(letter - letters) + 1;
	if (!rest[1] || !strcmp(rest + 1, "iB"))
		return scale(number, pow(1024, exponent), ret_bytes);
	if (!strcmp(rest + 1, "B"))
		return scale(number, pow(1000, exponent), ret_bytes);
	return -EINVAL;
}

int parse_size_of(const char *text, uint64_t whole_bytes, uint64_t *ret_bytes)
{
	const char *rest;
	double number;

	if (!parse_number(text, &number, &rest) && !strcmp(rest, "%"))
		return number > 100 ? -ERANGE : scale(number / 100, (double)whole_bytes, ret_bytes);
	return parse_size(text, ret_bytes);
}

int parse_duration(const char *text, uint64_t *ret_ms)
{
	static const struct {
		const char *name;
		double ms;
	} units[] = {{"", 1e3}, {"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"h", 3600e3}, {"d", 86400e3}};
	const char *rest;
	double number;
	int r = parse_number(text, &number, &rest);

	if (r)
		return r;
	for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
		if (!strcmp(rest, units[i].name))
			return scale(number, units[i].ms, ret_ms);
	}
	return -EINVAL;
}

const char *format_size(uint64_t bytes, char *text, size_t size)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
	double value = (double)bytes;
	size_t unit = 0;

	while (value >= 1024 && unit + 1 < sizeof units / sizeof units[0]) {
		value /= 1024;
		unit++;
	}
	snprintf(text, size, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
	return text;
}
