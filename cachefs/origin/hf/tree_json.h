/* tree_json: the JSON of a Hugging Face hub's API that we read. It came from a server: everything is
 * checked. Any thread. */
#ifndef HF_TREE_JSON_H
#define HF_TREE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hf/places.h"

enum hf_kind { HF_FILE, HF_DIRECTORY, HF_OTHER /* a submodule */ };

struct hf_entry {
	enum hf_kind kind;
	const char *path; /* from the repository's root */
	uint64_t size_bytes;
	const char *oid; /* hexadecimal: SHA-256 of the content for LFS, else git's blob id */
};

/* An answer of /tree or /paths-info. Calls each for every entry; 0, -EBADMSG, or what each returned. */
int tree_json_parse(const char *text, size_t n,
	int (*each)(void *arg, const struct hf_entry *entry), void *arg);
/* The commit in an answer of /revision. 0 or -EBADMSG. */
int revision_json_parse(const char *text, size_t n, char ret_commit[COMMIT_SIZE]);

#endif
