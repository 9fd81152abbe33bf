/*
 * choose: which provider counts, by what is configured. The order is that of the AWS CLI, version 2:
 *
 *  1. AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, unless a profile or a file is given as an option
 *  2. the profile's role_arn
 *  3. AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN
 *  4. the profile's sso_session, keys in the credentials file, credential_process, keys in the config
 *     file
 *  5. AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI
 *  6. the instance metadata service
 *
 * With the option credentials= or aws_profile= only the profile counts.
 */
#include "credentials/provider.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"

#include "credentials/ini.h"

#define ROLES_MAX 5 /* roles that are taken by way of each other */

/* The files of a setup, read. */
struct files {
	const struct setup *setup;
	struct ini *ini[2];
};

static int file_error(const char *path, int error, unsigned line, struct why *why)
{
	if (error == -EINVAL)
		return why_set(why, error,
			"%s, line %u: neither [section] nor name = value; correct the line", path,
			line);
	return why_set(why, error, "%s can't be read: %s", path, strerror(-error));
}

static int files_read(struct files *files, const struct setup *setup, struct why *why)
{
	*files = (struct files){.setup = setup};
	for (int i = 0; i < 2; i++) {
		unsigned line;
		int r;

		if (!setup->files[i])
			continue;
		r = ini_read(setup->files[i], &files->ini[i], NULL, &line);
		/* A file that was named must be there. */
		if (r == -ENOENT && !setup->explicit_file)
			continue;
		if (r)
			return file_error(setup->files[i], r, line, why);
	}
	return 0;
}

static void files_free(struct files *files)
{
	ini_free(files->ini[0]);
	ini_free(files->ini[1]);
}

/* The name of a profile's section: only "default" goes without "profile" in the config file. */
static char *section_name(const char *profile, bool config_file)
{
	char *section;

	if (!config_file || !strcmp(profile, "default"))
		return strdup(profile);
	return asprintf(&section, "profile %s", profile) < 0 ? NULL : section;
}

static const char *setting_in(
	const struct files *files, int i, const char *profile, const char *name)
{
	_cleanup_(freep) char *section = section_name(profile, i == 1);
	const char *value = files->ini[i] && section ? ini_get(files->ini[i], section, name) : NULL;

	return value && *value ? value : NULL;
}

/* The credentials file goes before the config file. */
static const char *setting(const struct files *files, const char *profile, const char *name)
{
	const char *value = setting_in(files, 0, profile, name);

	return value ? value : setting_in(files, 1, profile, name);
}

static bool profile_exists(const struct files *files, const char *profile)
{
	for (int i = 0; i < 2; i++) {
		_cleanup_(freep) char *section = section_name(profile, i == 1);

		if (files->ini[i] && section && ini_has_section(files->ini[i], section))
			return true;
	}
	return false;
}

/* --- parts of a profile. Each: 0, -ENOENT when there is no such thing, else -errno with why --- */

static int keys_in(const struct files *files, int i, const char *profile, struct provider **ret,
	struct why *why)
{
	const char *key_id = setting_in(files, i, profile, "aws_access_key_id");
	const char *secret = setting_in(files, i, profile, "aws_secret_access_key");

	if (!key_id && !secret)
		return -ENOENT;
	if (!key_id || !secret)
		return why_set(why, -EINVAL,
			"%s: profile \"%s\" has only one of aws_access_key_id and "
			"aws_secret_access_key: give both",
			files->setup->files[i], profile);
	return provider_keys(files->setup->files[i], key_id, secret,
		setting_in(files, i, profile, "aws_session_token"), ret, why);
}

static int process_of(
	const struct files *files, const char *profile, struct provider **ret, struct why *why)
{
	const char *command = setting(files, profile, "credential_process");

	return command ? provider_process(command, ret, why) : -ENOENT;
}

