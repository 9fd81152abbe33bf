#include "readahead.h"

#include "base/clock.h"
#include "cache/object.h"

/* The kernel's own readahead sends requests of one stream out of order within about its window. */
#define SLACK_BYTES (8ull << 20)
/* How far behind the furthest read a late one of those may be. */
#define LATE_BYTES OBJECT_READ_MAX
/* What lies further back says nothing of whether a stream leaves gaps. */
#define SPAN_BYTES (128ull << 20)
/* Two reads may come in the wrong order; after two such steps it goes backwards. */
#define BACKWARDS_DOWNS 2u
/* What a GET is to take at most: the last ones run alone, and each piece that a reader waits for
 * comes no faster than its GET. And a size that always is worth a request, if it doesn't take longer. */
#define GET_NS     NS_PER_SEC
#define PART_SMALL 8u
/* Of an origin that is far, before anything is known. */
#define PART_UNKNOWN 4u
/* Chunks ahead for each that was read; of an origin that is far, where each step costs a round trip. */
#define AHEAD     4u
#define AHEAD_FAR 16u
/* However many streams there are. */
#define SHARE_LEAST 4u

static bool goes_on_backwards(const struct stream *stream, uint64_t offset, uint64_t end)
{
	if (!stream->backwards && stream->downs + 1 != stream->reads)
		return false;
	return offset < stream->first && end <= stream->first + LATE_BYTES &&
	       end + OBJECT_READ_MAX >= stream->first;
}

static bool goes_on(const struct stream *stream, uint64_t offset)
{
	if (stream->backwards)
		return offset >= stream->first && offset <= stream->first + LATE_BYTES;
	return offset + LATE_BYTES >= stream->end && offset <= stream->end + SLACK_BYTES;
}

static struct stream *find_stream(struct readahead *readahead, uint64_t offset, uint64_t end)
{
	for (int i = 0; i < READER_STREAMS; i++) {
		struct stream *stream = &readahead->streams[i];

		if (stream->last_use &&
			(goes_on_backwards(stream, offset, end) || goes_on(stream, offset)))
			return stream;
	}
	return NULL;
}

/* Takes the place of the one that was not used for longest. What was read last has come to its end
 * with this, or is another process's, which is then counted anew. */
static struct stream *begin_stream(struct readahead *readahead, uint64_t offset)
{
	struct stream *oldest = &readahead->streams[0], *last = oldest;
	uint64_t counted;

	for (int i = 1; i < READER_STREAMS; i++) {
		struct stream *stream = &readahead->streams[i];

		if (stream->last_use < oldest->last_use)
			oldest = stream;
		if (stream->last_use > last->last_use)
			last = stream;
	}
	if (last->last_use)
		readahead->runs[readahead->n_runs++ % READER_RUNS] = last->end - last->first;
	counted = last->second;
	last->second = oldest->second;
	*oldest = (struct stream){
		.first = offset, .end = offset, .second = counted, .wish = WINDOW_FIRST};
	return oldest;
}

static void advance(struct stream *stream, uint64_t offset, uint64_t end)
{
	if (offset < stream->first) {
		stream->span += stream->first - offset;
		stream->first = offset;
		stream->downs++;
		stream->backwards |= stream->downs == BACKWARDS_DOWNS;
	}
	if (end > stream->end) {
		stream->span += end - stream->end;
		stream->end = end;
	}
	stream->read += end - offset;
	stream->reads++;
	if (stream->span > SPAN_BYTES) {
		stream->span /= 2;
		stream->read /= 2;
	}
}

/* Returns how many streams were read on within about a second, this one among them. */
static unsigned count_stream(struct readahead_streams *all, struct stream *stream, uint64_t second)
{
	uint64_t was = atomic_load(&all->second);
	unsigned now, before;

	/* Who comes too late in the change of a second is not counted, once. */
	if (was < second && atomic_compare_exchange_strong(&all->second, &was, second)) {
		now = atomic_exchange(&all->now, 0);
		atomic_store(&all->before, was + 1 == second ? now : 0);
	}
	if (stream->second != second) {
		stream->second = second;
		atomic_fetch_add(&all->now, 1);
	}
	now = atomic_load(&all->now);
	before = atomic_load(&all->before);
	now = now > before ? now : before;
	return now ? now : 1;
}

