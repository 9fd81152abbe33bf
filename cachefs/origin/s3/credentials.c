#include "s3/credentials.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/lock.h"

#include "s3/profile.h"

#define LOOK_AGAIN_NS NS_PER_SEC

/* What a provider read, and when its files were written. */
struct reading {
	struct credentials credentials;
	int64_t mtimes_ns[2];
};

struct provider {
	const char *name;
	/* 0, -ENOENT: nothing here, ask the next; anything else ends the search. */
	int (*read)(const struct chain *chain, struct reading *ret, struct why *why);
	/* Do the files differ from these? NULL: never. */
	bool (*changed)(const struct chain *chain, const int64_t mtimes_ns[2]);
};

struct chain {
	char *files[2]; /* credentials file, config file; the second NULL for credentials=FILE */
	char *profile;
	bool explicit_file, explicit_profile;
	const struct provider *provider;
	struct lock lock;
	struct reading current; /* lock */
	uint64_t looked_ns;     /* lock */
};

void credentials_wipe(struct credentials *credentials)
{
	OPENSSL_cleanse(credentials, sizeof *credentials);
}

static const char *environment(const char *name)
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

static char *home_file(const char *variable, const char *name)
{
	const char *path = environment(variable), *set = environment("HOME");
	_cleanup_(freep) char *home = NULL;
	char *file;

	if (path)
		return strdup(path);
	home = set ? strdup(set) : home_of_user();
	if (!home || asprintf(&file, "%s/.aws/%s", home, name) < 0)
		return NULL;
	return file;
}

static const char *profile_name(const struct origin_config *config)
{
	const char *name = config->aws_profile;

	if (!name)
		name = environment("AWS_PROFILE");
	return name ? name : "default";
}

static int set(char *out, size_t size, const char *value, const char *what, struct why *why)
{
	if (strlen(value) >= size || strpbrk(value, "\r\n"))
		return why_set(why, -EINVAL, "%s is longer than %zu bytes or has a line break",
			what, size - 1);
	strcpy(out, value);
	return 0;
}

static int set_all(struct credentials *ret, const char *key_id, const char *secret,
	const char *token, struct why *why)
{
	int r = set(ret->key_id, sizeof ret->key_id, key_id, "the access key id", why);

	if (!r)
		r = set(ret->secret, sizeof ret->secret, secret, "the secret access key", why);
	if (!r)
		r = set(ret->token, sizeof ret->token, token ? token : "", "the session token",
			why);
	return r;
}

/* --- provider: environment --- */

