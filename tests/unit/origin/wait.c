#include "wait.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/list.h"

static void wait(sem_t *sem)
{
	while (sem_wait(sem) < 0)
		;
}

static size_t data(struct origin_get *get, const uint8_t *bytes, size_t n)
{
	struct wait_get *own = container_of(get, struct wait_get, get);
	size_t room = own->pause_at ? own->pause_at - own->size : sizeof own->bytes - own->size;
	size_t took = n < room ? n : room;

	memcpy(own->bytes + own->size, bytes, took);
	own->size += took;
	if (took < n) {
		check(own->pause_at);
		own->pause_at = 0;
		sem_post(&own->paused);
	}
	return took;
}

static void get_done(struct origin_get *get, int error)
{
	struct wait_get *own = container_of(get, struct wait_get, get);

	own->error = error;
	sem_post(&own->done);
}

void wait_get_start(struct wait_get *own)
{
	sem_init(&own->done, 0, 0);
	sem_init(&own->paused, 0, 0);
	own->size = 0;
	own->get.data = data;
	own->get.done = get_done;
	origin_get_start(&own->get);
}

int wait_get_done(struct wait_get *own)
{
	wait(&own->done);
	sem_destroy(&own->done);
	sem_destroy(&own->paused);
	return own->error;
}

int wait_get(struct wait_get *own)
{
	wait_get_start(own);
	return wait_get_done(own);
}

struct stat_wait {
	struct origin_stat stat;
	sem_t done;
	int error;
};

static void stat_done(struct origin_stat *stat, int error)
{
	struct stat_wait *own = container_of(stat, struct stat_wait, stat);

	own->error = error;
	sem_post(&own->done);
}

int wait_stat(struct origin *origin, const char *path, struct origin_attr *ret)
{
	struct stat_wait own = {.stat = {.origin = origin, .path = path, .done = stat_done}};

	sem_init(&own.done, 0, 0);
	origin_stat_start(&own.stat);
	wait(&own.done);
	sem_destroy(&own.done);
	*ret = own.stat.attr;
	return own.error;
}

struct list_wait {
	struct origin_list list;
	struct wait_list *ret;
	sem_t done;
	int error;
};

static void entry(struct origin_list *list, const struct origin_entry *found)
{
	struct wait_list *ret = container_of(list, struct list_wait, list)->ret;
	size_t used = strlen(ret->names);

	snprintf(ret->names + used, sizeof ret->names - used, "%.*s%s\n", (int)found->name_size,
		found->name, found->attr.kind == ORIGIN_DIR ? "/" : "");
}

static void list_done(struct origin_list *list, int error)
{
	struct list_wait *own = container_of(list, struct list_wait, list);

	own->error = error;
	sem_post(&own->done);
}

int wait_list(struct origin *origin, const char *path, struct wait_list *ret)
{
	char *token = NULL;
	int error;

	*ret = (struct wait_list){.pages = 0};
	do {
		struct list_wait own = {.ret = ret,
			.list = {.origin = origin,
				.path = path,
				.token = token,
				.entry = entry,
				.done = list_done}};

		sem_init(&own.done, 0, 0);
		origin_list_start(&own.list);
		wait(&own.done);
		sem_destroy(&own.done);
		free(token);
		token = own.list.next_token;
		ret->hidden += own.list.hidden_keys;
		ret->pages++;
		error = own.error;
	} while (token && !error);
	check(!token);
	return error;
}
