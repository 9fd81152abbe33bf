#include "answer.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define RETRY_AFTER_MAX_S 3600
#define LINE_MAX_BYTES    4096

static bool parse_number(const char **text, uint64_t *ret)
{
	char *end;

	if (**text < '0' || **text > '9')
		return false;
	errno = 0;
	*ret = strtoull(*text, &end, 10);
	*text = end;
	return errno == 0;
}

bool answer_parse_range(struct answer *answer, const char *value)
{
	uint64_t first, last, total = 0;
	bool has_total;

	if (strncasecmp(value, "bytes ", 6))
		return false;
	value += 6;
	if (!parse_number(&value, &first) || *value++ != '-' || !parse_number(&value, &last) ||
		*value++ != '/')
		return false;
	has_total = *value != '*';
	if (has_total ? !parse_number(&value, &total) : !*value++)
		return false;
	if (*value || last < first || (has_total && last >= total))
		return false;
	answer->has_range = true;
	answer->range_first = first;
	answer->range_last = last;
	answer->has_total = has_total;
	answer->range_total = total;
	return true;
}

/* An HTTP date in seconds; 0 when it is none. */
static int64_t parse_date(const char *text)
{
	time_t t = curl_getdate(text, NULL);

	return t > 0 ? (int64_t)t : 0;
}

static void take_retry_after(struct answer *answer, const char *value)
{
	const char *rest = value;

	if (parse_number(&rest, &answer->retry_after_s) && !*rest)
		return;
	answer->retry_after_s = 0;
	answer->retry_at_s = parse_date(value);
}

/* A date is one of the server's clock, which need not be ours. */
uint64_t answer_pause_s(const struct answer *answer, int64_t now_s)
{
	int64_t from = answer->date_s ? answer->date_s : now_s;
	uint64_t seconds = answer->retry_after_s;

	if (answer->retry_at_s > from)
		seconds = (uint64_t)(answer->retry_at_s - from);
	return seconds < RETRY_AFTER_MAX_S ? seconds : RETRY_AFTER_MAX_S;
}

static void take_etag(struct answer *answer, const char *value)
{
	answer->etag_too_long = strlen(value) >= sizeof answer->etag;
	if (!answer->etag_too_long)
		strcpy(answer->etag, value);
}

/* "api";r=0;t=55 of draft-ietf-httpapi-ratelimit-headers-09: nothing is left for 55 seconds. */
static void take_rate_limit(struct answer *answer, const char *value)
{
	const char *left = strstr(value, ";r="), *reset = strstr(value, ";t=");
	uint64_t n, seconds;

	if (!left || !reset)
		return;
	left += 3;
	reset += 3;
	if (!parse_number(&left, &n) || n || !parse_number(&reset, &seconds))
		return;
	answer->retry_after_s = seconds < RETRY_AFTER_MAX_S ? seconds + 1 : RETRY_AFTER_MAX_S;
}

/* --- the link to the next page (RFC 8288, 3) --- */

/* The end of a link's parameter: a semicolon or comma that is not in quotes. NULL: quotes don't end. */
static const char *parameter_end(const char *at)
{
	for (bool quoted = false;; at++) {
		if (!*at)
			return quoted ? NULL : at;
		if (*at == '"')
			quoted = !quoted;
		else if (quoted && *at == '\\' && at[1])
			at++;
		else if (!quoted && (*at == ';' || *at == ','))
			return at;
	}
}

/* Is it rel=next? Its value is a word or, in quotes, several. */
static bool is_next(const char *at, const char *end)
{
	at += strspn(at, " \t");
	if (strncasecmp(at, "rel", 3) != 0)
		return false;
	at += 3 + strspn(at + 3, " \t");
	if (*at != '=')
		return false;
	at++;
	while (at < end) {
		size_t n;

		at += strspn(at, " \t\"");
		n = strcspn(at, " \t\";,");
		if (n == 4 && !strncasecmp(at, "next", 4))
			return true;
		at += n ? n : 1;
	}
	return false;
}

/* The link that begins here. Its end, at a comma or at the end of all; NULL: it is none. */
static const char *parse_link(
	const char *at, const char **ret_open, const char **ret_close, bool *next)
{
	*next = false;
	*ret_open = at + strspn(at, " \t,");
	*ret_close = strchr(*ret_open, '>');
	if (**ret_open != '<' || !*ret_close)
		return NULL;
	at = *ret_close + 1;
	at += strspn(at, " \t");
	while (*at == ';') {
		const char *parameter = at + 1;

		at = parameter_end(parameter);
		if (!at)
			return NULL;
		*next |= is_next(parameter, at);
	}
	return *at && *at != ',' ? NULL : at;
}

