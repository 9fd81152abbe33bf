#include "origin/origin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

#include "impl.h"

#define TIMEOUT_DEFAULT_MS  300000
#define CONNECTIONS_DEFAULT 32
#define CONNECTIONS_MAX     256
/* As many GETs may run whatever the throughput says: bulk needs no more on a near link, but the next
 * read may be of small pieces from far. */
#define GETS_LEAST 4
/* What an idle origin may take at once, and pauses not worth a timer. */
#define PACE_BURST_NS (100 * NS_PER_MS)
#define PACE_LEAST_NS (5 * NS_PER_MS)

static int check_config(const struct origin_config *config, struct why *why)
{
	if (!config->source || !*config->source)
		return why_set(why, -EINVAL,
			"no source: give s3://bucket[/prefix], hf://org/repo[@revision], "
			"http(s)://host/path/ or file:///dir");
	if (config->connections > CONNECTIONS_MAX)
		return why_set(why, -EINVAL, "connections=%u is too many: give 1 to %u",
			config->connections, CONNECTIONS_MAX);
	if (config->ca && access(config->ca, R_OK) < 0) {
		int r = -errno;

		return why_set(why, r, "ca=%s can't be read: %s; give a file of PEM certificates",
			config->ca, strerror(-r));
	}
	return 0;
}

static int open_kind(const struct source *source, const struct origin_config *config,
	struct origin **ret, struct why *why)
{
	switch (source->kind) {
	case SOURCE_S3:
		return s3_open(source, config, ret, why);
	case SOURCE_HTTP:
		return http_open(source, config, ret, why);
	case SOURCE_HF:
		return hf_open(source, config, ret, why);
	case SOURCE_DIR:
		if (config->bandwidth_bytes)
			return why_set(why, -EINVAL,
				"bandwidth= holds for what comes by HTTP; a file:// source is read "
				"without a limit: leave the option out");
		return dir_open(source, ret, why);
	}
	return -EINVAL;
}

static int fill_in(struct origin *origin, struct origin_engine *engine, struct source *source,
	const struct origin_config *config)
{
	unsigned connections = config->connections ? config->connections : CONNECTIONS_DEFAULT;

	origin->engine = engine;
	origin->timeout_ms = config->timeout_ms ? config->timeout_ms : TIMEOUT_DEFAULT_MS;
	origin->bandwidth_bytes = config->bandwidth_bytes;
	flow_set(&origin->flow, connections < GETS_LEAST ? connections : GETS_LEAST, connections);
	for (unsigned i = 0; i < ENGINE_LOOPS; i++)
		lane_init(&origin->lanes[i],
			connections / ENGINE_LOOPS + (i < connections % ENGINE_LOOPS), i == 0);
	origin->stats.reachable = true;
	origin->source = source->text;
	source->text = NULL;
	if (!config->ca)
		return 0;
	origin->ca = strdup(config->ca);
	return origin->ca ? 0 : -ENOMEM;
}

int origin_open(struct origin_engine *engine, const struct origin_config *config,
	struct origin **ret, struct why *why)
{
	struct source source = {0};
	struct origin *origin = NULL;
	int r = check_config(config, why);

	if (!r)
		r = source_parse(config->source, &source, why);
	if (!r)
		r = open_kind(&source, config, &origin, why);
	if (!r)
		r = fill_in(origin, engine, &source, config);
	source_free(&source);
	if (r) {
		origin_unref(origin);
		return r == -ENOMEM ? why_set(why, r, "out of memory") : r;
	}
	*ret = origin;
	return 0;
}

struct origin *origin_ref(struct origin *origin)
{
	atomic_fetch_add_explicit(&origin->refs, 1, memory_order_relaxed);
	return origin;
}

void origin_unref(struct origin *origin)
{
	if (!origin)
		return;
	unsigned before = atomic_fetch_sub_explicit(&origin->refs, 1, memory_order_acq_rel);

	check(before > 0);
	if (before > 1)
		return;
	free(origin->source);
	free(origin->identity);
	free(origin->ca);
	lock_destroy(&origin->lock);
	flow_destroy(&origin->flow);
	origin->ops->destroy(origin);
}

void origin_setup(struct origin *origin, const struct origin_ops *ops)
{
	origin->ops = ops;
	atomic_init(&origin->refs, 1);
	lock_init(&origin->lock);
	flow_init(&origin->flow);
}

void origin_shutdown(struct origin *origin)
{
	atomic_store(&origin->shut, true);
	engine_look_for_shut(origin->engine);
}

bool origin_is_shut(const struct origin *origin)
{
	return atomic_load(&origin->shut);
}

const char *origin_source(const struct origin *origin)
{
	return origin->source;
}

bool origin_lists_all(const struct origin *origin)
{
	return !origin->ops->lists_some;
}

bool origin_is_far(const struct origin *origin)
{
	return origin->ops->prepare;
}

bool origin_lists_in_order(const struct origin *origin)
{
	return origin->ops->lists_in_order;
}

const char *origin_identity(const struct origin *origin)
{
	return origin->identity ? origin->identity : "";
}

struct pool_share *origin_share(struct origin *origin)
{
	return &origin->share;
}

int origin_object_name(const struct origin *origin, const char *path, char *name, size_t size)
{
	return origin->ops->object_name(origin, path, name, size);
}

void origin_get_start(struct origin_get *get)
{
	get->private.state = NULL;
	check(get->length > 0 && get->offset <= get->size_bytes &&
		get->length <= get->size_bytes - get->offset);
	get->origin->ops->get(get);
}

