#include "credentials/provider.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"

#define SECRET_FILE_MAX (64u << 10)
#define WORD_MAX        24 /* longer words of letters and digits may be secrets */

void credentials_wipe(struct credentials *credentials)
{
	OPENSSL_cleanse(credentials, sizeof *credentials);
}

void provider_free(struct provider *provider)
{
	if (!provider)
		return;
	free(provider->identity);
	provider->ops->destroy(provider);
}

static bool has_control_bytes(const char *text)
{
	for (; *text; text++) {
		if (iscntrl((unsigned char)*text))
			return true;
	}
	return false;
}

static int set(char *out, size_t size, const char *value, const char *what, struct why *why)
{
	if (strlen(value) >= size || has_control_bytes(value))
		return why_set(why, -EIO, "%s is longer than %zu bytes or has a line break", what,
			size - 1);
	strcpy(out, value);
	return 0;
}

int credentials_set(struct credentials *ret, const char *key_id, const char *secret,
	const char *token, struct why *why)
{
	int r;

	if (!key_id || !*key_id || !secret || !*secret)
		return why_set(why, -EIO, "the access key id or the secret access key is missing");
	r = set(ret->key_id, sizeof ret->key_id, key_id, "the access key id", why);
	if (!r)
		r = set(ret->secret, sizeof ret->secret, secret, "the secret access key", why);
	if (!r)
		r = set(ret->token, sizeof ret->token, token ? token : "", "the session token",
			why);
	return r;
}

const char *environment(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

/* A service may run without HOME. */
static char *home_of_user(void)
{
	struct passwd entry, *found = NULL;
	char strings[4096];

	if (getpwuid_r(geteuid(), &entry, strings, sizeof strings, &found) || !found)
		return strdup("");
	return strdup(entry.pw_dir);
}

char *home_directory(void)
{
	const char *home = environment("HOME");

	return home ? strdup(home) : home_of_user();
}

char *home_aws_file(const char *name)
{
	_cleanup_(freep) char *home = home_directory();
	char *file;

	if (!home || asprintf(&file, "%s/.aws/%s", home, name) < 0)
		return NULL;
	return file;
}

void free_secret(char *secret)
{
	if (secret)
		OPENSSL_cleanse(secret, strlen(secret));
	free(secret);
}

static int read_all(int fd, char *text, size_t size)
{
	size_t used = 0;
	ssize_t n;

	while ((n = read(fd, text + used, size - used)) != 0) {
		if (n < 0 && errno != EINTR)
			return -errno;
		used += n > 0 ? (size_t)n : 0;
		if (used == size)
			return -EFBIG;
	}
	while (used && isspace((unsigned char)text[used - 1]))
		used--;
	text[used] = '\0';
	return 0;
}

int read_secret_file(const char *path, char **ret)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char *text;
	int r;

	if (fd < 0)
		return -errno;
	text = calloc(1, SECRET_FILE_MAX);
	if (!text)
		return -ENOMEM;
	r = read_all(fd, text, SECRET_FILE_MAX);
	if (r) {
		OPENSSL_cleanse(text, SECRET_FILE_MAX);
		free(text);
		return r;
	}
	*ret = text;
	return 0;
}

static bool may_be_secret(const char *word, size_t n)
{
	size_t run = 0;

	for (size_t i = 0; i < n; i++) {
		run = isalnum((unsigned char)word[i]) || strchr("+/=_-", word[i]) ? run + 1 : 0;
		if (run > WORD_MAX)
			return true;
	}
	return false;
}

void redact(const char *text, char *out, size_t size)
{
	size_t used = 0;

	while (*text && used + 1 < size) {
		size_t n = strcspn(text, " \t\r\n,;\"'");

		if (may_be_secret(text, n)) {
			used += (size_t)snprintf(out + used, size - used, "...");
			if (used >= size)
				used = size - 1;
		} else {
			for (size_t i = 0; i < n && used + 1 < size; i++)
				out[used++] = iscntrl((unsigned char)text[i]) ? ' ' : text[i];
		}
		text += n;
		if (*text && used + 1 < size) {
			out[used++] = iscntrl((unsigned char)*text) ? ' ' : *text;
			text++;
		}
	}
	out[used] = '\0';
}