static uint32_t at_most(uint32_t chunks, uint64_t limit)
{
	return chunks < limit ? chunks : (uint32_t)limit;
}

/* Chunks to the end of a run as long as the longest of the last few; UINT64_MAX: it is longer, by more
 * than the kernel's own readahead makes of it. */
static uint64_t left_of_run(const struct readahead *readahead, const struct stream *stream)
{
	uint64_t length = stream->end - stream->first, longest = 0;

	for (int i = 0; i < READER_RUNS; i++) {
		if (readahead->runs[i] > longest)
			longest = readahead->runs[i];
	}
	if (length > longest + longest / 2)
		return UINT64_MAX;
	return length < longest ? (longest - length + CHUNK_SIZE - 1) / CHUNK_SIZE : 0;
}

static uint32_t window_of(const struct readahead *readahead, const struct readahead_means *means,
	struct stream *stream, uint64_t second)
{
	uint32_t share, window = stream->wish;

	if (stream->reads == 1 || stream->read * 3 <= stream->span * 2 ||
		(!stream->backwards && stream->downs + 1 == stream->reads))
		return 0;
	share = means->buffers * 3 / 4 / count_stream(means->streams, stream, second);
	window = at_most(window,
		(stream->read * (means->far ? AHEAD_FAR : AHEAD) + CHUNK_SIZE - 1) / CHUNK_SIZE);
	window = at_most(window, left_of_run(readahead, stream));
	window = at_most(window, share > SHARE_LEAST ? share : SHARE_LEAST);
	/* One part more than run, so that the origin's limit is seen to be one. */
	return means->gets ? at_most(window, (uint64_t)(means->gets + 1) * PART_MOST) : window;
}

static uint32_t part_of(const struct readahead_means *means, uint32_t window)
{
	uint32_t part = means->gets ? window / means->gets : PART_MOST;
	uint64_t worth = means->chunk_ns ? GET_NS / means->chunk_ns : PART_MOST;

	if (means->aging == ORIGIN_AGES)
		return PART_LEAST;
	/* What was fast so far may be so on fresh connections only. */
	if (means->far && (!means->chunk_ns || means->aging == ORIGIN_AGING_UNKNOWN))
		worth = PART_UNKNOWN;
	if (part < PART_SMALL)
		part = PART_SMALL;
	part = at_most(part, worth);
	return part < PART_LEAST ? PART_LEAST : at_most(part, PART_MOST);
}

/* Asks for what the window lacks when that is worth a request. */
static void refill(struct stream *stream, uint32_t window, struct readahead_wish *ret)
{
	uint32_t here = (uint32_t)(stream->backwards ? stream->first / CHUNK_SIZE
						     : (stream->end - 1) / CHUNK_SIZE + 1);
	uint32_t worth = window / 2 < ret->part ? window / 2 : ret->part, wanted;

	if (!worth)
		worth = 1;
	if (stream->backwards) {
		wanted = here > window ? here - window : 0;
		if (stream->asked > here)
			stream->asked = here;
		ret->from = ret->to = stream->asked;
		if (wanted < stream->asked && (stream->asked - wanted >= worth || !wanted))
			ret->from = stream->asked = wanted;
		return;
	}
	wanted = here < UINT32_MAX - window ? here + window : UINT32_MAX;
	if (stream->asked < here)
		stream->asked = here;
	ret->from = ret->to = stream->asked;
	if (wanted > stream->asked && wanted - stream->asked >= worth)
		ret->to = stream->asked = wanted;
}

void readahead_note(struct readahead *readahead, const struct readahead_means *means,
	uint64_t offset, uint32_t size_bytes, bool waits, uint64_t now_ns,
	struct readahead_wish *ret)
{
	uint64_t end = offset + size_bytes;
	struct stream *stream;
	uint32_t window;

	lock_take(&readahead->lock);
	stream = find_stream(readahead, offset, end);
	if (!stream)
		stream = begin_stream(readahead, offset);
	advance(stream, offset, end);
	stream->last_use = ++readahead->uses;
	window = window_of(readahead, means, stream, now_ns / NS_PER_SEC);
	if (waits && window == stream->wish)
		stream->wish *= means->far ? 4 : 2;
	ret->part = part_of(means, window);
	refill(stream, window, ret);
	lock_drop(&readahead->lock);
}
