/* circle: finds out that a listing's pages go round in a circle, by Brent's algorithm over what tells
 * pages apart. */
#ifndef ORIGIN_CIRCLE_H
#define ORIGIN_CIRCLE_H

#include <stdbool.h>
#include <stdint.h>

struct circle {
	uint64_t steps, power, hash; /* all 0 before the first page */
};

/* The next page is the one of this hash. True when it came before. */
static inline bool circle_closed(struct circle *circle, uint64_t hash)
{
	if (circle->power && circle->hash == hash)
		return true;
	if (circle->steps == circle->power) {
		circle->hash = hash;
		circle->power = circle->power ? circle->power * 2 : 1;
		circle->steps = 0;
	}
	circle->steps++;
	return false;
}

#endif
