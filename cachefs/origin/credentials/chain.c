#include "credentials/credentials.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"

#include "credentials/provider.h"
#include "engine.h"

#define LOOK_AGAIN_NS  NS_PER_SEC
#define FETCH_AGAIN_NS NS_PER_SEC /* at least between two fetches */
/* Requests wait for the next try within their own time. */
#define BACKOFF_MAX_NS (10 * NS_PER_SEC)
/* How long before the end new ones are fetched: of short lives a quarter. */
#define AHEAD_MAX_S 300
/* Credentials that come with their end in the past are used all the same (the clock may be wrong;
 * the instance service gives old ones when it can't do better), and asked for anew so often. */
#define PAST_END_S 60

struct chain {
	_Atomic unsigned refs; /* the owner's and the worker's */
	_Atomic bool stop;
	struct setup setup; /* unchanged after chain_new */
	char *identity;     /* the same */
	struct job job;
	struct origin_engine *engine; /* set before the job is posted */

	/* Of chain_new, then of whoever set `working`. */
	struct provider *provider;
	int64_t mtimes_ns[2]; /* of the files when the provider was chosen */

	struct lock lock;
	bool working;                      /* lock: the job is posted or runs */
	bool usable;                       /* lock: current may be used until end_s */
	bool fixed;                        /* lock: nothing else can be had from the provider */
	struct credentials current;        /* lock */
	uint64_t number;                   /* lock: counts what current was */
	int64_t renew_s, end_s;            /* lock: wall clock; INT64_MAX: never */
	uint64_t looked_ns, not_before_ns; /* lock: the last look, and no fetch before */
	unsigned failures;                 /* lock: since the last success */
	int error;                         /* lock: of the last fetch, 0 or -errno */
	bool rejected;                     /* lock: the origin refused current */
	struct why why;                    /* lock: of error */
};

static int64_t now_s(void)
{
	return clock_wall_ns() / (int64_t)NS_PER_SEC;
}

static uint64_t random_below(uint64_t limit)
{
	uint64_t random = 0;

	if (!limit || getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random)
		return 0;
	return random % limit;
}

static int64_t file_mtime_ns(const char *path)
{
	struct stat st;

	if (!path || stat(path, &st) < 0)
		return 0;
	return st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec;
}

static void look_at_files(const struct chain *chain, int64_t mtimes_ns[2])
{
	for (int i = 0; i < 2; i++)
		mtimes_ns[i] = file_mtime_ns(chain->setup.files[i]);
}

/* --- what came of a fetch; the lock is held --- */

static void take(struct chain *chain, const struct credentials *fresh)
{
	int64_t now = now_s(), left = fresh->expires_s - now, ahead;

	check(lock_held(&chain->lock));
	chain->current = *fresh;
	chain->number++;
	chain->usable = true;
	chain->rejected = false;
	chain->error = 0;
	chain->failures = 0;
	chain->not_before_ns = clock_now_ns() + FETCH_AGAIN_NS;
	chain->renew_s = chain->end_s = INT64_MAX;
	if (!fresh->expires_s)
		return;
	if (left < 1)
		left = PAST_END_S;
	ahead = left / 4 < AHEAD_MAX_S ? left / 4 : AHEAD_MAX_S;
	/* Nodes that started together don't ask together. */
	chain->renew_s = now + left - ahead - (int64_t)random_below((uint64_t)ahead / 5 + 1);
	chain->end_s = now + left;
}

static void fail(struct chain *chain, int error, const struct why *why)
{
	uint64_t pause = NS_PER_SEC;

	check(lock_held(&chain->lock));
	for (unsigned i = 0; i < chain->failures && pause < BACKOFF_MAX_NS; i++)
		pause *= 2;
	if (pause > BACKOFF_MAX_NS)
		pause = BACKOFF_MAX_NS;
	chain->failures++;
	chain->not_before_ns = clock_now_ns() + pause / 2 + random_below(pause / 2);
	chain->error = error;
	chain->why = *why;
	/* What was refused stays refused; what is valid goes on. */
	if (chain->rejected)
		chain->usable = false;
}

/* --- the fetch --- */

/* A file that is half written, or a profile that is gone, leaves the provider that there is. */
static void choose_again(struct chain *chain)
{
	struct provider *provider = NULL;
	int64_t mtimes_ns[2];
	struct why why = {""};
	int r;

	look_at_files(chain, mtimes_ns);
	r = provider_choose(&chain->setup, &provider, &why);
	memcpy(chain->mtimes_ns, mtimes_ns, sizeof mtimes_ns);
	if (r) {
		log_warn("credentials_not_read", "identity=%s error=%s", chain->identity, why.text);
		return;
	}
	provider_free(chain->provider);
	chain->provider = provider;
}