/* A GET that found no memory has nobody to tell: its done is on its way. */
static void tell(struct origin_get *get, unsigned signal)
{
	if (get->private.state)
		get->origin->ops->get_signal(get, signal);
}

void origin_get_resume(struct origin_get *get)
{
	tell(get, SIGNAL_RESUME);
}

void origin_get_promote(struct origin_get *get, enum origin_priority priority)
{
	if (priority == ORIGIN_DEMAND)
		tell(get, SIGNAL_DEMAND);
	else if (priority == ORIGIN_READAHEAD)
		tell(get, SIGNAL_READAHEAD);
}

void origin_get_unpace(struct origin_get *get)
{
	tell(get, SIGNAL_UNPACED);
}

void origin_get_cancel(struct origin_get *get)
{
	tell(get, SIGNAL_CANCEL);
}

void origin_stat_start(struct origin_stat *stat)
{
	stat->origin->ops->stat(stat);
}

void origin_list_start(struct origin_list *list)
{
	list->next_token = NULL;
	list->hidden_keys = 0;
	list->unlisted = false;
	list->private.state = NULL;
	list->origin->ops->list(list);
}

void origin_list_promote(struct origin_list *list)
{
	if (list->private.state)
		engine_signal(list->private.state, SIGNAL_DEMAND);
}

static bool is_error(enum origin_outcome outcome)
{
	return outcome != ORIGIN_OK && outcome != ORIGIN_NOT_FOUND && outcome != ORIGIN_CHANGED;
}

void origin_count(struct origin *origin, enum request_kind kind, const struct verdict *verdict)
{
	struct origin_stats *stats = &origin->stats;
	uint64_t *counts[] = {[REQUEST_GET] = stats->gets,
		[REQUEST_HEAD] = stats->heads,
		[REQUEST_LIST] = stats->lists};
	bool is_news;

	lock_take(&origin->lock);
	is_news = is_error(verdict->outcome) && strcmp(stats->last_error, verdict->text) != 0;
	counts[kind][verdict->outcome]++;
	if (verdict->step == STEP_RETRY || verdict->step == STEP_AGAIN)
		stats->retries++;
	/* A final refusal is an answer too. */
	stats->reachable =
		verdict->outcome != ORIGIN_NETWORK_ERROR &&
		!(verdict->outcome == ORIGIN_SERVER_ERROR && verdict->step == STEP_RETRY);
	if (is_error(verdict->outcome)) {
		snprintf(stats->last_error, sizeof stats->last_error, "%s", verdict->text);
		stats->last_error_wall_ns = clock_wall_ns();
	}
	lock_drop(&origin->lock);
	/* A fault that lasts is one line, not one for each try. */
	if (is_news)
		log_warn("origin_error", "source=%s error=%s", origin->source, verdict->text);
}

void origin_note_no_ranges(struct origin *origin)
{
	bool known;

	lock_take(&origin->lock);
	known = origin->stats.ignores_ranges;
	origin->stats.ignores_ranges = true;
	lock_drop(&origin->lock);
	if (!known)
		log_warn("origin_without_ranges",
			"source=%s: each read costs the bytes before it too, and files of more "
			"than %u MiB are EIO",
			origin->source, ORIGIN_DISCARD_MAX >> 20);
}

uint64_t origin_pace(struct origin *origin, size_t n)
{
	uint64_t now, ahead_ns;

	if (!origin->bandwidth_bytes)
		return 0;
	lock_take(&origin->lock);
	now = clock_now_ns();
	if (origin->paced_ns + PACE_BURST_NS < now)
		origin->paced_ns = now - PACE_BURST_NS;
	origin->paced_ns += (uint64_t)((double)n * NS_PER_SEC / (double)origin->bandwidth_bytes);
	ahead_ns = origin->paced_ns > now ? origin->paced_ns - now : 0;
	lock_drop(&origin->lock);
	return ahead_ns >= PACE_LEAST_NS ? ahead_ns : 0;
}

void origin_count_running(struct origin *origin, int change)
{
	lock_take(&origin->lock);
	origin->stats.in_flight = (unsigned)((int)origin->stats.in_flight + change);
	lock_drop(&origin->lock);
}

void origin_count_move(struct origin *origin)
{
	lock_take(&origin->lock);
	origin->stats.moves++;
	lock_drop(&origin->lock);
}

void origin_count_hedge(struct origin *origin)
{
	lock_take(&origin->lock);
	origin->stats.hedges++;
	lock_drop(&origin->lock);
}

void origin_count_twice(struct origin *origin, uint64_t bytes)
{
	lock_take(&origin->lock);
	origin->stats.hedge_bytes += bytes;
	lock_drop(&origin->lock);
}

unsigned origin_limit(const struct origin *origin)
{
	return origin->ops->prepare ? atomic_load(&origin->flow.limit) : 0;
}

bool origin_is_slow_to_answer(const struct origin *origin)
{
	return atomic_load(&origin->flow.far);
}

enum origin_aging origin_aging(const struct origin *origin)
{
	const struct flow *flow = &origin->flow;

	if (!atomic_load(&flow->far) || atomic_load(&flow->lasts))
		return ORIGIN_LASTS;
	return atomic_load(&flow->ages) ? ORIGIN_AGES : ORIGIN_AGING_UNKNOWN;
}

uint64_t origin_mib_ns(const struct origin *origin)
{
	return atomic_load(&origin->flow.mib_ns);
}

void origin_stats(struct origin *origin, struct origin_stats *ret)
{
	lock_take(&origin->lock);
	*ret = origin->stats;
	lock_drop(&origin->lock);
	ret->bytes = atomic_load(&origin->bytes);
	ret->limit = origin_limit(origin);
}
