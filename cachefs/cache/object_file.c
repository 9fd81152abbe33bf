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
	struct raw_state state;
	struct raw *raw;
	int64_t ctime_ns;
	bool warm;

	lock_take(&object->lock);
	raw = object->raw;
	warm = object->complete && raw && !object->pending_drops;
	if (warm && !object->verified)
		verify_later(object);
	warm = warm && object->verified;
	ctime_ns = object->ctime_ns;
	lock_drop(&object->lock);
	if (!warm || trouble_forbids_passthrough(object->cache))
		return -EAGAIN;
	/* Somebody wrote to the file, or it has a hole, or it is cut: what was verified is not what
	 * is there. */
	if (raw_stat(raw, &state) || state.size_bytes != object->size_bytes ||
		state.disk_bytes < object->size_bytes || state.ctime_ns != ctime_ns) {
		lock_take(&object->lock);
		object->verified = false;
		verify_later(object);
		lock_drop(&object->lock);
		return -EAGAIN;
	}
	return raw_backing_fd(raw);
}
