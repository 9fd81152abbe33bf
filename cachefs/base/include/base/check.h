/*
 * check: assertions about our own mistakes, always compiled in.
 *
 * A dead daemon is better than a wrong byte in a training run, and the mount can be taken over.
 * Never use check() on what an origin, a disk, a socket, the kernel or a user sent: that is an
 * error to report.
 */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

/* Prints the failed expression and its place on standard error and aborts. Any thread. */
_Noreturn void check_failed(const char *expression, const char *file, int line);

#define check(expression)                                                                          \
	do {                                                                                       \
		if (__builtin_expect(!(expression), 0))                                            \
			check_failed(#expression, __FILE__, __LINE__);                             \
	} while (0)

#endif
