#include <stdlib.h>
#include <string.h>

#include "room.h"

json_t *json_shown(const char *text)
{
	json_t *value = json_string(text);
	char *copy;

	/* jansson refuses what is no UTF-8. */
	if (value)
		return value;
	copy = strdup(text);
	if (!copy)
		return NULL;
	for (char *p = copy; *p; p++) {
		if ((unsigned char)*p >= 0x80)
			*p = '?';
	}
	value = json_string(copy);
	free(copy);
	return value;
}
