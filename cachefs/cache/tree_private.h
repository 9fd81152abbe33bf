/* What the files of the tree share. tree.lock guards everything below it; it is never held over a
 * callback. The start of a listing's page is made under it, so that from start to done it can be told
 * that it is wanted sooner. */
#ifndef CACHE_TREE_PRIVATE_H
#define CACHE_TREE_PRIVATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/map.h"
#include "base/work.h"
#include "cache/tree.h"
#include "listing.h"
#include "origin/origin.h"

/* Listings remembered in memory, in bytes; the index has them all. */
#define TREE_BYTES_MAX (64u << 20)
#define TREE_NAMES_MAX 65536u
/* How long a failed question is not asked again while there is an older answer. */
#define TREE_RETRY_NS (5 * NS_PER_SEC)
/* After this time a question to an origin out of reach is answered from what is remembered. */
#define TREE_PATIENCE_NS (2 * NS_PER_SEC)

/* A question that nobody waits for ends after so many names. */
#define AHEAD_NAMES_MAX 20000u

/* Somebody lists a directory's children one after the other. */
struct walk {
	uint64_t begun_ns, last_ns;
	unsigned children; /* that were listed so far, each counted once */
	unsigned unused;   /* asked for ahead, and not come to yet */
	size_t next;       /* the entry to go on with, of the listing there is now; 0 */
};

/* A directory: its listing, and the question for it. */
struct dir {
	struct map_node node;
	struct list lru;
	struct tree *tree;
	char *path;
	struct listing *listing; /* the last whole one, fresh or not; NULL */
	/* Monotonic time when it was asked for, also when it was forgotten since; 0: expired. */
	uint64_t fresh_from_ns;
	uint64_t missing_from_ns; /* the origin said that there is none; 0 */
	uint64_t failed_ns;       /* when the last question failed; 0 */
	/* More than one page, or none to be had of a web server: names are asked for one by one. */
	bool large;
	bool refused; /* memory had no room for the last listing; written by its question's thread */
	bool index_read; /* the index was asked, or has nothing newer */
	bool doubted; /* what was asked for before isn't to be believed, nor what the index has */
	unsigned saving; /* listings on their way to the index, which still has an older one */
	bool asking;     /* a question is under way */
	bool whole;      /* wanted to its end, whoever goes away meanwhile */
	uint64_t asked_ns;
	bool ahead;  /* the question is asked for a walk, nobody waits yet; counted in n_ahead */
	bool unused; /* was asked for ahead, and the walk didn't come to it yet */
	bool pinned; /* not to be forgotten now */
	uint64_t walked_ns; /* when a walk over the parent's children last came here; 0 */
	struct walk walk;
	bool not_saved; /* the last listing was too large for the index; the save job's */
	struct list lists, lookups; /* who waits */
	struct list to_ask;         /* in todo.dirs */
	struct origin_list request;
	struct listing *growing; /* of the question under way, once it is asked; its thread adds */
	bool unordered; /* its pages came out of order once: names are given when all are there */
	struct job job;
};

/* One name of a large directory, or one that was asked for by itself. */
struct name {
	struct map_node node;
	struct list lru;
	struct tree *tree;
	char *path;
	struct origin_attr attr;
	bool known, missing;    /* the last answer */
	uint64_t fresh_from_ns; /* monotonic time when it was asked for; 0: expired */
	uint64_t failed_ns;
	bool asking;
	uint64_t asked_ns;
	struct list lookups; /* who waits */
	struct list again;   /* who wants an answer that was asked for after they came */
	struct list to_ask;  /* in todo.names */
	struct origin_stat request;
};

struct tree {
	struct cache *cache;
	struct origin *origin;
	struct tree_config config;
	struct lock lock;
	struct map dirs, names;
	struct list dirs_lru, names_lru;
	struct list more; /* streams that wait for names */
	struct list link; /* cache->trees_lock: in cache->trees */
	size_t bytes;
	unsigned saves; /* listings on their way to the index: to_save, and those of the job */
	struct list to_save;
	struct job save_job;
	unsigned n_ahead;
	unsigned asking; /* questions under way; tree_free waits for none */
	struct cond quiet;
	struct cond tick;
	bool ending;
	pthread_t ticker;
	struct tree_stats stats;
};

