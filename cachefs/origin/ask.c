#include "ask.h"

#include "base/list.h"
#include "base/waiting.h"

struct question {
	struct origin_stat stat;
	struct waiting waiting;
};

static void answered(struct origin_stat *stat, int error)
{
	waiting_end(&container_of(stat, struct question, stat)->waiting, error);
}

int ask_stat(struct origin *origin, const char *path, struct origin_attr *ret)
{
	struct question question = {.stat = {.origin = origin, .path = path, .done = answered}};
	int r;

	waiting_begin(&question.waiting);
	origin_stat_start(&question.stat);
	r = waiting_wait(&question.waiting);
	if (!r)
		*ret = question.stat.attr;
	return r;
}
