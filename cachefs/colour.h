/* colour: escapes for standard output; empty where it is no terminal, or NO_COLOR is set. */
#ifndef COLOUR_H
#define COLOUR_H

const char *colour_bold(void);
const char *colour_red(void);
/* Ends both. */
const char *colour_plain(void);

#endif
