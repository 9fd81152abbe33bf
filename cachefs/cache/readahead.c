/*
 * Readahead: which chunks after a read are worth fetching with it.
 *
 * Each handle follows a few sequential streams, since forked loaders read their own parts of a file
 * through one descriptor. A stream's window doubles with each read that goes on where it was; a
 * read that goes on nowhere starts a stream with an empty window, so random reads fetch their own
 * chunks and no more. Beyond the window nothing is asked for until half of it was read, so that
 * parts stay large.
 */
#include "readahead.h"

#include "cache/cache.h"

#define WINDOW_MAX 64u
/* The kernel's own readahead sends requests of one stream out of order within about its window. */
#define SLACK_BYTES (8ull << 20)
/* How far behind the furthest read a late one may be: its neighbour's size and its own. */
#define LATE_BYTES (2ull << 20)

static struct stream *find_stream(struct readahead *readahead, uint64_t offset)
{
	for (int i = 0; i < READER_STREAMS; i++) {
		struct stream *stream = &readahead->streams[i];

		if (stream->last_use && offset + LATE_BYTES >= stream->next &&
			offset <= stream->next + SLACK_BYTES)
			return stream;
	}
	return NULL;
}

static struct stream *oldest_stream(struct readahead *readahead)
{
	struct stream *oldest = &readahead->streams[0];

	for (int i = 1; i < READER_STREAMS; i++) {
		if (readahead->streams[i].last_use < oldest->last_use)
			oldest = &readahead->streams[i];
	}
	return oldest;
}

static void advance(struct stream *stream, uint64_t offset, uint64_t end)
{
	/* A jump within the slack belongs to the stream, but is no sign of a longer one. */
	if (offset <= stream->next + CHUNK_SIZE && stream->window < WINDOW_MAX)
		stream->window = stream->window ? stream->window * 2 : 1;
	stream->next = end;
}

void readahead_note(struct readahead *readahead, uint64_t offset, uint32_t size_bytes,
	uint32_t *ret_from, uint32_t *ret_to)
{
	uint64_t end = offset + size_bytes;
	uint32_t after = (uint32_t)((end - 1) / CHUNK_SIZE) + 1;
	struct stream *stream;

	lock_take(&readahead->lock);
	stream = find_stream(readahead, offset);
	if (!stream) {
		stream = oldest_stream(readahead);
		*stream = (struct stream){.next = end};
	} else if (end > stream->next) {
		advance(stream, offset, end);
	}
	stream->last_use = ++readahead->uses;
	if (stream->ahead < after)
		stream->ahead = after;
	*ret_from = *ret_to = stream->ahead;
	if (stream->ahead - after <= stream->window / 2 && after + stream->window > stream->ahead)
		*ret_to = stream->ahead = after + stream->window;
	lock_drop(&readahead->lock);
}
