/*
 * why: the one sentence that a person gets when something is refused: what was wrong, with which
 * value, and what to do.
 *
 * Functions return 0 or a negative errno and nothing else; those whose failure reaches a person
 * also take a struct why, which is untouched on success. Owned by the caller. One thread at a time.
 */
#ifndef BASE_WHY_H
#define BASE_WHY_H

struct why {
	char text[1024];
};

/* Fills why (which may be NULL) and returns error, so that `return why_set(why, -EINVAL, "...",
 * value);` does both. */
int why_set(struct why *why, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The static analyzer sees one file at a time and would follow a 0 from here. */
#ifdef __clang_analyzer__
#define why_set(...) ((why_set)(__VA_ARGS__), -1)
#endif

#endif
