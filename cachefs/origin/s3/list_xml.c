#include "s3/list_xml.h"

#include <errno.h>
#include <libxml/parser.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/percent.h"
#include "answer.h"

#define KEY_MAX   (16u << 10) /* 1,024 bytes, each encoded as %XX, and room */
#define TEXT_MAX  (16u << 10)
#define DEPTH_MAX 8
/* S3's own pages have 1,000, other servers' may be set to more. Each takes some hundred bytes here,
 * and little more than a dozen in a document made to exhaust us. */
#define KEYS_MAX (256u << 10)

enum place {
	PLACE_OUTSIDE,
	PLACE_OTHER,
	PLACE_ROOT, /* ListBucketResult */
	PLACE_CONTENTS,
	PLACE_COMMON,
	PLACE_ERROR,
};

struct raw_key {
	struct buf text; /* as in the document */
	bool prefix, sized;
	uint64_t size_bytes;
	int64_t modified_s;
	char etag[160];
};

struct parse {
	xmlParserCtxtPtr context;
	int (*each)(void *arg, const struct list_key *key);
	void *arg;
	struct list_page *page;
	struct error_document *error;
	enum place places[DEPTH_MAX];
	unsigned depth, too_deep;
	struct buf text; /* of the element that is open */
	bool url_encoded, is_list, is_error, list_ended;
	/* EncodingType may come after the keys, so they are kept until the end. */
	struct raw_key *keys;
	size_t n_keys;
	struct raw_key now;
	struct buf marker;
	int result;
};

void list_page_init(struct list_page *page)
{
	*page = (struct list_page){0};
	buf_init(&page->next_token, TEXT_MAX);
	buf_init(&page->next_marker, KEY_MAX);
	buf_init(&page->last, KEY_MAX);
}

void list_page_free(struct list_page *page)
{
	buf_free(&page->next_token);
	buf_free(&page->next_marker);
	buf_free(&page->last);
}

static void fail(struct parse *parse, int error)
{
	if (!parse->result)
		parse->result = error;
	xmlStopParser(parse->context);
}

static enum place place_of(const struct parse *parse)
{
	return parse->depth ? parse->places[parse->depth - 1] : PLACE_OUTSIDE;
}

static enum place enter(struct parse *parse, const char *name)
{
	switch (place_of(parse)) {
	case PLACE_OUTSIDE:
		parse->is_list = !strcmp(name, "ListBucketResult");
		parse->is_error = !strcmp(name, "Error");
		return parse->is_list ? PLACE_ROOT : parse->is_error ? PLACE_ERROR : PLACE_OTHER;
	case PLACE_ROOT:
		if (!strcmp(name, "Contents"))
			return PLACE_CONTENTS;
		return !strcmp(name, "CommonPrefixes") ? PLACE_COMMON : PLACE_OTHER;
	default:
		return PLACE_OTHER;
	}
}

static void new_key(struct parse *parse, bool prefix)
{
	buf_free(&parse->now.text);
	parse->now = (struct raw_key){.prefix = prefix};
	buf_init(&parse->now.text, KEY_MAX);
}

static void on_start(void *arg, const xmlChar *name, const xmlChar *prefix, const xmlChar *uri,
	int n_namespaces, const xmlChar **namespaces, int n_attributes, int n_defaulted,
	const xmlChar **attributes)
{
	struct parse *parse = arg;

	(void)prefix, (void)uri, (void)n_namespaces, (void)namespaces;
	(void)n_attributes, (void)n_defaulted, (void)attributes;
	buf_reset(&parse->text);
	if (parse->depth == DEPTH_MAX) {
		parse->too_deep++;
		return;
	}
	parse->places[parse->depth] = enter(parse, (const char *)name);
	parse->depth++;
	if (place_of(parse) == PLACE_CONTENTS || place_of(parse) == PLACE_COMMON)
		new_key(parse, place_of(parse) == PLACE_COMMON);
}

static void on_text(void *arg, const xmlChar *text, int n)
{
	struct parse *parse = arg;

	if (buf_add(&parse->text, text, (size_t)n))
		fail(parse, parse->text.error == -ENOMEM ? -ENOMEM : -EBADMSG);
}

