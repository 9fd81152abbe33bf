#include "verdict.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum source { FROM_CURL, FROM_HTTP, FROM_S3 };

struct rule {
	enum source source;
	long number;      /* CURLcode or HTTP status */
	const char *code; /* S3 */
	int error;
	enum step step;
	enum origin_outcome outcome;
	enum fix fix;
};

/*
 * What is not listed: a CURLcode is a network error and retried; a status from 500 is retried; any
 * other status, and any other S3 code of such a status, is final.
 */
static const struct rule rules[] = {
	/* What a second try can't change. */
	{FROM_CURL, CURLE_URL_MALFORMAT, NULL, -EIO, STEP_FAIL, ORIGIN_NETWORK_ERROR},
	{FROM_CURL, CURLE_UNSUPPORTED_PROTOCOL, NULL, -EIO, STEP_FAIL, ORIGIN_NETWORK_ERROR},
	{FROM_CURL, CURLE_TOO_MANY_REDIRECTS, NULL, -EIO, STEP_FAIL, ORIGIN_SERVER_ERROR},
	{FROM_CURL, CURLE_PEER_FAILED_VERIFICATION, NULL, -EIO, STEP_FAIL, ORIGIN_NETWORK_ERROR},
	{FROM_CURL, CURLE_SSL_CACERT_BADFILE, NULL, -EIO, STEP_FAIL, ORIGIN_NETWORK_ERROR},
	{FROM_CURL, CURLE_SSL_CERTPROBLEM, NULL, -EIO, STEP_FAIL, ORIGIN_NETWORK_ERROR},
	{FROM_CURL, CURLE_SSL_ISSUER_ERROR, NULL, -EIO, STEP_FAIL, ORIGIN_NETWORK_ERROR},
	{FROM_CURL, CURLE_OUT_OF_MEMORY, NULL, -ENOMEM, STEP_FAIL, ORIGIN_NETWORK_ERROR},

	{FROM_HTTP, 401, NULL, -EACCES, STEP_FAIL, ORIGIN_DENIED},
	{FROM_HTTP, 403, NULL, -EACCES, STEP_FAIL, ORIGIN_DENIED},
	{FROM_HTTP, 404, NULL, -ENOENT, STEP_FAIL, ORIGIN_NOT_FOUND},
	{FROM_HTTP, 408, NULL, -EIO, STEP_RETRY, ORIGIN_SERVER_ERROR},
	{FROM_HTTP, 410, NULL, -ENOENT, STEP_FAIL, ORIGIN_NOT_FOUND},
	{FROM_HTTP, 412, NULL, -ESTALE, STEP_FAIL, ORIGIN_CHANGED},
	{FROM_HTTP, 416, NULL, -ESTALE, STEP_FAIL, ORIGIN_CHANGED},
	{FROM_HTTP, 425, NULL, -EIO, STEP_RETRY, ORIGIN_SERVER_ERROR},
	{FROM_HTTP, 429, NULL, -EIO, STEP_RETRY, ORIGIN_THROTTLED},
	{FROM_HTTP, 503, NULL, -EIO, STEP_RETRY, ORIGIN_THROTTLED},
	{FROM_HTTP, 505, NULL, -EIO, STEP_FAIL, ORIGIN_SERVER_ERROR},

	{FROM_S3, 0, "NoSuchKey", -ENOENT, STEP_FAIL, ORIGIN_NOT_FOUND},
	{FROM_S3, 0, "NoSuchVersion", -ENOENT, STEP_FAIL, ORIGIN_NOT_FOUND},
	{FROM_S3, 0, "NoSuchBucket", -EIO, STEP_FAIL, ORIGIN_SERVER_ERROR},
	{FROM_S3, 0, "AccessDenied", -EACCES, STEP_FAIL, ORIGIN_DENIED},
	{FROM_S3, 0, "PreconditionFailed", -ESTALE, STEP_FAIL, ORIGIN_CHANGED},
	{FROM_S3, 0, "InvalidRange", -ESTALE, STEP_FAIL, ORIGIN_CHANGED},
	{FROM_S3, 0, "KeyTooLongError", -ENAMETOOLONG, STEP_FAIL, ORIGIN_NOT_FOUND},
	{FROM_S3, 0, "SlowDown", -EIO, STEP_RETRY, ORIGIN_THROTTLED},
	{FROM_S3, 0, "ServiceUnavailable", -EIO, STEP_RETRY, ORIGIN_THROTTLED},
	{FROM_S3, 0, "Throttling", -EIO, STEP_RETRY, ORIGIN_THROTTLED},
	{FROM_S3, 0, "RequestLimitExceeded", -EIO, STEP_RETRY, ORIGIN_THROTTLED},
	{FROM_S3, 0, "InternalError", -EIO, STEP_RETRY, ORIGIN_SERVER_ERROR},
	{FROM_S3, 0, "RequestTimeout", -EIO, STEP_RETRY, ORIGIN_SERVER_ERROR},
	{FROM_S3, 0, "RequestTimeTooSkewed", -EACCES, STEP_AGAIN, ORIGIN_DENIED, FIX_CLOCK},
	{FROM_S3, 0, "ExpiredToken", -EACCES, STEP_AGAIN, ORIGIN_DENIED, FIX_CREDENTIALS},
	{FROM_S3, 0, "InvalidToken", -EACCES, STEP_AGAIN, ORIGIN_DENIED, FIX_CREDENTIALS},
	{FROM_S3, 0, "TokenRefreshRequired", -EACCES, STEP_AGAIN, ORIGIN_DENIED, FIX_CREDENTIALS},
	{FROM_S3, 0, "SignatureDoesNotMatch", -EACCES, STEP_AGAIN, ORIGIN_DENIED, FIX_CREDENTIALS},
	{FROM_S3, 0, "InvalidAccessKeyId", -EACCES, STEP_AGAIN, ORIGIN_DENIED, FIX_CREDENTIALS},
	/* MinIO's */
	{FROM_S3, 0, "InvalidTokenId", -EACCES, STEP_AGAIN, ORIGIN_DENIED, FIX_CREDENTIALS},
	/* versitygw's, with status 404 */
	{FROM_S3, 0, "XAdminUserNotFound", -EACCES, STEP_AGAIN, ORIGIN_DENIED, FIX_CREDENTIALS},
	{FROM_S3, 0, "AuthorizationHeaderMalformed", -EIO, STEP_AGAIN, ORIGIN_SERVER_ERROR,
		FIX_REGION},
	{FROM_S3, 0, "PermanentRedirect", -EIO, STEP_AGAIN, ORIGIN_SERVER_ERROR, FIX_REGION},
	{FROM_S3, 0, "TemporaryRedirect", -EIO, STEP_AGAIN, ORIGIN_SERVER_ERROR, FIX_REGION},
	{FROM_S3, 0, "NotImplemented", -EIO, STEP_AGAIN, ORIGIN_SERVER_ERROR, FIX_LIST_V1},
};