static int fetch(struct chain *chain)
{
	struct credentials *fresh = calloc(1, sizeof *fresh);
	struct why why = {""};
	const char *name = chain->provider->ops->name;
	int r = fresh ? chain->provider->ops->fetch(chain->provider, &chain->stop, fresh, &why)
		      : -ENOMEM;

	if (r && !*why.text)
		why_set(&why, r, "%s", strerror(-r));
	lock_take(&chain->lock);
	if (r)
		fail(chain, r, &why);
	else
		take(chain, fresh);
	chain->fixed = chain->provider->ops->fixed;
	lock_drop(&chain->lock);
	if (fresh)
		credentials_wipe(fresh);
	free(fresh);
	if (r && r != -ECANCELED)
		log_warn("credentials_not_renewed", "identity=%s provider=%s error=%s",
			chain->identity, name, why.text);
	return r;
}

static void destroy(struct chain *chain)
{
	if (atomic_fetch_sub(&chain->refs, 1) > 1)
		return;
	provider_free(chain->provider);
	credentials_wipe(&chain->current);
	for (int i = 0; i < 2; i++)
		free(chain->setup.files[i]);
	free(chain->setup.profile);
	free(chain->setup.region);
	free(chain->setup.ca);
	free(chain->identity);
	lock_destroy(&chain->lock);
	free(chain);
}

static bool files_changed(const struct chain *chain)
{
	int64_t mtimes_ns[2];

	look_at_files(chain, mtimes_ns);
	return memcmp(mtimes_ns, chain->mtimes_ns, sizeof mtimes_ns) != 0;
}

/* Is it time for a fetch? The lock is held. */
static bool is_due(const struct chain *chain)
{
	int64_t now = now_s();

	if (clock_now_ns() < chain->not_before_ns)
		return false;
	return !chain->usable || chain->rejected || now >= chain->renew_s || now >= chain->end_s;
}

/* The worker's. */
static void run(struct job *job)
{
	struct chain *chain = container_of(job, struct chain, job);
	struct origin_engine *engine = chain->engine;
	bool changed = files_changed(chain), due, rejected;

	lock_take(&chain->lock);
	due = is_due(chain);
	rejected = due && chain->rejected;
	lock_drop(&chain->lock);
	/* A change within the clock's grain shows in nothing but a refusal. */
	if (changed || rejected)
		choose_again(chain);
	if ((changed || due) && !atomic_load(&chain->stop))
		fetch(chain);
	lock_take(&chain->lock);
	chain->working = false;
	lock_drop(&chain->lock);
	destroy(chain);
	engine_wake_waiting(engine);
}

/* --- who asks --- */

static void start(struct chain *chain, struct origin_engine *engine)
{
	atomic_fetch_add(&chain->refs, 1);
	chain->engine = engine;
	chain->job = (struct job){.run = run};
	list_init(&chain->job.link);
	engine_fetch(engine, &chain->job);
}

/* What a request gets. The lock is held. */
static int answer(
	const struct chain *chain, struct credentials *ret, uint64_t *ret_number, struct why *why)
{
	bool fetching = chain->working || clock_now_ns() >= chain->not_before_ns;

	if (chain->usable && !chain->rejected && now_s() < chain->end_s) {
		*ret = chain->current;
		*ret_number = chain->number;
		return 0;
	}
	if (chain->error && chain->error != -EIO && !fetching)
		return why_set(why, -EACCES, "%s", chain->why.text);
	return why_set(why, -EAGAIN, "waits for credentials%s%s", chain->error ? ": " : "",
		chain->error ? chain->why.text : "");
}

int chain_get(struct chain *chain, struct origin_engine *engine, struct credentials *ret,
	uint64_t *ret_number, struct why *why)
{
	uint64_t now = clock_now_ns();
	bool begin;
	int r;

	lock_take(&chain->lock);
	begin = !chain->working && !atomic_load(&chain->stop) &&
		(is_due(chain) || now - chain->looked_ns >= LOOK_AGAIN_NS);
	if (begin) {
		chain->working = true;
		chain->looked_ns = now;
	}
	r = answer(chain, ret, ret_number, why);
	lock_drop(&chain->lock);
	if (begin)
		start(chain, engine);
	return r;
}

