/*
 * hf: an origin in a repository of a Hugging Face hub (huggingface.co, or what HF_ENDPOINT names).
 * What its parts share.
 *
 * A revision is resolved to a commit, and names are asked for at that commit: one listing, with all
 * its pages, is of one commit. A branch is looked at again when a listing or a stat begins, at most
 * every HF_REFRESH_NS. A file's version is what the hub calls its content (SHA-256 of LFS, else
 * git's blob id), so a commit that doesn't touch a file leaves its version alone.
 *
 * A GET asks /resolve, which answers with the bytes, or sends it on: to itself, or with a signed URL
 * to another host. The redirect says which content is there; the place is kept and used for further
 * ranges until it refuses (the URL has expired), then the hub is asked again. A version that the
 * newest commit no longer has is asked for at the commits before. The token is sent to the hub alone.
 *
 * After huggingface_hub's hf_api.py and file_download.py.
 */
#ifndef HF_HF_H
#define HF_HF_H

#include "base/clock.h"
#include "base/lock.h"

#include "credentials/credentials.h"
#include "hf/places.h"
#include "impl.h"

#define HF_REFRESH_NS (5 * NS_PER_SEC)

struct hf {
	struct origin base;
	char *url;           /* "https://huggingface.co" */
	char *repo;          /* "models/org/name" */
	char *revision;      /* as given */
	char *subdir;        /* "" or "a/b/" */
	bool pinned;         /* the revision is a commit */
	struct chain *chain; /* NULL: anonymous */
	struct lock lock;
	struct commits commits; /* lock */
	uint64_t refreshed_ns;  /* lock: when a request was last sent off to ask for the commit */
	struct places places;   /* lock */
};

static inline struct hf *hf_of(const struct origin *origin)
{
	return (struct hf *)((char *)origin - offsetof(struct hf, base));
}

/* call.c: one try. */
int hf_prepare(struct request *request, struct call *call);
void hf_judge(struct request *request, struct verdict *verdict);
bool hf_check_version(struct request *request);

/* list.c: names. */
void hf_list(struct origin_list *list);
void hf_stat(struct origin_stat *stat);
/* URL and form of a try of theirs. */
void hf_ask_prepare(struct request *request, struct call *call);

#endif