static void take_next(struct answer *answer, const char *open, const char *close)
{
	const char *query = memchr(open, '?', (size_t)(close - open));

	answer->next_bad = !query || (size_t)(close - query) > sizeof answer->next;
	if (!answer->next_bad)
		snprintf(answer->next, sizeof answer->next, "%.*s", (int)(close - query - 1),
			query + 1);
}

/* A link that isn't understood may be the one to the next page: without it a listing would be taken
 * for whole. */
static void take_link(struct answer *answer, const char *value)
{
	const char *open, *close, *end;
	bool next;

	for (; value[strspn(value, " \t,")]; value = end) {
		end = parse_link(value, &open, &close, &next);
		if (!end) {
			answer->next_bad |= strcasestr(value, "rel") && strcasestr(value, "next");
			return;
		}
		if (next) {
			take_next(answer, open, close);
			return;
		}
	}
}

/* A line that is too long to be taken, of a field that must not be taken for absent. */
static void take_too_long(struct answer *answer, const char *line)
{
	answer->next_bad |= !strncasecmp(line, "link:", 5);
	answer->etag_too_long |= !strncasecmp(line, "etag:", 5);
}

static void take_field(struct answer *answer, const char *name, const char *value)
{
	const char *rest = value;

	if (!strcasecmp(name, "etag"))
		take_etag(answer, value);
	else if (!strcasecmp(name, "content-length"))
		answer->has_length = parse_number(&rest, &answer->length) && !*rest;
	else if (!strcasecmp(name, "content-range"))
		answer_parse_range(answer, value);
	else if (!strcasecmp(name, "last-modified"))
		answer->modified_s = parse_date(value);
	else if (!strcasecmp(name, "date"))
		answer->date_s = parse_date(value);
	else if (!strcasecmp(name, "retry-after"))
		take_retry_after(answer, value);
	else if (!strcasecmp(name, "x-amz-bucket-region"))
		snprintf(answer->region, sizeof answer->region, "%s", value);
	else if (!strcasecmp(name, "content-encoding"))
		answer->coded = *value && strcasecmp(value, "identity") != 0;
	else if (!strcasecmp(name, "ratelimit"))
		take_rate_limit(answer, value);
	else if (!strcasecmp(name, "link"))
		take_link(answer, value);
	else if (!strcasecmp(name, "x-linked-etag"))
		snprintf(answer->linked_etag, sizeof answer->linked_etag, "%s", value);
	else if (!strcasecmp(name, "x-error-code"))
		snprintf(answer->error_code, sizeof answer->error_code, "%s", value);
	else if (!strcasecmp(name, "x-error-message"))
		snprintf(answer->error_message, sizeof answer->error_message, "%s", value);
	else if (!strcasecmp(name, "content-type"))
		answer->html = !strncasecmp(value, "text/html", 9) ||
			       !strncasecmp(value, "application/xhtml+xml", 21);
}

void answer_line(struct answer *answer, const char *line, size_t n)
{
	char text[LINE_MAX_BYTES];
	char *colon, *value;

	while (n && (line[n - 1] == '\r' || line[n - 1] == '\n' || line[n - 1] == ' '))
		n--;
	if (n >= 5 && !memcmp(line, "HTTP/", 5)) {
		const char *space = memchr(line, ' ', n);

		*answer = (struct answer){.status = space ? strtol(space + 1, NULL, 10) : 0};
		return;
	}
	if (n >= sizeof text) {
		take_too_long(answer, line);
		return;
	}
	memcpy(text, line, n);
	text[n] = '\0';
	colon = strchr(text, ':');
	if (!colon)
		return;
	*colon = '\0';
	value = colon + 1;
	value += strspn(value, " \t");
	take_field(answer, text, value);
}

int answer_version(const struct answer *answer, uint64_t total_bytes, struct origin_version *ret)
{
	struct origin_version version = {.strong = false};

	if (answer->etag_too_long)
		return -EIO;
	if (*answer->etag) {
		version.strong = strncmp(answer->etag, "W/", 2) != 0;
		strcpy(version.text, answer->etag);
	} else if (answer->modified_s) {
		snprintf(version.text, sizeof version.text, "modified-%lld-%llu",
			(long long)answer->modified_s, (unsigned long long)total_bytes);
	} else {
		return -EIO;
	}
	*ret = version;
	return 0;
}

int64_t answer_parse_iso(const char *text)
{
	struct tm tm = {0};
	const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
	time_t t;

	if (!rest)
		return 0;
	t = timegm(&tm);
	return t > 0 ? (int64_t)t : 0;
}
