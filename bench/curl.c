/*
 * cachefs-bench-curl URL SIZE [--part N] [--connections N] [--ca FILE]: downloads SIZE bytes of URL
 * in parallel ranges and throws them away: what the bare client library gets out of a server. One
 * thread, one curl multi. Prints the same JSON as cachefs-bench-io.
 */
#include <curl/curl.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { MAX_CONNECTIONS = 256 };

struct download {
	const char *url;
	const char *ca; /* certificates to trust; NULL: the system's */
	uint64_t size_bytes, part_bytes;
	uint64_t next;     /* offset of the first byte that nobody has asked for */
	uint64_t received; /* body bytes */
	uint64_t gets;
	unsigned connections;
	CURLM *multi;
};

static size_t throw_away(char *data, size_t one, size_t size_bytes, void *arg)
{
	struct download *download = arg;

	(void)data;
	(void)one;
	download->received += size_bytes;
	return size_bytes;
}

static int start_part(struct download *download, CURL *easy)
{
	uint64_t rest = download->size_bytes - download->next;
	uint64_t size_bytes = rest < download->part_bytes ? rest : download->part_bytes;
	char range[64];

	snprintf(range, sizeof(range), "%" PRIu64 "-%" PRIu64, download->next,
		download->next + size_bytes - 1);
	download->next += size_bytes;
	download->gets++;
	curl_easy_setopt(easy, CURLOPT_RANGE, range); /* copied by curl */
	return curl_multi_add_handle(download->multi, easy) == CURLM_OK ? 0 : -ENOMEM;
}

static CURL *new_easy(struct download *download)
{
	CURL *easy = curl_easy_init();

	if (!easy)
		return NULL;
	curl_easy_setopt(easy, CURLOPT_URL, download->url);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, throw_away);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, download);
	curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 512L << 10);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	if (download->ca)
		curl_easy_setopt(easy, CURLOPT_CAINFO, download->ca);
	return easy;
}

/* A part has ended: the handle takes the next one (1) or is done (0). */
static int end_part(struct download *download, const CURLMsg *msg)
{
	CURL *easy = msg->easy_handle;
	long status = 0;

	curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
	if (msg->data.result != CURLE_OK || status != 206) {
		fprintf(stderr, "cachefs-bench-curl: %s: %s, status %ld\n", download->url,
			curl_easy_strerror(msg->data.result), status);
		return -EIO;
	}
	curl_multi_remove_handle(download->multi, easy);
	if (download->next == download->size_bytes)
		return 0;
	int r = start_part(download, easy);
	return r < 0 ? r : 1;
}

static int run_parts(struct download *download)
{
	int running = 1;

	while (running > 0) {
		CURLMsg *msg;
		int queued;

		if (curl_multi_perform(download->multi, &running) != CURLM_OK)
			return -EIO;
		while ((msg = curl_multi_info_read(download->multi, &queued))) {
			if (msg->msg != CURLMSG_DONE)
				continue;
			int r = end_part(download, msg);
			if (r < 0)
				return r;
			running += r; /* what was just added is not counted yet */
		}
		if (running > 0 && curl_multi_poll(download->multi, NULL, 0, 1000, NULL))
			return -EIO;
	}
	return download->received == download->size_bytes ? 0 : -EIO;
}

static int run(struct download *download)
{
	CURL *easy[MAX_CONNECTIONS] = {NULL};
	unsigned n = 0;
	int r = 0;

	download->multi = curl_multi_init();
	if (!download->multi)
		return -ENOMEM;
	curl_multi_setopt(download->multi, CURLMOPT_MAXCONNECTS, (long)download->connections);
	for (; r == 0 && n < download->connections && download->next < download->size_bytes; n++) {
		easy[n] = new_easy(download);
		r = easy[n] ? start_part(download, easy[n]) : -ENOMEM;
	}
	if (r == 0)
		r = run_parts(download);
	for (unsigned i = 0; i < n; i++) {
		curl_multi_remove_handle(download->multi, easy[i]);
		curl_easy_cleanup(easy[i]);
	}
	curl_multi_cleanup(download->multi);
	return r;
}

static int number(const char *text, uint64_t min, uint64_t max, uint64_t *ret)
{
	char *end;

	errno = 0;
	uint64_t value = strtoull(text, &end, 10);
	if (errno || end == text || *end || value < min || value > max)
		return -EINVAL;
	*ret = value;
	return 0;
}

static int parse(int argc, char **argv, struct download *download)
{
	static const struct option options[] = {
		{"part", required_argument, NULL, 'p'},
		{"connections", required_argument, NULL, 'c'},
		{"ca", required_argument, NULL, 'a'},
		{NULL, 0, NULL, 0},
	};
	uint64_t connections = download->connections;
	int option, r = 0;

	while (r == 0 && (option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'p')
			r = number(optarg, 1, INT64_MAX, &download->part_bytes);
		else if (option == 'c')
			r = number(optarg, 1, MAX_CONNECTIONS, &connections);
		else if (option == 'a')
			download->ca = optarg;
		else
			r = -EINVAL;
	}
	if (r < 0 || argc - optind != 2)
		return -EINVAL;
	download->connections = (unsigned)connections;
	download->url = argv[optind];
	return number(argv[optind + 1], 1, INT64_MAX, &download->size_bytes);
}

static double seconds(struct timeval time)
{
	return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

int main(int argc, char **argv)
{
	struct download download = {.part_bytes = 16 << 20, .connections = 16};
	struct timespec from, to;
	struct rusage usage;

	if (parse(argc, argv, &download) < 0) {
		fputs("usage: cachefs-bench-curl URL SIZE [--part BYTES] [--connections N]\n"
		      "                          [--ca FILE]\n"
		      "example: cachefs-bench-curl http://127.0.0.1:8080/b/model 1073741824\n",
			stderr);
		return 2;
	}
	curl_global_init(CURL_GLOBAL_DEFAULT);
	clock_gettime(CLOCK_MONOTONIC, &from);
	int r = run(&download);
	clock_gettime(CLOCK_MONOTONIC, &to);
	curl_global_cleanup();
	if (r < 0) {
		fprintf(stderr, "cachefs-bench-curl: %s: %s\n", download.url, strerror(-r));
		return 1;
	}
	getrusage(RUSAGE_SELF, &usage);
	printf("{\"bytes\": %" PRIu64 ", \"ops\": %" PRIu64 ", \"wall_s\": %.9f, "
	       "\"user_s\": %.6f, \"sys_s\": %.6f}\n",
		download.received, download.gets,
		(double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9,
		seconds(usage.ru_utime), seconds(usage.ru_stime));
	return 0;
}
