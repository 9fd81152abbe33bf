#include "credentials/json.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "credentials/provider.h"

const struct json_names json_names_of_process = {
	NULL, "AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration", false, false};
const struct json_names json_names_of_endpoint = {
	NULL, "AccessKeyId", "SecretAccessKey", "Token", "Expiration", false, false};
const struct json_names json_names_of_sso = {"roleCredentials", "accessKeyId", "secretAccessKey",
	"sessionToken", "expiration", true, true};

static const char *string_of(const json_t *object, const char *name)
{
	return json_string_value(json_object_get(object, name));
}

/* "+01:00" in seconds; 0 for anything else. */
static int64_t zone_s(const char *text)
{
	unsigned hours, minutes;
	char sign;

	if (sscanf(text, "%c%2u:%2u", &sign, &hours, &minutes) != 3 || !strchr("+-", sign))
		return 0;
	return (sign == '-' ? -1 : 1) * (int64_t)(hours * 3600 + minutes * 60);
}

int64_t parse_expiry(const char *text)
{
	struct tm tm = {0};
	const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
	time_t t;

	if (!rest)
		return 0;
	if (*rest == '.')
		rest += 1 + strspn(rest + 1, "0123456789");
	t = timegm(&tm);
	return t > 0 ? (int64_t)t - zone_s(rest) : 0;
}

static int take_expiry(
	const json_t *object, const struct json_names *names, int64_t *ret, struct why *why)
{
	const json_t *value = json_object_get(object, names->expires);

	if (!value || json_is_null(value))
		return names->needs_expiry ? why_set(why, -EIO, "%s is missing", names->expires)
					   : 0;
	if (names->expires_ms)
		*ret = json_integer_value(value) / 1000;
	else if (json_is_string(value))
		*ret = parse_expiry(json_string_value(value));
	return *ret > 0 ? 0 : why_set(why, -EIO, "%s is no date", names->expires);
}

int json_credentials(
	const char *text, const struct json_names *names, struct credentials *ret, struct why *why)
{
	json_t *document = json_loads(text, JSON_REJECT_DUPLICATES, NULL), *object = document;
	int r;

	if (!document)
		return why_set(why, -EIO, "the answer is no JSON");
	if (names->object)
		object = json_object_get(document, names->object);
	r = credentials_set(ret, string_of(object, names->key_id), string_of(object, names->secret),
		string_of(object, names->token), why);
	if (!r)
		r = take_expiry(object, names, &ret->expires_s, why);
	json_decref(document);
	return r;
}

int json_version(const char *text)
{
	json_t *document = json_loads(text, 0, NULL);
	json_int_t version = json_integer_value(json_object_get(document, "Version"));

	json_decref(document);
	return version > 0 && version < 1000 ? (int)version : 0;
}

char *json_string_of(const char *text, const char *name)
{
	json_t *document = json_loads(text, 0, NULL);
	const char *value = string_of(document, name);
	char *copy = value ? strdup(value) : NULL;

	json_decref(document);
	return copy;
}

int64_t json_integer_of(const char *text, const char *name)
{
	json_t *document = json_loads(text, 0, NULL);
	json_int_t value = json_integer_value(json_object_get(document, name));

	json_decref(document);
	return (int64_t)value;
}

char *json_with(const char *text, const struct json_field *fields, size_t n)
{
	json_t *document = json_loads(text, 0, NULL);
	bool all = json_is_object(document);
	char *result = NULL;

	for (size_t i = 0; all && i < n; i++)
		all = !json_object_set_new(document, fields[i].name, json_string(fields[i].value));
	if (all)
		result = json_dumps(document, JSON_COMPACT);
	json_decref(document);
	return result;
}