bool chain_reject(struct chain *chain, uint64_t number)
{
	bool others;

	lock_take(&chain->lock);
	others = !chain->fixed;
	if (others && number == chain->number)
		chain->rejected = true;
	lock_drop(&chain->lock);
	return others;
}

/* --- its beginning and end --- */

static char *copy(const char *text)
{
	return text ? strdup(text) : NULL;
}

static char *file_of(const char *variable, const char *name)
{
	const char *path = environment(variable);

	return path ? strdup(path) : home_aws_file(name);
}

static const char *profile_name(const struct origin_config *config)
{
	const char *name = config->aws_profile ? config->aws_profile : environment("AWS_PROFILE");

	return name ? name : "default";
}

static int set_up(struct setup *setup, const struct origin_config *config, const char *region)
{
	setup->explicit_file = config->credentials != NULL;
	setup->explicit_profile = config->aws_profile != NULL;
	setup->profile = strdup(profile_name(config));
	setup->region = strdup(region);
	setup->ca = copy(config->ca);
	if (config->credentials) {
		setup->files[0] = strdup(config->credentials);
	} else {
		setup->files[0] = file_of("AWS_SHARED_CREDENTIALS_FILE", "credentials");
		setup->files[1] = file_of("AWS_CONFIG_FILE", "config");
	}
	if (!setup->profile || !setup->region || !setup->files[0] || (config->ca && !setup->ca) ||
		(!config->credentials && !setup->files[1]))
		return -ENOMEM;
	return 0;
}

static char *make_identity(const struct setup *setup, const struct provider *provider)
{
	char *identity;

	if (setup->header || setup->hub)
		return strdup(setup->files[0] ? setup->files[0] : "HF_TOKEN");
	if (setup->explicit_file)
		return asprintf(&identity, "%s:%s", setup->files[0], setup->profile) < 0 ? NULL
											 : identity;
	return strdup(provider->identity ? provider->identity : setup->profile);
}

static struct chain *make(void)
{
	struct chain *chain = calloc(1, sizeof *chain);

	if (!chain)
		return NULL;
	lock_init(&chain->lock);
	atomic_init(&chain->refs, 1);
	return chain;
}

/* Chooses the provider, and fetches what is at hand. */
static int begin(struct chain *chain, struct why *why)
{
	int r;

	look_at_files(chain, chain->mtimes_ns);
	chain->looked_ns = clock_now_ns();
	r = provider_choose(&chain->setup, &chain->provider, why);
	if (r)
		return r;
	chain->identity = make_identity(&chain->setup, chain->provider);
	if (!chain->identity)
		return -ENOMEM;
	return chain->provider->ops->local ? fetch(chain) : 0;
}

int chain_new(
	const struct origin_config *config, const char *region, struct chain **ret, struct why *why)
{
	struct chain *chain = make();
	int r;

	if (!chain)
		return -ENOMEM;
	r = set_up(&chain->setup, config, region);
	if (!r)
		r = begin(chain, why);
	if (r) {
		destroy(chain);
		return r;
	}
	*ret = chain;
	return 0;
}

int chain_new_header(const char *path, struct chain **ret, struct why *why)
{
	struct chain *chain = make();
	int r;

	if (!chain)
		return -ENOMEM;
	chain->setup.header = true;
	chain->setup.files[0] = strdup(path);
	r = chain->setup.files[0] ? begin(chain, why) : -ENOMEM;
	if (r) {
		destroy(chain);
		return r;
	}
	*ret = chain;
	return 0;
}

int chain_new_token(const struct origin_config *config, struct chain **ret, struct why *why)
{
	bool in_environment = !config->credentials && token_of_environment();
	char *file = NULL;
	struct chain *chain;
	int r = 0;

	*ret = NULL;
	if (config->anonymous)
		return 0;
	if (config->credentials)
		r = (file = strdup(config->credentials)) ? 0 : -ENOMEM;
	else if (!in_environment)
		r = token_file(&file);
	if (r || (!file && !in_environment))
		return r;
	chain = make();
	if (!chain) {
		free(file);
		return -ENOMEM;
	}
	chain->setup.hub = true;
	chain->setup.files[0] = file;
	r = begin(chain, why);
	if (r)
		destroy(chain);
	else
		*ret = chain;
	return r;
}

void chain_free(struct chain *chain)
{
	if (!chain)
		return;
	atomic_store(&chain->stop, true);
	destroy(chain);
}

char *chain_identity(const struct chain *chain)
{
	return strdup(chain->identity);
}