static void on_doctype(
	void *arg, const xmlChar *name, const xmlChar *external, const xmlChar *system)
{
	(void)name, (void)external, (void)system;
	fail(arg, -EBADMSG);
}

static bool parse_size_text(const char *text, uint64_t *ret)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*ret = strtoull(text, &end, 10);
	return !errno && !*end;
}

/* Quotes an ETag that a server gives bare. */
static void take_etag(struct raw_key *key, const char *text)
{
	bool quoted = *text == '"' || !strncmp(text, "W/", 2);

	if (*text)
		snprintf(key->etag, sizeof key->etag, quoted ? "%s" : "\"%s\"", text);
}

static void end_in_contents(struct parse *parse, const char *name, const char *text)
{
	struct raw_key *key = &parse->now;

	if (!strcmp(name, "Key"))
		buf_add(&key->text, text, parse->text.size);
	else if (!strcmp(name, "Size")) {
		key->sized = parse_size_text(text, &key->size_bytes);
		if (!key->sized)
			fail(parse, -EBADMSG);
	} else if (!strcmp(name, "LastModified"))
		key->modified_s = answer_parse_iso(text);
	else if (!strcmp(name, "ETag"))
		take_etag(key, text);
}

static void end_in_root(struct parse *parse, const char *name, const char *text)
{
	struct list_page *page = parse->page;

	if (!strcmp(name, "IsTruncated"))
		page->truncated = !strcasecmp(text, "true");
	else if (!strcmp(name, "KeyCount"))
		page->has_key_count = true;
	else if (!strcmp(name, "EncodingType"))
		parse->url_encoded = !strcasecmp(text, "url");
	else if (!strcmp(name, "NextContinuationToken"))
		buf_add(&page->next_token, text, parse->text.size);
	else if (!strcmp(name, "NextMarker"))
		buf_add(&parse->marker, text, parse->text.size);
}

static void end_in_error(struct parse *parse, const char *name, const char *text)
{
	if (!strcmp(name, "Code"))
		snprintf(parse->error->code, sizeof parse->error->code, "%s", text);
	else if (!strcmp(name, "Region"))
		snprintf(parse->error->region, sizeof parse->error->region, "%s", text);
}

static void keep_key(struct parse *parse)
{
	size_t n = parse->n_keys;

	if (n == KEYS_MAX) {
		fail(parse, -EBADMSG);
		return;
	}
	/* Grows at powers of two. */
	if (!(n & (n - 1))) {
		struct raw_key *more =
			reallocarray(parse->keys, n ? n * 2 : 1, sizeof *parse->keys);

		if (!more) {
			fail(parse, -ENOMEM);
			return;
		}
		parse->keys = more;
	}
	parse->keys[parse->n_keys++] = parse->now;
	buf_init(&parse->now.text, KEY_MAX);
}

static void on_end(void *arg, const xmlChar *element, const xmlChar *prefix, const xmlChar *uri)
{
	struct parse *parse = arg;
	const char *name = (const char *)element, *text = buf_string(&parse->text);
	enum place ended;

	(void)prefix, (void)uri;
	if (parse->too_deep) {
		parse->too_deep--;
		return;
	}
	ended = place_of(parse);
	parse->depth--;
	if (ended == PLACE_CONTENTS || ended == PLACE_COMMON)
		keep_key(parse);
	else if (ended == PLACE_ROOT)
		parse->list_ended = true;
	else if (place_of(parse) == PLACE_CONTENTS)
		end_in_contents(parse, name, text);
	else if (place_of(parse) == PLACE_COMMON && !strcmp(name, "Prefix"))
		buf_add(&parse->now.text, text, parse->text.size);
	else if (place_of(parse) == PLACE_ROOT)
		end_in_root(parse, name, text);
	else if (place_of(parse) == PLACE_ERROR)
		end_in_error(parse, name, text);
	buf_reset(&parse->text);
}

