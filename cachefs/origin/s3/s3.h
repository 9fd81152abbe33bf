/* s3: an origin in a bucket. What its parts share. */
#ifndef S3_S3_H
#define S3_S3_H

#include <stdatomic.h>

#include "base/lock.h"

#include "impl.h"
#include "credentials/credentials.h"
#include "s3/list_xml.h"

#define S3_REGION_MAX 64

struct s3 {
	struct origin base;
	char *bucket, *prefix; /* prefix: "" or "a/b/" */
	char *endpoint;        /* host of a server that was named; NULL: AWS's, by region */
	bool tls, virtual_host;
	struct chain *chain;           /* NULL: anonymous */
	_Atomic int64_t clock_ahead_s; /* how far the server's clock is before ours */
	_Atomic bool list_v1;          /* the server knows no ListObjectsV2 */
	struct lock lock;
	char region[S3_REGION_MAX]; /* lock */
};

static inline struct s3 *s3_of(const struct origin *origin)
{
	return (struct s3 *)((char *)origin - offsetof(struct s3, base));
}

/* A HEAD or LIST. */
struct s3_request {
	struct request base;
	char *key; /* HEAD: the key; LIST: the prefix of the keys */
	/* LIST: */
	bool probe;  /* only whether there is any key below */
	bool v1;     /* how this page is asked for */
	char *token; /* continuation token or marker; "" for the first page */
	unsigned limit;
};
static inline struct s3_request *s3_request_of(const struct request *request)
{
	return (struct s3_request *)((char *)request - offsetof(struct s3_request, base));
}
void s3_request_free(struct s3_request *request);

/* prefix + path [+ "/"], malloc'ed; NULL when memory is short. */
char *s3_key(const struct s3 *s3, const char *path, bool directory);

/* call.c: one try. */
int s3_prepare(struct request *request, struct call *call);
void s3_judge(struct request *request, struct verdict *verdict);
/* The same for an Error document in an answer that says 200. */
void s3_judge_error(
	struct request *request, const struct error_document *error, struct verdict *verdict);

/* list.c, stat.c */
void s3_list(struct origin_list *list);
void s3_stat(struct origin_stat *stat);
/* Makes a request that lists one key below `prefix`. Sets accept, not finish and release. */
void s3_probe_init(struct s3_request *request, struct origin *origin);

#endif