static int read_environment(const struct chain *chain, struct reading *ret, struct why *why)
{
	const char *key_id = environment("AWS_ACCESS_KEY_ID");
	const char *secret = environment("AWS_SECRET_ACCESS_KEY");

	if (chain->explicit_file || chain->explicit_profile || (!key_id && !secret))
		return -ENOENT;
	if (!key_id || !secret)
		return why_set(why, -EINVAL, "%s is set but %s is not: set both, or neither",
			key_id ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY",
			key_id ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID");
	return set_all(&ret->credentials, key_id, secret, environment("AWS_SESSION_TOKEN"), why);
}

/* --- provider: files --- */

static int64_t file_mtime_ns(const char *path)
{
	struct stat st;

	if (!path || stat(path, &st) < 0)
		return 0;
	return st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec;
}

static bool files_changed(const struct chain *chain, const int64_t mtimes_ns[2])
{
	for (int i = 0; i < 2; i++) {
		if (file_mtime_ns(chain->files[i]) != mtimes_ns[i])
			return true;
	}
	return false;
}

/* The name of a profile's section: only "default" goes without "profile" in the config file. */
static char *section_name(const char *profile, bool config_file)
{
	char *section;

	if (!config_file || !strcmp(profile, "default"))
		return strdup(profile);
	return asprintf(&section, "profile %s", profile) < 0 ? NULL : section;
}

static int file_error(const char *path, int error, unsigned line, struct why *why)
{
	if (error == -EINVAL)
		return why_set(why, error,
			"%s, line %u: neither [section] nor name = value; correct the line", path,
			line);
	return why_set(why, error, "%s can't be read: %s", path, strerror(-error));
}

static int read_file(const struct chain *chain, int i, struct reading *ret, bool *ret_has_profile,
	struct why *why)
{
	_cleanup_(freep) char *section = section_name(chain->profile, i == 1);
	const char *key_id, *secret, *path = chain->files[i];
	struct ini *ini = NULL;
	unsigned line;
	int r;

	if (!section)
		return -ENOMEM;
	if (!path)
		return -ENOENT;
	ret->mtimes_ns[i] = 0;
	r = ini_read(path, &ini, &ret->mtimes_ns[i], &line);
	if (r == -ENOENT && !chain->explicit_file)
		return r;
	if (r)
		return file_error(path, r, line, why);
	*ret_has_profile |= ini_has_section(ini, section);
	key_id = ini_get(ini, section, "aws_access_key_id");
	secret = ini_get(ini, section, "aws_secret_access_key");
	if (key_id && secret)
		r = set_all(&ret->credentials, key_id, secret,
			ini_get(ini, section, "aws_session_token"), why);
	else if (key_id || secret)
		r = why_set(why, -EINVAL,
			"%s: profile \"%s\" has only one of aws_access_key_id and "
			"aws_secret_access_key: give both",
			path, chain->profile);
	else
		r = -ENOENT;
	ini_free(ini);
	return r;
}

static int read_files(const struct chain *chain, struct reading *ret, struct why *why)
{
	bool has_profile = false;
	int r = -ENOENT;

	for (int i = 0; i < 2 && r == -ENOENT; i++) {
		r = read_file(chain, i, ret, &has_profile, why);
		/* A file that was named must be there. */
		if (r == -ENOENT && chain->explicit_file && !ret->mtimes_ns[0])
			return r;
	}
	/* The config file may give keys tomorrow, or the credentials file lose them. */
	if (!r && chain->files[1] && !ret->mtimes_ns[1])
		ret->mtimes_ns[1] = file_mtime_ns(chain->files[1]);
	if (r == -ENOENT && chain->explicit_file)
		return why_set(why, r,
			"credentials=%s has no keys for profile \"%s\": add a section [%s] with "
			"aws_access_key_id and aws_secret_access_key",
			chain->files[0], chain->profile, chain->profile);
	if (r == -ENOENT && chain->explicit_profile)
		return why_set(why, r,
			"profile \"%s\" %s: correct aws_profile= or AWS_PROFILE, or add the "
			"profile to %s",
			chain->profile, has_profile ? "has no keys" : "does not exist",
			chain->files[0]);
	return r;
}

static const struct provider providers[] = {
	{"environment", read_environment, NULL},
	{"files", read_files, files_changed},
};

/* --- the chain --- */

static int find_provider(struct chain *chain, struct why *why)
{
	for (size_t i = 0; i < sizeof providers / sizeof providers[0]; i++) {
		int r;

		chain->provider = &providers[i];
		if (why)
			why->text[0] = '\0';
		r = chain->provider->read(chain, &chain->current, why);
		if (r != -ENOENT || (why && *why->text))
			return r;
	}
	return why_set(why, -ENOENT,
		"no credentials found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY before the "
		"daemon starts (one that runs sees no other environment), write %s, give "
		"credentials=FILE, or mount with the option anonymous",
		chain->files[0]);
}

static int chain_setup(struct chain *chain, const struct origin_config *config)
{
	chain->explicit_file = config->credentials != NULL;
	chain->explicit_profile = config->aws_profile || environment("AWS_PROFILE");
	chain->profile = strdup(profile_name(config));
	if (config->credentials) {
		chain->files[0] = strdup(config->credentials);
	} else {
		chain->files[0] = home_file("AWS_SHARED_CREDENTIALS_FILE", "credentials");
		chain->files[1] = home_file("AWS_CONFIG_FILE", "config");
	}
	if (!chain->profile || !chain->files[0] || (!config->credentials && !chain->files[1]))
		return -ENOMEM;
	return 0;
}

int chain_new(const struct origin_config *config, struct chain **ret, struct why *why)
{
	struct chain *chain = calloc(1, sizeof *chain);
	struct why reason = {""};
	int r;

	if (!chain)
		return -ENOMEM;
	lock_init(&chain->lock);
	r = chain_setup(chain, config);
	if (!r)
		r = find_provider(chain, &reason);
	if (r) {
		chain_free(chain);
		return *reason.text ? why_set(why, r, "%s", reason.text) : r;
	}
	*ret = chain;
	return 0;
}

void chain_free(struct chain *chain)
{
	if (!chain)
		return;
	credentials_wipe(&chain->current.credentials);
	free(chain->files[0]);
	free(chain->files[1]);
	free(chain->profile);
	lock_destroy(&chain->lock);
	free(chain);
}

char *chain_identity(const struct chain *chain)
{
	char *identity;

	if (chain->provider->read == read_environment)
		return strdup(chain->current.credentials.key_id);
	if (!chain->explicit_file)
		return strdup(chain->profile);
	return asprintf(&identity, "%s:%s", chain->files[0], chain->profile) < 0 ? NULL : identity;
}

/* Reads anew without the lock; what can't be read (a file that is half written) leaves the old ones
 * valid. */
static void refresh(struct chain *chain)
{
	struct reading *fresh = calloc(1, sizeof *fresh);

	if (fresh && !chain->provider->read(chain, fresh, NULL)) {
		lock_take(&chain->lock);
		chain->current = *fresh;
		lock_drop(&chain->lock);
	}
	if (fresh)
		credentials_wipe(&fresh->credentials);
	free(fresh);
}

int chain_get(struct chain *chain, bool again, struct credentials *ret)
{
	uint64_t now = clock_now_ns();
	int64_t mtimes_ns[2];
	bool look;

	lock_take(&chain->lock);
	look = chain->provider->changed && now - chain->looked_ns >= LOOK_AGAIN_NS;
	if (look)
		chain->looked_ns = now;
	memcpy(mtimes_ns, chain->current.mtimes_ns, sizeof mtimes_ns);
	lock_drop(&chain->lock);
	if (again || (look && chain->provider->changed(chain, mtimes_ns)))
		refresh(chain);
	lock_take(&chain->lock);
	*ret = chain->current.credentials;
	lock_drop(&chain->lock);
	return *ret->key_id ? 0 : -EACCES;
}

char *profile_setting(const struct origin_config *config, const char *name)
{
	_cleanup_(freep) char *path = home_file("AWS_CONFIG_FILE", "config");
	_cleanup_(freep) char *section = section_name(profile_name(config), true);
	struct ini *ini = NULL;
	const char *value;
	char *copy = NULL;
	unsigned line;

	if (!path || !section || ini_read(path, &ini, NULL, &line))
		return NULL;
	value = ini_get(ini, section, name);
	if (value && *value)
		copy = strdup(value);
	ini_free(ini);
	return copy;
}