static int run_parser(struct parse *parse, const void *bytes, size_t n)
{
	xmlSAXHandler sax = {
		.initialized = XML_SAX2_MAGIC,
		.startElementNs = on_start,
		.endElementNs = on_end,
		.characters = on_text,
		.cdataBlock = on_text,
		.internalSubset = on_doctype,
	};
	int broken;

	if (n > INT32_MAX)
		return -EBADMSG;
	parse->context = xmlCreatePushParserCtxt(&sax, parse, NULL, 0, NULL);
	if (!parse->context)
		return -ENOMEM;
	xmlCtxtUseOptions(
		parse->context, XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING);
	broken = xmlParseChunk(parse->context, bytes, (int)n, 1);
	if (!parse->result && (broken || !parse->context->wellFormed))
		parse->result = -EBADMSG;
	xmlFreeParserCtxt(parse->context);
	return parse->result;
}

static int decode(const struct parse *parse, const struct buf *text, struct buf *out)
{
	int r;

	buf_reset(out);
	if (parse->url_encoded)
		r = percent_decode(out, buf_string(text), text->size, true);
	else
		r = buf_add(out, buf_string(text), text->size);
	return r == -EINVAL || r == -EFBIG ? -EBADMSG : r;
}

static int compare_bytes(const struct buf *a, const struct buf *b)
{
	size_t n = a->size < b->size ? a->size : b->size;
	int order = memcmp(buf_string(a), buf_string(b), n);

	return order ? order : (a->size > b->size) - (a->size < b->size);
}

static int give_key(struct parse *parse, const struct raw_key *raw, struct buf *key)
{
	struct list_key out = {
		.prefix = raw->prefix,
		.size_bytes = raw->size_bytes,
		.sized = raw->sized,
		.modified_s = raw->modified_s,
		.etag = raw->etag,
	};
	int r = raw->text.error ? -EBADMSG : decode(parse, &raw->text, key);

	if (r)
		return r;
	if (!key->size)
		return -EBADMSG;
	if (compare_bytes(key, &parse->page->last) > 0) {
		buf_reset(&parse->page->last);
		buf_add(&parse->page->last, buf_string(key), key->size);
	}
	parse->page->n_keys++;
	out.key = buf_string(key);
	out.key_size = key->size;
	return parse->each(parse->arg, &out);
}

static int give_all(struct parse *parse)
{
	struct buf key;
	int r = decode(parse, &parse->marker, &parse->page->next_marker);

	buf_init(&key, KEY_MAX);
	for (size_t i = 0; i < parse->n_keys && !r; i++)
		r = give_key(parse, &parse->keys[i], &key);
	buf_free(&key);
	return r;
}

static void parse_setup(struct parse *parse)
{
	buf_init(&parse->text, TEXT_MAX);
	buf_init(&parse->marker, KEY_MAX);
	buf_init(&parse->now.text, KEY_MAX);
}

static void parse_free(struct parse *parse)
{
	for (size_t i = 0; i < parse->n_keys; i++)
		buf_free(&parse->keys[i].text);
	free(parse->keys);
	buf_free(&parse->now.text);
	buf_free(&parse->text);
	buf_free(&parse->marker);
}

int list_xml_parse(const void *bytes, size_t n, int (*each)(void *arg, const struct list_key *key),
	void *arg, struct list_page *page, struct error_document *error)
{
	struct parse parse = {.each = each, .arg = arg, .page = page, .error = error};
	int r;

	*error = (struct error_document){"", ""};
	parse_setup(&parse);
	r = run_parser(&parse, bytes, n);
	if (!r && parse.is_error)
		r = -EREMOTEIO;
	else if (!r && !parse.list_ended)
		r = -EBADMSG;
	if (!r)
		r = give_all(&parse);
	parse_free(&parse);
	return r;
}

static int no_key(void *arg, const struct list_key *key)
{
	(void)arg, (void)key;
	return -EBADMSG;
}

void error_xml_parse(const void *bytes, size_t n, struct error_document *ret)
{
	struct list_page page;

	list_page_init(&page);
	if (list_xml_parse(bytes, n, no_key, NULL, &page, ret) != -EREMOTEIO)
		*ret = (struct error_document){"", ""};
	list_page_free(&page);
}
