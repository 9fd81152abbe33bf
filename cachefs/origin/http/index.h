/*
 * index: the names in an HTML index document of a directory (Apache, nginx, Python's http.server):
 * the links that lead exactly one step down.
 *
 * libxml2's HTML parser; the input came from a server. Any thread.
 */
#ifndef HTTP_INDEX_H
#define HTTP_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct index_link {
	const char *name; /* decoded, one component; may hold any byte but '/' and NUL */
	size_t name_size;
	bool directory; /* the link ends in "/" */
};

/*
 * url_path: the encoded path of the directory's own URL, with "/" at both ends. origin_url:
 * "http://host", for absolute links. Calls each for every link down; counts those whose names can't
 * be shown in *ret_hidden. 0 or -ENOMEM.
 */
int index_parse(const void *bytes, size_t n, const char *origin_url, const char *url_path,
	void (*each)(void *arg, const struct index_link *link), void *arg, uint64_t *ret_hidden);

#endif
