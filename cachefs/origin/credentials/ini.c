#include "credentials/ini.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"

#define INI_FILE_MAX (1u << 20)
#define SETTINGS_MAX 8192

struct setting {
	const char *section, *name, *value; /* name NULL: the section itself */
};

struct ini {
	char *text; /* cut up by NULs */
	size_t text_size;
	struct setting *settings;
	size_t n_settings;
};

static char *trim(char *text)
{
	size_t n;

	text += strspn(text, " \t");
	n = strlen(text);
	while (n && strchr(" \t\r", text[n - 1]))
		n--;
	text[n] = '\0';
	return text;
}

static int add(struct ini *ini, const char *section, const char *name, const char *value)
{
	struct setting *more;

	if (ini->n_settings == SETTINGS_MAX)
		return -EFBIG;
	more = reallocarray(ini->settings, ini->n_settings + 1, sizeof *more);
	if (!more)
		return -ENOMEM;
	ini->settings = more;
	more[ini->n_settings++] = (struct setting){section, name, value};
	return 0;
}

/* "[name]", perhaps with a comment behind. */
static int take_section(struct ini *ini, char *line, const char **section)
{
	char *end = strchr(line, ']');

	if (!end)
		return -EINVAL;
	*end = '\0';
	*section = trim(line + 1);
	return add(ini, *section, NULL, NULL);
}

static int take_line(struct ini *ini, char *line, const char **section)
{
	char *equals, *comment;

	if (*line == ' ' || *line == '\t')
		return 0;
	line = trim(line);
	if (!*line || *line == '#' || *line == ';')
		return 0;
	if (*line == '[')
		return take_section(ini, line, section);
	equals = strchr(line, '=');
	if (!equals || equals == line || !*section)
		return -EINVAL;
	*equals = '\0';
	comment = strstr(equals + 1, " #");
	if (comment)
		*comment = '\0';
	return add(ini, *section, trim(line), trim(equals + 1));
}

int ini_parse(const char *text, struct ini **ret, unsigned *ret_line)
{
	struct ini *ini = calloc(1, sizeof *ini);
	const char *section = NULL;
	unsigned number = 0;
	char *line, *rest;
	int r = 0;

	if (!ini)
		return -ENOMEM;
	ini->text = strdup(text);
	if (!ini->text) {
		free(ini);
		return -ENOMEM;
	}
	ini->text_size = strlen(text);
	rest = ini->text;
	while (!r && (line = strsep(&rest, "\n"))) {
		number++;
		r = take_line(ini, line, &section);
	}
	if (r) {
		*ret_line = number;
		ini_free(ini);
		return r;
	}
	*ret = ini;
	return 0;
}

void ini_free(struct ini *ini)
{
	if (!ini)
		return;
	OPENSSL_cleanse(ini->text, ini->text_size);
	free(ini->text);
	free(ini->settings);
	free(ini);
}

const char *ini_get(const struct ini *ini, const char *section, const char *name)
{
	for (size_t i = ini->n_settings; i > 0; i--) {
		const struct setting *setting = &ini->settings[i - 1];

		if (setting->name && !strcmp(setting->section, section) &&
			!strcmp(setting->name, name))
			return setting->value;
	}
	return NULL;
}

bool ini_has_section(const struct ini *ini, const char *section)
{
	for (size_t i = 0; i < ini->n_settings; i++) {
		if (!strcmp(ini->settings[i].section, section))
			return true;
	}
	return false;
}

static int read_all(int fd, struct buf *out)
{
	char block[4096];
	ssize_t n;

	while ((n = read(fd, block, sizeof block)) != 0) {
		int r = n < 0 ? -errno : buf_add(out, block, (size_t)n);

		if (r && r != -EINTR)
			return r;
	}
	OPENSSL_cleanse(block, sizeof block);
	return 0;
}

int ini_read(const char *path, struct ini **ret, int64_t *ret_mtime_ns, unsigned *ret_line)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	struct buf text;
	int r;

	*ret_line = 0;
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	buf_init(&text, INI_FILE_MAX);
	r = read_all(fd, &text);
	if (!r)
		r = ini_parse(buf_string(&text), ret, ret_line);
	if (text.bytes)
		OPENSSL_cleanse(text.bytes, text.size);
	buf_free(&text);
	if (!r && ret_mtime_ns)
		*ret_mtime_ns = st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec;
	return r;
}
