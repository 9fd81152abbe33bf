#include "base/percent.h"

#include <ctype.h>
#include <errno.h>

static bool is_unreserved(unsigned char c)
{
	return (c < 0x80 && isalnum(c)) || c == '-' || c == '.' || c == '_' || c == '~';
}

void percent_encode(struct buf *out, const char *bytes, size_t n, bool keep_slashes)
{
	static const char digits[] = "0123456789ABCDEF";

	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)bytes[i];
		char escape[3] = {'%', digits[c >> 4], digits[c & 15]};

		if (is_unreserved(c) || (keep_slashes && c == '/'))
			buf_add(out, &bytes[i], 1);
		else
			buf_add(out, escape, sizeof escape);
	}
}

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int percent_decode(struct buf *out, const char *text, size_t n, bool plus_is_blank)
{
	for (size_t i = 0; i < n; i++) {
		char c = text[i];

		if (c == '%') {
			int high = i + 2 < n ? digit(text[i + 1]) : -1;
			int low = i + 2 < n ? digit(text[i + 2]) : -1;

			if (high < 0 || low < 0)
				return -EINVAL;
			c = (char)(high << 4 | low);
			i += 2;
		} else if (c == '+' && plus_is_blank) {
			c = ' ';
		}
		buf_add(out, &c, 1);
	}
	return out->error;
}
