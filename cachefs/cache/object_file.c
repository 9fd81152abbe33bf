/* An object's raw file: made when its first chunk is kept, passed through when it is whole. */
#include "objects.h"

#include <errno.h>

#include "space.h"
#include "store/store.h"
#include "verify.h"
#include "whole.h"

struct raw *object_make_raw(struct object *object)
{
	struct raw *raw = NULL;
	int r;

	lock_take(&object->lock);
	while (object->opening_raw)
		cond_wait(&object->raw_made, &object->lock);
	if (object->raw || object->unkept) {
		raw = object->raw;
		lock_drop(&object->lock);
		return raw;
	}
	object->opening_raw = true;
	lock_drop(&object->lock);
	r = raw_open(object->cache->store, object->id, object->size_bytes, true, &raw);
	if (r == -EUCLEAN && !raw_remove(object->cache->store, object->id, &(uint64_t){0}))
		r = raw_open(object->cache->store, object->id, object->size_bytes, true, &raw);
	if (r == -ENOSPC || r == -EDQUOT)
		space_refused(object->cache);
	else if (r)
		trouble_note(object->cache, "store_create_failed", object->name, r);
	lock_take(&object->lock);
	object->opening_raw = false;
	if (!r)
		object->raw = raw;
	cond_broadcast(&object->raw_made);
	lock_drop(&object->lock);
	return r ? NULL : raw;
}

int object_backing_fd(struct object *object)
{
	struct raw_state state = {0};
	struct raw *raw;
	int64_t ctime_ns;
	bool whole, verified;
	int r;

	lock_take(&object->lock);
	raw = object->raw;
	whole = object->complete && raw && !object->pending_drops;
	verified = object->verified;
	ctime_ns = object->ctime_ns;
	lock_drop(&object->lock);
	if (!whole || trouble_forbids_passthrough(object->cache))
		return -EAGAIN;
	r = raw_stat(raw, &state);
	if (!r && verified && state.size_bytes == object->size_bytes &&
		state.disk_bytes >= object->size_bytes && state.ctime_ns == ctime_ns)
		return raw_backing_fd(raw);
	/* Not verified yet; or somebody wrote to the file, or it has a hole, or it is cut, and what
	 * was verified is not what is there. */
	lock_take(&object->lock);
	if (verified)
		object->verified = false;
	if (r || state.ctime_ns != object->misshapen_ctime_ns)
		verify_later(object);
	lock_drop(&object->lock);
	return -EAGAIN;
}
