#include "s3/sigv4.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

#define CANONICAL_MAX (64u << 10)

static void add_hex(struct buf *out, const unsigned char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		buf_printf(out, "%02x", bytes[i]);
}

static void add_signed_headers(const struct sigv4_request *request, struct buf *out)
{
	for (size_t i = 0; i < request->n_headers; i++)
		buf_printf(out, "%s%s", i ? ";" : "", request->headers[i].name);
}

static void add_scope(const struct sigv4_scope *scope, struct buf *out)
{
	buf_printf(out, "%.8s/%s/%s/aws4_request", scope->time, scope->region, scope->service);
}

void sigv4_canonical_request(const struct sigv4_request *request, struct buf *out)
{
	buf_printf(out, "%s\n%s\n%s\n", request->method, request->uri, request->query);
	for (size_t i = 0; i < request->n_headers; i++)
		buf_printf(out, "%s:%s\n", request->headers[i].name, request->headers[i].value);
	buf_add_string(out, "\n");
	add_signed_headers(request, out);
	buf_printf(out, "\n%s", request->payload_hash);
}

void sigv4_string_to_sign(
	const struct sigv4_request *request, const struct sigv4_scope *scope, struct buf *out)
{
	unsigned char hash[SHA256_DIGEST_LENGTH];
	struct buf canonical;

	buf_init(&canonical, CANONICAL_MAX);
	sigv4_canonical_request(request, &canonical);
	SHA256((const unsigned char *)buf_string(&canonical), canonical.size, hash);
	buf_printf(out, "AWS4-HMAC-SHA256\n%s\n", scope->time);
	add_scope(scope, out);
	buf_add_string(out, "\n");
	add_hex(out, hash, sizeof hash);
	if (canonical.error)
		out->error = canonical.error;
	buf_free(&canonical);
}

static void hmac(unsigned char key[SHA256_DIGEST_LENGTH], size_t key_size, const void *bytes,
	size_t n, unsigned char out[SHA256_DIGEST_LENGTH])
{
	check(HMAC(EVP_sha256(), key, (int)key_size, bytes, n, out, NULL));
}

/* The key of one day, region and service. */
static void derive_key(const struct sigv4_scope *scope, unsigned char key[SHA256_DIGEST_LENGTH])
{
	const char *steps[] = {scope->region, scope->service, "aws4_request"};
	unsigned char first[512];
	int n = snprintf((char *)first, sizeof first, "AWS4%s", scope->secret);

	/* Longer secrets are refused where credentials are read. */
	check(n > 0 && (size_t)n < sizeof first);
	hmac(first, (size_t)n, scope->time, 8, key);
	for (size_t i = 0; i < 3; i++) {
		unsigned char next[SHA256_DIGEST_LENGTH];

		hmac(key, SHA256_DIGEST_LENGTH, steps[i], strlen(steps[i]), next);
		memcpy(key, next, sizeof next);
	}
	OPENSSL_cleanse(first, sizeof first);
}

void sigv4_authorization(
	const struct sigv4_request *request, const struct sigv4_scope *scope, struct buf *out)
{
	unsigned char key[SHA256_DIGEST_LENGTH], signature[SHA256_DIGEST_LENGTH];
	struct buf text;

	buf_init(&text, CANONICAL_MAX);
	sigv4_string_to_sign(request, scope, &text);
	derive_key(scope, key);
	hmac(key, sizeof key, buf_string(&text), text.size, signature);
	buf_printf(out, "AWS4-HMAC-SHA256 Credential=%s/", scope->key_id);
	add_scope(scope, out);
	buf_add_string(out, ",SignedHeaders=");
	add_signed_headers(request, out);
	buf_add_string(out, ",Signature=");
	add_hex(out, signature, sizeof signature);
	if (text.error)
		out->error = text.error;
	OPENSSL_cleanse(key, sizeof key);
	buf_free(&text);
}
