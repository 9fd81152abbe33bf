#include "http/index.h"

#include <errno.h>
#include <libxml/HTMLparser.h>
#include <string.h>
#include <strings.h>

#include "base/percent.h"
#include "name.h"

#define HREF_MAX (16u << 10)

struct parse {
	const char *origin_url;
	struct buf path; /* of the directory, decoded */
	void (*each)(void *arg, const struct index_link *link);
	void *arg;
	uint64_t hidden;
	int error;
};

static bool has_scheme(const char *href)
{
	size_t n =
		strspn(href, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-");

	return n && href[n] == ':';
}

/* What follows the directory's own URL; NULL when the link leads elsewhere, or with path->error
 * when it can't be decoded. */
static const char *below_directory(const struct parse *parse, const char *href, struct buf *path)
{
	size_t host_size = strlen(parse->origin_url);

	if (has_scheme(href)) {
		if (strncasecmp(href, parse->origin_url, host_size) || href[host_size] != '/')
			return NULL;
		href += host_size;
	} else if (href[0] == '/' && href[1] == '/') {
		return NULL;
	}
	if (percent_decode(path, href, strlen(href), false)) {
		path->error = path->error ? path->error : -EINVAL;
		return NULL;
	}
	if (*href != '/')
		return !strncmp(buf_string(path), "./", 2) ? buf_string(path) + 2
							   : buf_string(path);
	if (path->size < parse->path.size ||
		memcmp(buf_string(path), buf_string(&parse->path), parse->path.size) != 0)
		return NULL;
	return buf_string(path) + parse->path.size;
}

static void take_name(struct parse *parse, const char *name, size_t n)
{
	struct index_link link = {.directory = n && name[n - 1] == '/'};

	n -= link.directory;
	/* The directory itself, its parent, or something deeper. */
	if (!n || (n == 2 && !memcmp(name, "..", 2)) || memchr(name, '/', n))
		return;
	if (!name_valid(name, n)) {
		parse->hidden++;
		return;
	}
	link.name = name;
	link.name_size = n;
	parse->each(parse->arg, &link);
}

/* An encoded slash would make a name out of two. */
static bool has_encoded_slash(const char *href)
{
	return strcasestr(href, "%2f") != NULL;
}

static void take_href(struct parse *parse, const char *href)
{
	struct buf path;
	const char *name;

	if (strpbrk(href, "?#"))
		return;
	if (has_encoded_slash(href)) {
		parse->hidden++;
		return;
	}
	buf_init(&path, HREF_MAX);
	name = below_directory(parse, href, &path);
	if (path.error == -ENOMEM)
		parse->error = -ENOMEM;
	else if (path.error)
		parse->hidden++;
	else if (name)
		take_name(parse, name, path.size - (size_t)(name - buf_string(&path)));
	buf_free(&path);
}

static void on_start(void *arg, const xmlChar *name, const xmlChar **attributes)
{
	struct parse *parse = arg;

	if (strcasecmp((const char *)name, "a") != 0)
		return;
	for (; attributes && attributes[0]; attributes += 2) {
		if (!strcasecmp((const char *)attributes[0], "href") && attributes[1])
			take_href(parse, (const char *)attributes[1]);
	}
}

int index_parse(const void *bytes, size_t n, const char *origin_url, const char *url_path,
	void (*each)(void *arg, const struct index_link *link), void *arg, uint64_t *ret_hidden)
{
	struct parse parse = {.origin_url = origin_url, .each = each, .arg = arg};
	htmlSAXHandler sax = {.startElement = on_start};
	htmlParserCtxtPtr context;

	buf_init(&parse.path, HREF_MAX);
	percent_decode(&parse.path, url_path, strlen(url_path), false);
	context = htmlCreatePushParserCtxt(&sax, &parse, NULL, 0, NULL, XML_CHAR_ENCODING_NONE);
	if (!context)
		parse.error = -ENOMEM;
	if (context && n <= INT32_MAX) {
		htmlCtxtUseOptions(context, HTML_PARSE_NONET | HTML_PARSE_NOERROR |
						    HTML_PARSE_NOWARNING | HTML_PARSE_RECOVER);
		htmlParseChunk(context, bytes, (int)n, 1);
	}
	htmlFreeParserCtxt(context);
	buf_free(&parse.path);
	*ret_hidden = parse.hidden;
	return parse.error;
}
