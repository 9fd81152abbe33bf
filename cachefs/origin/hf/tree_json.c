#include "hf/tree_json.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

static bool valid_oid(const char *oid)
{
	size_t n = strlen(oid);

	return (n == 40 || n == 64) && strspn(oid, "0123456789abcdef") == n;
}

static int take_file(const json_t *object, struct hf_entry *ret)
{
	const json_t *lfs = json_object_get(object, "lfs");
	const json_t *source = json_is_object(lfs) ? lfs : object;
	const json_t *size = json_object_get(source, "size");

	ret->oid = json_string_value(json_object_get(source, "oid"));
	if (!ret->oid || !valid_oid(ret->oid) || !json_is_integer(size) ||
		json_integer_value(size) < 0)
		return -EBADMSG;
	ret->size_bytes = (uint64_t)json_integer_value(size);
	return 0;
}

static int take_entry(const json_t *object, struct hf_entry *ret)
{
	const char *type = json_string_value(json_object_get(object, "type"));

	*ret = (struct hf_entry){
		.kind = HF_OTHER, .path = json_string_value(json_object_get(object, "path"))};
	if (!type || !ret->path)
		return -EBADMSG;
	if (!strcmp(type, "directory"))
		ret->kind = HF_DIRECTORY;
	if (strcmp(type, "file") != 0)
		return 0;
	ret->kind = HF_FILE;
	return take_file(object, ret);
}

int tree_json_parse(
	const char *text, size_t n, int (*each)(void *arg, const struct hf_entry *entry), void *arg)
{
	json_t *document = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
	int r = json_is_array(document) ? 0 : -EBADMSG;

	for (size_t i = 0; !r && i < json_array_size(document); i++) {
		struct hf_entry entry;

		r = take_entry(json_array_get(document, i), &entry);
		if (!r)
			r = each(arg, &entry);
	}
	json_decref(document);
	return r;
}

int revision_json_parse(const char *text, size_t n, char ret_commit[COMMIT_SIZE])
{
	json_t *document = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
	const char *commit = json_string_value(json_object_get(document, "sha"));
	int r = commit && commit_valid(commit) ? 0 : -EBADMSG;

	if (!r)
		memcpy(ret_commit, commit, COMMIT_SIZE);
	json_decref(document);
	return r;
}
