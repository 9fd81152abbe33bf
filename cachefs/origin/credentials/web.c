#include "credentials/web.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <string.h>

#include "credentials/provider.h"

#define ANSWER_MAX (256u << 10)
#define HEADER_MAX (64u << 10)
#define TEXT_MAX   200

void web_answer_init(struct web_answer *answer)
{
	*answer = (struct web_answer){0};
	buf_init(&answer->body, ANSWER_MAX);
}

void web_answer_free(struct web_answer *answer)
{
	if (answer->body.bytes)
		OPENSSL_cleanse(answer->body.bytes, answer->body.size);
	buf_free(&answer->body);
}

static size_t on_body(char *bytes, size_t unit, size_t n, void *arg)
{
	struct web_answer *answer = arg;

	return buf_add(&answer->body, bytes, unit * n) ? 0 : unit * n;
}

static int on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	const _Atomic bool *stop = arg;

	(void)a, (void)b, (void)c, (void)d;
	return atomic_load(stop);
}

static void set_options(CURL *easy, const struct web_call *call, const _Atomic bool *stop,
	struct web_answer *answer, char detail[CURL_ERROR_SIZE])
{
	curl_easy_setopt(easy, CURLOPT_URL, call->url);
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(easy, CURLOPT_HTTPHEADER, call->headers);
	curl_easy_setopt(easy, CURLOPT_USERAGENT, "cachefs/" CACHEFS_VERSION);
	if (call->body)
		curl_easy_setopt(easy, CURLOPT_POSTFIELDS, call->body);
	curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, call->method);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, answer);
	curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, on_progress);
	curl_easy_setopt(easy, CURLOPT_XFERINFODATA, stop);
	curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, detail);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)call->timeout_ms);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)call->timeout_ms);
	if (call->ca)
		curl_easy_setopt(easy, CURLOPT_CAINFO, call->ca);
	if (call->local)
		curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
}

/* Where the URL's path begins. */
static size_t host_end(const char *url)
{
	const char *host = strstr(url, "://");

	host = host ? host + 3 : url;
	return (size_t)(host - url) + strcspn(host, "/?#");
}

int web_call(const struct web_call *call, const _Atomic bool *stop, struct web_answer *ret,
	struct why *why)
{
	char detail[CURL_ERROR_SIZE] = "";
	CURL *easy = curl_easy_init();
	CURLcode code;

	if (!easy)
		return -ENOMEM;
	set_options(easy, call, stop, ret, detail);
	code = curl_easy_perform(easy);
	curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &ret->status);
	curl_easy_cleanup(easy);
	if (atomic_load(stop))
		return -ECANCELED;
	/* A path may be as good as a key: it is not shown. */
	if (code != CURLE_OK)
		return why_set(why, -EIO, "%.*s: %s", (int)host_end(call->url), call->url,
			*detail ? detail : curl_easy_strerror(code));
	return 0;
}

int web_header(struct curl_slist **headers, const char *name, const char *value)
{
	struct curl_slist *more = NULL;
	struct buf line;

	if (strpbrk(value, "\r\n"))
		return -EINVAL;
	buf_init(&line, HEADER_MAX);
	if (!buf_printf(&line, "%s: %s", name, value))
		more = curl_slist_append(*headers, buf_string(&line));
	if (line.bytes)
		OPENSSL_cleanse(line.bytes, line.size);
	buf_free(&line);
	if (!more)
		return -ENOMEM;
	*headers = more;
	return 0;
}

int web_refused(const char *who, long status, const char *text, struct why *why)
{
	bool may_pass = status >= 500 || status == 429 || status == 408;
	char shown[TEXT_MAX];

	redact(text, shown, sizeof shown);
	return why_set(why, may_pass ? -EIO : -EACCES, "%s answers HTTP %ld%s%s", who, status,
		*shown ? " " : "", shown);
}
