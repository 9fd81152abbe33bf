#include "credentials/words.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* One word from *in to *out, both moved on. False: a quote is not closed. */
static bool take_word(const char **in, char **out)
{
	const char *p = *in;
	char quote = 0;

	for (; *p && (quote || !strchr(" \t\r\n", *p)); p++) {
		if (!quote && (*p == '"' || *p == '\'')) {
			quote = *p;
		} else if (quote && *p == quote) {
			quote = 0;
		} else if (*p == '\\' && quote != '\'' && p[1] &&
			   (!quote || strchr("\"\\$`", p[1]))) {
			*(*out)++ = *++p;
		} else {
			*(*out)++ = *p;
		}
	}
	*(*out)++ = '\0';
	*in = p;
	return !quote;
}

int words_split(const char *line, char ***ret)
{
	size_t table = (WORDS_MAX + 1) * sizeof(char *);
	/* Each word is as long as in the line at most, and ends where a blank was or the line ended. */
	char **words = calloc(1, table + strlen(line) + 2);
	char *out;
	size_t n = 0;
	int r = 0;

	if (!words)
		return -ENOMEM;
	out = (char *)words + table;
	for (line += strspn(line, " \t\r\n"); !r && *line; line += strspn(line, " \t\r\n")) {
		if (n == WORDS_MAX) {
			r = -E2BIG;
			break;
		}
		words[n++] = out;
		if (!take_word(&line, &out))
			r = -EINVAL;
	}
	if (!n)
		r = -EINVAL;
	if (r)
		free(words);
	else
		*ret = words;
	return r;
}
