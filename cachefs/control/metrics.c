/*
 * The text of /metrics: Prometheus's text format 0.0.4
 * (https://prometheus.io/docs/instrumenting/exposition_formats/). All samples of one metric stand
 * together, so the volumes are looked at first and written metric by metric.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "process.h"
#include "room.h"
#include "waits.h"

#define VOLUMES_MAX 4096

struct sample {
	uint64_t id;
	char *labels;            /* volume="1",source="…" */
	struct volume_info info; /* its pointers are not to be followed any more */
	uint64_t hit_bytes, miss_bytes, passthrough_opens;
	struct volume_waits waits;
	struct origin_stats origin;
	struct tree_stats tree;
};

struct samples {
	struct sample *all;
	size_t count;
};

/* As the format wants a label's value: backslash, quote and newline escaped, UTF-8. */
static void add_label_value(struct buf *out, const char *text)
{
	json_t *shown = json_shown(text);

	for (const char *p = shown ? json_string_value(shown) : ""; *p; p++) {
		if (*p == '\\' || *p == '"')
			buf_printf(out, "\\%c", *p);
		else if (*p == '\n')
			buf_add_string(out, "\\n");
		else
			buf_add(out, p, 1);
	}
	json_decref(shown);
}

static char *volume_labels(const struct volume_info *info)
{
	struct buf labels;

	buf_init(&labels, 1 << 16);
	buf_printf(&labels, "volume=\"%" PRIu64 "\",source=\"", info->id);
	add_label_value(&labels, info->source);
	buf_add_string(&labels, "\"");
	return buf_steal(&labels);
}

static void take_sample(void *arg, struct volume *volume)
{
	struct samples *samples = arg;
	struct sample *sample, *all;

	if (samples->count == VOLUMES_MAX)
		return;
	all = reallocarray(samples->all, samples->count + 1, sizeof *all);
	if (!all)
		return;
	samples->all = all;
	sample = &all[samples->count];
	volume_info(volume, &sample->info);
	sample->labels = volume_labels(&sample->info);
	if (!sample->labels)
		return;
	sample->hit_bytes = sample->info.account->hit_bytes;
	sample->miss_bytes = sample->info.account->miss_bytes;
	sample->passthrough_opens = sample->info.account->passthrough_opens;
	volume_waits(sample->info.account, &sample->waits);
	origin_stats(volume_origin(volume), &sample->origin);
	tree_stats(volume_tree(volume), &sample->tree);
	samples->count++;
}