/* What was found out under the lock, to be done without it. */
struct todo {
	struct list lookups, lists, more; /* to be given their answers */
	struct list dirs, names;          /* to be asked for */
};
void todo_init(struct todo *todo);
void todo_do(struct todo *todo);

/* tree.c; all with tree.lock held. */

/* True while what was learned at from_ns may be used; *ret_left_ms: for how long. */
bool tree_fresh(uint64_t from_ns, uint64_t ttl_ms, uint64_t *ret_left_ms);
bool tree_out_of_reach(struct tree *tree);
void lookup_answer(struct tree_lookup *lookup, int error, const struct origin_attr *attr,
	uint64_t fresh_ms, struct todo *todo);
void list_answer(struct tree_list *list, int error, struct listing *listing, uint64_t fresh_ms,
	struct todo *todo);
/* Answers the lookup or has it wait. told: its directory's question was answered just now, however
 * long that stays fresh. */
void lookup_step(struct tree_lookup *lookup, bool told, struct todo *todo);
void tree_asking(struct tree *tree);
void tree_asked(struct tree *tree);

/* tree_names.c; tree.lock held. */
struct name *name_find(struct tree *tree, const char *path);
/* Has the lookup wait for the origin's answer about its name. */
void name_wait(struct tree_lookup *lookup, struct todo *todo);
/* Without the lock. */
void name_ask(struct name *name);
void names_release(struct tree *tree, uint64_t now, struct todo *todo);
void names_free(struct tree *tree);

/* tree_table.c; tree.lock held. */
/* Made if there is none; NULL: no memory. */
struct dir *dir_get(struct tree *tree, const char *path, size_t path_size);
/* Without making one. */
struct dir *dir_find(struct tree *tree, const char *path, size_t path_size);
/* Its last component. */
const char *dir_name(const struct dir *dir);
/* Gives it another listing, a reference, or NULL for none. */
void dir_install(struct dir *dir, struct listing *listing);
/* Forgets the directories used longest ago, until their listings take no more than this; the index
 * still has them. */
void dirs_trim(struct tree *tree, size_t max_bytes, const struct dir *keep);
/* Memory is short: forgets every listing but those that a save holds anyway. */
void dirs_forget(struct tree *tree);
void dirs_free(struct tree *tree);

/* tree_dirs.c; tree.lock held. */
/* Its question begins; there is none yet. */
void dir_begin(struct dir *dir, struct todo *todo);
void dir_wait_lookup(struct dir *dir, struct tree_lookup *lookup, struct todo *todo);
void dir_wait_list(struct dir *dir, struct tree_list *list, struct todo *todo);
/* Has the directory asked for when it isn't already. */
void dir_refresh(struct dir *dir, struct todo *todo);
/* Memory had no room for the listing lately: names are asked for one by one. */
bool dir_refused(const struct dir *dir);
/* Without the lock. */
void dir_ask(struct dir *dir);
/* True: a lookup is answered by the names that have come so far. */
bool dir_growing_has(struct dir *dir, const char *component, struct listing_entry *ret);
/* Answers who waits for more of this listing, as far as there is more. */
void dir_give_more(struct tree *tree, const struct listing *listing, struct todo *todo);
void dirs_release(struct tree *tree, uint64_t now, struct todo *todo);

/* tree_ahead.c; tree.lock held. */
/* Somebody lists this directory, whose listing or question is there: its siblings may be next. */
void ahead_step(struct dir *child, struct todo *todo);
/* Somebody waits for the question now. */
void ahead_wanted(struct dir *dir);
void ahead_ended(struct dir *dir);
/* The directory goes, and whether the walk comes to it will not be known. */
void ahead_forgotten(struct dir *child);

/* tree_saved.c */
/* Has the directory's listing written, by a worker. One that isn't saved costs a question after the
 * next start, no more. tree.lock held. */
void dir_save(struct dir *dir);
/* The listing from before, however old; NULL: there is none. Without the lock; blocks. */
struct listing *dir_saved(struct dir *dir);

#endif
