#include "base/waiting.h"

void waiting_begin(struct waiting *waiting)
{
	waiting->done = false;
	waiting->error = 0;
	lock_init(&waiting->lock);
	cond_init(&waiting->ended);
}

void waiting_end(struct waiting *waiting, int error)
{
	lock_take(&waiting->lock);
	waiting->done = true;
	waiting->error = error;
	cond_signal(&waiting->ended);
	lock_drop(&waiting->lock);
}

int waiting_wait(struct waiting *waiting)
{
	int error;

	lock_take(&waiting->lock);
	while (!waiting->done)
		cond_wait(&waiting->ended, &waiting->lock);
	error = waiting->error;
	lock_drop(&waiting->lock);
	cond_destroy(&waiting->ended);
	lock_destroy(&waiting->lock);
	return error;
}