void metrics_head(struct buf *out, const char *name, const char *type, const char *help)
{
	buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void single(
	struct buf *out, const char *name, const char *type, const char *help, double value)
{
	metrics_head(out, name, type, help);
	buf_printf(out, "%s %.16g\n", name, value);
}

static double hit_bytes(const struct sample *s)
{
	return (double)s->hit_bytes;
}

static double miss_bytes(const struct sample *s)
{
	return (double)s->miss_bytes;
}

static double requests(const struct sample *s)
{
	return (double)s->info.requests;
}

static double lookups(const struct sample *s)
{
	return (double)s->info.lookups;
}

static double reads(const struct sample *s)
{
	return (double)s->info.reads;
}

static double opens(const struct sample *s)
{
	return (double)s->info.opens;
}

static double passthrough_opens(const struct sample *s)
{
	return (double)s->passthrough_opens;
}

static double estale_opens(const struct sample *s)
{
	return (double)s->info.estale_opens;
}

static double nodes(const struct sample *s)
{
	return (double)s->info.nodes;
}

static double handles(const struct sample *s)
{
	return (double)s->info.handles;
}

static double parked(const struct sample *s)
{
	return (double)s->info.parked;
}

static double listing_hits(const struct sample *s)
{
	return (double)s->tree.hits;
}

static double listing_misses(const struct sample *s)
{
	return (double)s->tree.misses;
}

static double stale(const struct sample *s)
{
	return (double)s->tree.stale;
}

static double hidden_keys(const struct sample *s)
{
	return (double)s->tree.hidden_keys;
}

static double listings_refused(const struct sample *s)
{
	return (double)s->tree.refused;
}

static double origin_bytes(const struct sample *s)
{
	return (double)s->origin.bytes;
}

static double origin_retries(const struct sample *s)
{
	return (double)s->origin.retries;
}

static double origin_in_flight(const struct sample *s)
{
	return (double)s->origin.in_flight;
}

static double origin_reachable(const struct sample *s)
{
	return s->origin.reachable;
}

static const struct {
	const char *name, *type, *help;
	double (*value)(const struct sample *sample);
} volume_metrics[] = {
	{"cachefs_hit_bytes_total", "counter", "Bytes read that the cache had.", hit_bytes},
	{"cachefs_miss_bytes_total", "counter", "Bytes read after a wait for the origin.",
		miss_bytes},
	{"cachefs_fuse_requests_total", "counter", "Requests from the kernel.", requests},
	{"cachefs_fuse_lookups_total", "counter", "Lookups among the requests.", lookups},
	{"cachefs_fuse_reads_total", "counter", "Reads among the requests.", reads},
	{"cachefs_opens_total", "counter", "Files opened.", opens},
	{"cachefs_passthrough_opens_total", "counter",
		"Files opened whose reads the kernel does by itself.", passthrough_opens},
	{"cachefs_stale_opens_total", "counter",
		"Opens that made the kernel look the name up again.", estale_opens},
	{"cachefs_nodes", "gauge", "Nodes that the kernel knows.", nodes},
	{"cachefs_handles", "gauge", "Open handles.", handles},
	{"cachefs_parked_requests", "gauge", "Requests that wait for the origin or the store.",
		parked},
	{"cachefs_listing_hits_total", "counter", "Names answered from memory or the index.",
		listing_hits},
	{"cachefs_listing_misses_total", "counter", "Names for which the origin was asked.",
		listing_misses},
	{"cachefs_listing_stale_total", "counter",
		"Names answered beyond their time since the origin was out of reach.", stale},
	{"cachefs_hidden_keys", "gauge",
		"Keys that can't be shown as names; of a directory, links and special "
		"files that aren't shown.",
		hidden_keys},
	{"cachefs_listings_refused_total", "counter", "Listings for which memory had no room.",
		listings_refused},
	{"cachefs_origin_received_bytes_total", "counter",
		"Bytes of object bodies, failed tries included.", origin_bytes},
	{"cachefs_origin_retries_total", "counter", "Requests to the origin that were tried again.",
		origin_retries},
	{"cachefs_origin_requests_in_flight", "gauge", "Requests to the origin under way.",
		origin_in_flight},
	{"cachefs_origin_reachable", "gauge", "1 when the origin's last answer was one.",
		origin_reachable},
};

static void write_volumes(struct buf *out, const struct samples *samples)
{
	for (size_t m = 0; m < sizeof volume_metrics / sizeof volume_metrics[0]; m++) {
		metrics_head(out, volume_metrics[m].name, volume_metrics[m].type,
			volume_metrics[m].help);
		for (size_t i = 0; i < samples->count; i++)
			buf_printf(out, "%s{%s} %.16g\n", volume_metrics[m].name,
				samples->all[i].labels, volume_metrics[m].value(&samples->all[i]));
	}
}

static void write_waits(struct buf *out, const struct samples *samples)
{
	struct labelled_waits *waits = calloc(samples->count + 1, sizeof *waits);

	if (!waits) {
		out->error = -ENOMEM;
		return;
	}
	for (size_t i = 0; i < samples->count; i++)
		waits[i] = (struct labelled_waits){samples->all[i].labels, &samples->all[i].waits};
	waits_write_metrics(out, waits, samples->count);
	free(waits);
}

static void write_outcomes(struct buf *out, const struct sample *sample, const char *kind,
	const uint64_t outcomes[ORIGIN_OUTCOMES])
{
	static const char *const names[ORIGIN_OUTCOMES] = {
		[ORIGIN_OK] = "ok",
		[ORIGIN_NOT_FOUND] = "not_found",
		[ORIGIN_DENIED] = "denied",
		[ORIGIN_CHANGED] = "changed",
		[ORIGIN_THROTTLED] = "throttled",
		[ORIGIN_SERVER_ERROR] = "server_error",
		[ORIGIN_NETWORK_ERROR] = "network_error",
	};

	for (size_t i = 0; i < ORIGIN_OUTCOMES; i++)
		buf_printf(out,
			"cachefs_origin_requests_total{%s,kind=\"%s\",outcome=\"%s\"} %" PRIu64
			"\n",
			sample->labels, kind, names[i], outcomes[i]);
}

static void write_requests(struct buf *out, const struct samples *samples)
{
	metrics_head(out, "cachefs_origin_requests_total", "counter",
		"Tries of requests to the origin, each with its outcome.");
	for (size_t i = 0; i < samples->count; i++) {
		const struct sample *sample = &samples->all[i];

		write_outcomes(out, sample, "get", sample->origin.gets);
		write_outcomes(out, sample, "head", sample->origin.heads);
		write_outcomes(out, sample, "list", sample->origin.lists);
	}
}

static void write_cache(struct buf *out, const struct cache_stats *stats)
{
	const struct {
		const char *name, *type, *help;
		double value;
	} metrics[] = {
		{"cachefs_store_capacity_bytes", "gauge", "Bytes that the store may use.",
			(double)stats->capacity_bytes},
		{"cachefs_store_used_bytes", "gauge", "Bytes of disk blocks that the store uses.",
			(double)stats->used_bytes},
		{"cachefs_store_objects", "gauge", "Object versions in the store.",
			(double)stats->objects},
		{"cachefs_store_full", "gauge", "1 when the last try to keep bytes found no space.",
			stats->store_full},
		{"cachefs_store_errors_total", "counter", "Reads and writes that the disk failed.",
			(double)stats->store_errors},
		{"cachefs_store_written_bytes_total", "counter", "Bytes written to the store.",
			(double)stats->written_bytes},
		{"cachefs_fetches_total", "counter", "Ranges asked of origins.",
			(double)stats->fetches},
		{"cachefs_fetched_bytes_total", "counter", "Bytes of these ranges that came.",
			(double)stats->fetched_bytes},
		{"cachefs_uncached_bytes_total", "counter", "Bytes that were fetched and not kept.",
			(double)stats->uncached_bytes},
		{"cachefs_checksum_failures_total", "counter",
			"Chunks dropped since their bytes were wrong.",
			(double)stats->checksum_failures},
		{"cachefs_evictions_total", "counter", "Objects evicted.",
			(double)stats->evicted_objects},
		{"cachefs_evicted_bytes_total", "counter", "Bytes freed by evictions.",
			(double)stats->evicted_bytes},
		{"cachefs_commits_total", "counter", "Transactions of the index.",
			(double)stats->commits},
		{"cachefs_pool_buffers", "gauge", "Buffers of 1 MiB that all bytes pass through.",
			(double)stats->pool_buffers},
		{"cachefs_pool_buffers_in_use", "gauge", "Buffers in use.",
			(double)stats->pool_in_use},
		{"cachefs_pool_waiters", "gauge", "Requests that wait for a buffer.",
			(double)stats->pool_waiters},
		{"cachefs_index_map_bytes", "gauge", "Ceiling of the index's map.",
			(double)stats->index_map_bytes},
		{"cachefs_index_map_used_bytes", "gauge", "Used part of the index's map.",
			(double)stats->index_map_used_bytes},
	};

	for (size_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++)
		single(out, metrics[i].name, metrics[i].type, metrics[i].help, metrics[i].value);
}

/* The names that Prometheus's own client libraries use for every process. */
static void write_usage(
	struct buf *out, const struct control *control, const struct process_usage *usage)
{
	const struct {
		const char *name, *type, *help;
		double value;
	} metrics[] = {
		{"process_start_time_seconds", "gauge", "When the daemon started, in Unix time.",
			(double)control->started_wall_ns / (double)NS_PER_SEC},
		{"process_cpu_seconds_total", "counter", "Processor time of the daemon.",
			usage->cpu_s},
		{"process_resident_memory_bytes", "gauge", "Resident memory of the daemon.",
			(double)usage->rss_bytes},
		{"process_open_fds", "gauge", "Descriptors that the daemon has open.", usage->fds},
		{"process_max_fds", "gauge", "Descriptors that it may have open.", usage->max_fds},
		{"process_threads", "gauge", "Threads of the daemon.", usage->threads},
	};

	for (size_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++)
		single(out, metrics[i].name, metrics[i].type, metrics[i].help, metrics[i].value);
}

static void write_process(struct buf *out, const struct control *control)
{
	struct process_usage usage;

	process_usage(&usage);
	write_usage(out, control, &usage);
	metrics_head(out, "cachefs_resident_memory_bytes", "gauge",
		"Resident memory of the daemon by kind.");
	buf_printf(out,
		"cachefs_resident_memory_bytes{kind=\"anon\"} %" PRIu64
		"\ncachefs_resident_memory_bytes{kind=\"shmem\"} %" PRIu64
		"\ncachefs_resident_memory_bytes{kind=\"file\"} %" PRIu64 "\n",
		usage.anon_bytes, usage.shmem_bytes, usage.file_bytes);
	single(out, "cachefs_daemon_restarts_total", "counter",
		"Daemons that died and were followed by another, since the keeper's start.",
		control->config.keeper.restarts);
	metrics_head(out, "cachefs_build_info", "gauge", "1, with the daemon's version.");
	buf_printf(out, "cachefs_build_info{version=\"%s\"} 1\n", CACHEFS_VERSION);
}

void metrics_write(struct control *control, struct buf *out)
{
	struct samples samples = {0};
	struct cache_stats stats;

	volumes_each(control->config.volumes, take_sample, &samples);
	write_waits(out, &samples);
	write_volumes(out, &samples);
	write_requests(out, &samples);
	for (size_t i = 0; i < samples.count; i++)
		free(samples.all[i].labels);
	free(samples.all);
	cache_stats(control->config.cache, &stats);
	write_cache(out, &stats);
	write_process(out, control);
}
