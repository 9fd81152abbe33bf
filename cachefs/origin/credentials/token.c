/* token: where a token of a Hugging Face hub is when none is given, as huggingface_hub has it. */
#include "credentials/provider.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

const char *token_of_environment(void)
{
	const char *token = environment("HF_TOKEN");

	return token ? token : environment("HUGGING_FACE_HUB_TOKEN");
}

/* HF_TOKEN_PATH, else "token" in HF_HOME, XDG_CACHE_HOME/huggingface, ~/.cache/huggingface. */
int token_file(char **ret)
{
	const char *path = environment("HF_TOKEN_PATH"), *home = environment("HF_HOME");
	const char *cache = environment("XDG_CACHE_HOME");
	_cleanup_(freep) char *user = NULL;
	char *file = NULL;

	if (path)
		file = strdup(path);
	else if (home)
		file = asprintf(&file, "%s/token", home) < 0 ? NULL : file;
	else if (cache)
		file = asprintf(&file, "%s/huggingface/token", cache) < 0 ? NULL : file;
	else if ((user = home_directory()))
		file = asprintf(&file, "%s/.cache/huggingface/token", user) < 0 ? NULL : file;
	if (!file)
		return -ENOMEM;
	if (access(file, F_OK) < 0) {
		free(file);
		file = NULL;
	}
	*ret = file;
	return 0;
}
