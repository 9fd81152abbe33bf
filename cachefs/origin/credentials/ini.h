/*
 * ini: the ini files ~/.aws/config and ~/.aws/credentials.
 *
 * Lines that begin with white space continue a nested setting and are passed over. Any thread.
 */
#ifndef CREDENTIALS_INI_H
#define CREDENTIALS_INI_H

#include <stdbool.h>
#include <stdint.h>

struct ini; /* one file, parsed */

/* Of text, which is copied. -EINVAL with *ret_line when a line is neither section nor setting. */
int ini_parse(const char *text, struct ini **ret, unsigned *ret_line);
/* NULL is allowed. Its memory is wiped. */
void ini_free(struct ini *ini);
/* The last value of name in [section]; NULL when there is none. Valid until ini_free. */
const char *ini_get(const struct ini *ini, const char *section, const char *name);
bool ini_has_section(const struct ini *ini, const char *section);

/* Reads and parses a file of at most 1 MiB. 0, -errno of opening and reading, -EFBIG, -EINVAL. */
int ini_read(const char *path, struct ini **ret, int64_t *ret_mtime_ns, unsigned *ret_line);

#endif
