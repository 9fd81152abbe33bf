#include "waits.h"

#include <inttypes.h>

#include "base/clock.h"
#include "room.h"

static double seconds(uint64_t ns)
{
	return (double)ns / (double)NS_PER_SEC;
}

static void see(const struct waits *waits, struct waits_seen *ret)
{
	*ret = (struct waits_seen){
		.sum_ns = atomic_load_explicit(&waits->sum_ns, memory_order_relaxed)};
	for (unsigned i = 0; i <= WAIT_BOUNDS; i++) {
		ret->counts[i] = atomic_load_explicit(&waits->counts[i], memory_order_relaxed);
		ret->count += ret->counts[i];
	}
}

void volume_waits(struct cache_account *account, struct volume_waits *ret)
{
	uint64_t now_ns = clock_now_ns();

	for (unsigned i = 0; i < WAITED_FOR; i++)
		see(&account->reads[i], &ret->reads[i]);
	see(&account->names, &ret->names);
	stalls_look(&account->stalled_reads, now_ns, &ret->stalled_reads);
	stalls_look(&account->stalled_names, now_ns, &ret->stalled_names);
}

static json_t *stalls_json(const struct stalls_seen *seen)
{
	return json_pack("{s:i, s:f, s:f, s:f, s:f}", "now", (int)seen->waiting, "seconds",
		seconds(seen->stalled_ns), "share", seen->share, "share_1m", seen->share_1m,
		"share_5m", seen->share_5m);
}

static json_t *waits_json(const struct waits_seen *seen)
{
	return json_pack(
		"{s:I, s:f}", "count", (json_int_t)seen->count, "seconds", seconds(seen->sum_ns));
}

void waits_add_json(json_t *volume, const struct volume_waits *waits)
{
	const struct waits_seen *reads = waits->reads;

	json_object_set_new(volume, "stalled", stalls_json(&waits->stalled_reads));
	json_object_set_new(volume, "stalled_names", stalls_json(&waits->stalled_names));
	json_object_set_new(volume, "waits",
		json_pack("{s:o, s:o, s:o, s:o}", "origin", waits_json(&reads[WAITED_ORIGIN]),
			"store", waits_json(&reads[WAITED_STORE]), "none",
			waits_json(&reads[WAITED_NONE]), "names", waits_json(&waits->names)));
	json_object_set_new(
		volume, "stall_seconds", json_real(seconds(reads[WAITED_ORIGIN].sum_ns)));
}

/* label: `,waited_for="…"`, or "". */
static void write_histogram(struct buf *out, const char *name, const char *labels,
	const char *label, const struct waits_seen *seen)
{
	uint64_t count = 0;

	for (unsigned i = 0; i < WAIT_BOUNDS; i++) {
		count += seen->counts[i];
		buf_printf(out, "%s_bucket{%s%s,le=\"%g\"} %" PRIu64 "\n", name, labels, label,
			seconds(wait_bounds_ns[i]), count);
	}
	buf_printf(
		out, "%s_bucket{%s%s,le=\"+Inf\"} %" PRIu64 "\n", name, labels, label, seen->count);
	buf_printf(out, "%s_sum{%s%s} %.16g\n", name, labels, label, seconds(seen->sum_ns));
	buf_printf(out, "%s_count{%s%s} %" PRIu64 "\n", name, labels, label, seen->count);
}

static void write_reads(struct buf *out, const struct labelled_waits *volumes, size_t count)
{
	static const char *const labels[WAITED_FOR] = {
		[WAITED_NONE] = ",waited_for=\"none\"",
		[WAITED_STORE] = ",waited_for=\"store\"",
		[WAITED_ORIGIN] = ",waited_for=\"origin\"",
	};

	metrics_head(out, "cachefs_read_wait_seconds", "histogram",
		"Time that a read waited for the origin, else for the store, else for nothing.");
	for (size_t i = 0; i < count; i++) {
		for (unsigned j = 0; j < WAITED_FOR; j++)
			write_histogram(out, "cachefs_read_wait_seconds", volumes[i].labels,
				labels[j], &volumes[i].waits->reads[j]);
	}
}

static void write_names(struct buf *out, const struct labelled_waits *volumes, size_t count)
{
	metrics_head(out, "cachefs_name_wait_seconds", "histogram",
		"Time that a lookup, open or listing waited for the origin, of those that did.");
	for (size_t i = 0; i < count; i++)
		write_histogram(out, "cachefs_name_wait_seconds", volumes[i].labels, "",
			&volumes[i].waits->names);
}

static void write_stalled(struct buf *out, const struct labelled_waits *volumes, size_t count)
{
	metrics_head(out, "cachefs_stalled_seconds_total", "counter",
		"Time in which at least one request waited for the origin.");
	for (size_t i = 0; i < count; i++)
		buf_printf(out,
			"cachefs_stalled_seconds_total{%s,request=\"read\"} %.16g\n"
			"cachefs_stalled_seconds_total{%s,request=\"name\"} %.16g\n",
			volumes[i].labels, seconds(volumes[i].waits->stalled_reads.stalled_ns),
			volumes[i].labels, seconds(volumes[i].waits->stalled_names.stalled_ns));
	metrics_head(
		out, "cachefs_stalled_requests", "gauge", "Requests that wait for the origin now.");
	for (size_t i = 0; i < count; i++)
		buf_printf(out,
			"cachefs_stalled_requests{%s,request=\"read\"} %u\n"
			"cachefs_stalled_requests{%s,request=\"name\"} %u\n",
			volumes[i].labels, volumes[i].waits->stalled_reads.waiting,
			volumes[i].labels, volumes[i].waits->stalled_names.waiting);
}

void waits_write_metrics(struct buf *out, const struct labelled_waits *volumes, size_t count)
{
	write_stalled(out, volumes, count);
	write_reads(out, volumes, count);
	write_names(out, volumes, count);
}
