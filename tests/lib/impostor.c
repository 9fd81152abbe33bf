/* A new version that is none. The first letter of the last part of its name says how: 'c' passes its check and crashes
 * when it is to serve, 's' passes it and never says a word, 'h' never ends its check. */
#include <string.h>
#include <unistd.h>

#ifndef REAL
#error "REAL is the program whose check passes"
#endif

int main(int argc, char **argv)
{
	char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
	const char *name;

	if (n < 0)
		return 1;
	path[n] = '\0';
	name = strrchr(path, '/') + 1;
	if (*name != 'h' && !strcmp(argv[argc - 1], "--check"))
		execv(REAL, argv);
	if (*name == 'c')
		__builtin_trap();
	for (;;)
		pause();
}