static int sso_of(
	const struct files *files, const char *profile, struct provider **ret, struct why *why)
{
	const char *session = setting(files, profile, "sso_session");
	const char *region = setting(files, profile, "sso_region");
	const char *start_url = setting(files, profile, "sso_start_url");
	const char *account = setting(files, profile, "sso_account_id");
	const char *role = setting(files, profile, "sso_role_name");
	_cleanup_(freep) char *section = NULL;

	if (!session && !start_url)
		return -ENOENT;
	if (session && files->ini[1]) {
		if (asprintf(&section, "sso-session %s", session) < 0)
			return -ENOMEM;
		region = ini_get(files->ini[1], section, "sso_region");
	}
	if (!region || !account || !role)
		return why_set(why, -EINVAL,
			"profile \"%s\" lacks one of sso_region, sso_account_id and sso_role_name",
			profile);
	return provider_sso(session ? session : start_url, region, account, role, ret, why);
}

static int environment_keys(struct provider **ret, struct why *why)
{
	const char *key_id = environment("AWS_ACCESS_KEY_ID");
	const char *secret = environment("AWS_SECRET_ACCESS_KEY");

	if (!key_id && !secret)
		return -ENOENT;
	if (!key_id || !secret)
		return why_set(why, -EINVAL, "%s is set but %s is not: set both, or neither",
			key_id ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY",
			key_id ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID");
	return provider_keys(NULL, key_id, secret, environment("AWS_SESSION_TOKEN"), ret, why);
}

static int named_source(const struct files *files, const char *profile, const char *name,
	struct provider **ret, struct why *why)
{
	int r;

	if (!strcmp(name, "Environment"))
		r = environment_keys(ret, why);
	else if (!strcmp(name, "Ec2InstanceMetadata"))
		r = provider_instance(files->setup, ret, why);
	else if (!strcmp(name, "EcsContainer"))
		r = provider_container(ret, why);
	else
		return why_set(why, -EINVAL,
			"profile \"%s\": credential_source=%s is not known: give Environment, "
			"Ec2InstanceMetadata or EcsContainer",
			profile, name);
	if (r == -ENOENT)
		return why_set(why, -EINVAL,
			"profile \"%s\": credential_source=Environment, but AWS_ACCESS_KEY_ID is "
			"not set",
			profile);
	return r;
}

static int from_profile(const struct files *files, const char *profile, unsigned depth,
	struct provider **ret, struct why *why);

static int source_of(const struct files *files, const char *profile, unsigned depth,
	struct provider **ret, struct why *why)
{
	const char *source = setting(files, profile, "source_profile");
	const char *name = setting(files, profile, "credential_source");
	int r = -ENOENT;

	if (!!source == !!name)
		return why_set(why, -EINVAL,
			"profile \"%s\" has a role_arn: give it source_profile or "
			"credential_source, and not both",
			profile);
	if (name)
		return named_source(files, profile, name, ret, why);
	if (depth == ROLES_MAX)
		return why_set(why, -EINVAL, "profile \"%s\": the source profiles go in a circle",
			profile);
	/* A profile may name itself: its own keys are meant. */
	if (!strcmp(source, profile))
		for (int i = 0; i < 2 && r == -ENOENT; i++)
			r = keys_in(files, i, source, ret, why);
	else
		r = from_profile(files, source, depth + 1, ret, why);
	if (r == -ENOENT)
		return why_set(why, -EINVAL, "profile \"%s\": its source_profile \"%s\" %s",
			profile, source,
			profile_exists(files, source) ? "has no credentials" : "does not exist");
	return r;
}

static int role_of(const struct files *files, const char *profile, unsigned depth,
	struct provider **ret, struct why *why)
{
	const char *token_file = setting(files, profile, "web_identity_token_file");
	struct role role = {
		.arn = setting(files, profile, "role_arn"),
		.session_name = setting(files, profile, "role_session_name"),
		.external_id = setting(files, profile, "external_id"),
		.duration_seconds = setting(files, profile, "duration_seconds"),
	};
	struct provider *source = NULL;
	int r;

	if (!role.arn)
		return -ENOENT;
	if (token_file)
		return provider_web_identity(files->setup, &role, token_file, ret, why);
	if (setting(files, profile, "mfa_serial"))
		return why_set(why, -EINVAL,
			"profile \"%s\" needs a code (mfa_serial), for which a service can't ask",
			profile);
	r = source_of(files, profile, depth, &source, why);
	return r ? r : provider_role(files->setup, &role, source, ret, why);
}

static int from_profile(const struct files *files, const char *profile, unsigned depth,
	struct provider **ret, struct why *why)
{
	int r = role_of(files, profile, depth, ret, why);

	if (r == -ENOENT)
		r = sso_of(files, profile, ret, why);
	if (r == -ENOENT)
		r = keys_in(files, 0, profile, ret, why);
	if (r == -ENOENT)
		r = process_of(files, profile, ret, why);
	if (r == -ENOENT)
		r = keys_in(files, 1, profile, ret, why);
	return r;
}

/* --- the order --- */

static int nothing_in_profile(const struct files *files, struct why *why)
{
	const struct setup *setup = files->setup;

	if (setup->explicit_file)
		return why_set(why, -ENOENT,
			"credentials=%s has no keys for profile \"%s\": add a section [%s] with "
			"aws_access_key_id and aws_secret_access_key",
			setup->files[0], setup->profile, setup->profile);
	return why_set(why, -ENOENT,
		"profile \"%s\" %s: correct aws_profile= or AWS_PROFILE, or add the profile to %s",
		setup->profile,
		profile_exists(files, setup->profile) ? "has no credentials" : "does not exist",
		setup->files[0]);
}

static int web_identity_of_environment(
	const struct setup *setup, struct provider **ret, struct why *why)
{
	const char *token_file = environment("AWS_WEB_IDENTITY_TOKEN_FILE");
	struct role role = {.arn = environment("AWS_ROLE_ARN"),
		.session_name = environment("AWS_ROLE_SESSION_NAME")};

	if (!token_file)
		return -ENOENT;
	if (!role.arn)
		return why_set(why, -EINVAL,
			"AWS_WEB_IDENTITY_TOKEN_FILE is set but AWS_ROLE_ARN is not: set both, or "
			"neither");
	return provider_web_identity(setup, &role, token_file, ret, why);
}

static int from_surroundings(const struct setup *setup, struct provider **ret, struct why *why)
{
	const char *disabled = environment("AWS_EC2_METADATA_DISABLED");

	if (environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") ||
		environment("AWS_CONTAINER_CREDENTIALS_FULL_URI"))
		return provider_container(ret, why);
	if (!disabled || strcasecmp(disabled, "true") != 0)
		return provider_instance(setup, ret, why);
	return why_set(why, -ENOENT,
		"no credentials found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY before the "
		"daemon starts (one that runs sees no other environment), write %s, give "
		"credentials=FILE, or mount with the option anonymous",
		setup->files[0]);
}

static int from_anywhere(const struct files *files, struct provider **ret, struct why *why)
{
	const struct setup *setup = files->setup;
	int r;

	if (environment("AWS_PROFILE") && !profile_exists(files, setup->profile))
		return nothing_in_profile(files, why);
	r = role_of(files, setup->profile, 0, ret, why);
	if (r == -ENOENT)
		r = web_identity_of_environment(setup, ret, why);
	if (r == -ENOENT)
		r = from_profile(files, setup->profile, 0, ret, why);
	return r == -ENOENT ? from_surroundings(setup, ret, why) : r;
}

int provider_choose(const struct setup *setup, struct provider **ret, struct why *why)
{
	bool only_profile = setup->explicit_file || setup->explicit_profile;
	struct files files;
	int r = -ENOENT;

	if (setup->hub)
		return provider_token(setup->files[0], ret, why);
	if (setup->header)
		return provider_header(setup->files[0], ret, why);
	if (!only_profile)
		r = environment_keys(ret, why);
	if (r != -ENOENT)
		return r;
	r = files_read(&files, setup, why);
	if (!r && only_profile) {
		r = from_profile(&files, setup->profile, 0, ret, why);
		if (r == -ENOENT)
			r = nothing_in_profile(&files, why);
	} else if (!r) {
		r = from_anywhere(&files, ret, why);
	}
	files_free(&files);
	return r;
}

char *profile_setting(const struct origin_config *config, const char *name)
{
	const char *variable = environment("AWS_CONFIG_FILE");
	_cleanup_(freep) char *path = variable ? strdup(variable) : home_aws_file("config");
	const char *profile =
		config->aws_profile ? config->aws_profile : environment("AWS_PROFILE");
	_cleanup_(freep) char *section = section_name(profile ? profile : "default", true);
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
