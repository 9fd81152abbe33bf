#include "later.h"

#include "base/list.h"

#include "engine.h"
#include "impl.h"

static void get_run(struct job *job)
{
	struct origin_get *get = container_of(job, struct origin_get, private.job);

	get->done(get, get->private.error);
}

static void stat_run(struct job *job)
{
	struct origin_stat *stat = container_of(job, struct origin_stat, private.job);

	stat->done(stat, stat->private.error);
}

static void list_run(struct job *job)
{
	struct origin_list *list = container_of(job, struct origin_list, private.job);

	list->done(list, list->private.error);
}

void later_get(struct origin_get *get, int error)
{
	engine_later(get->origin->engine, &get->private, get_run, error);
}

void later_stat(struct origin_stat *stat, int error)
{
	engine_later(stat->origin->engine, &stat->private, stat_run, error);
}

void later_list(struct origin_list *list, int error)
{
	engine_later(list->origin->engine, &list->private, list_run, error);
}
