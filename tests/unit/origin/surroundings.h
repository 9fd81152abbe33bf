/* surroundings: a home directory of the test's own and a clean environment, and credentials waited for. */
#ifndef TEST_SURROUNDINGS_H
#define TEST_SURROUNDINGS_H

#include "credentials/credentials.h"

struct surroundings {
	char home[64];
};

/* HOME below /tmp, no AWS_* variable but AWS_EC2_METADATA_DISABLED. */
void surroundings_begin(struct surroundings *surroundings);
/* Removes the home. */
void surroundings_end(struct surroundings *surroundings);
/* Writes HOME/name, directories too; its mtime differs from the one before. */
void surroundings_write(const struct surroundings *surroundings, const char *name,
	const char *format, ...) __attribute__((format(printf, 3, 4)));

/* chain_get until it is no longer -EAGAIN; the number is forgotten when NULL. */
int wait_credentials(struct chain *chain, struct origin_engine *engine, struct credentials *ret,
	uint64_t *ret_number, struct why *why);

#endif