static const struct rule *find_rule(enum source source, long number, const char *code)
{
	for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
		const struct rule *rule = &rules[i];

		if (rule->source == source &&
			(source == FROM_S3 ? !strcmp(rule->code, code) : rule->number == number))
			return rule;
	}
	return NULL;
}

static void apply(const struct rule *rule, struct verdict *ret)
{
	ret->step = rule->step;
	ret->error = rule->error;
	ret->outcome = rule->outcome;
	ret->fix = rule->fix;
}

void verdict_of_curl(CURLcode code, const char *detail, struct verdict *ret)
{
	const struct rule *rule = find_rule(FROM_CURL, (long)code, NULL);

	*ret = (struct verdict){STEP_RETRY, FIX_NONE, -EIO, ORIGIN_NETWORK_ERROR, ""};
	if (rule)
		apply(rule, ret);
	snprintf(ret->text, sizeof ret->text, "%s",
		detail && *detail ? detail : curl_easy_strerror(code));
}

void verdict_of_answer(long status, const char *s3_code, struct verdict *ret)
{
	const struct rule *rule = NULL;

	*ret = (struct verdict){STEP_FAIL, FIX_NONE, -EIO, ORIGIN_SERVER_ERROR, ""};
	if (status >= 500)
		ret->step = STEP_RETRY;
	if (s3_code && *s3_code)
		rule = find_rule(FROM_S3, 0, s3_code);
	if (!rule)
		rule = find_rule(FROM_HTTP, status, NULL);
	if (rule)
		apply(rule, ret);
	snprintf(ret->text, sizeof ret->text, "HTTP %ld%s%.64s", status,
		s3_code && *s3_code ? " " : "", s3_code ? s3_code : "");
}

void verdict_bad_answer(struct verdict *ret, const char *format, ...)
{
	va_list args;

	*ret = (struct verdict){STEP_RETRY, FIX_NONE, -EIO, ORIGIN_SERVER_ERROR, ""};
	va_start(args, format);
	vsnprintf(ret->text, sizeof ret->text, format, args);
	va_end(args);
}

void verdict_fail(
	struct verdict *ret, int error, enum origin_outcome outcome, const char *format, ...)
{
	va_list args;

	*ret = (struct verdict){STEP_FAIL, FIX_NONE, error, outcome, ""};
	va_start(args, format);
	vsnprintf(ret->text, sizeof ret->text, format, args);
	va_end(args);
}

void verdict_done(struct verdict *ret)
{
	*ret = (struct verdict){STEP_DONE, FIX_NONE, 0, ORIGIN_OK, ""};
}

void verdict_on(struct verdict *ret)
{
	*ret = (struct verdict){STEP_ON, FIX_NONE, -EIO, ORIGIN_OK, ""};
}
