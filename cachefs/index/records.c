#include "records.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/check.h"

#define OBJECT_KIND  1u /* also the version of the layout: another one gets another number */
#define GROUP_KIND   2u
#define OBJECT_FIXED 80u
#define GROUP_FIXED  32u

#define FLAG_COMPLETE 1u
#define FLAG_STRONG   2u

void put_u32(uint8_t **at, uint32_t value)
{
	value = htole32(value);
	memcpy(*at, &value, sizeof value);
	*at += sizeof value;
}

void put_u64(uint8_t **at, uint64_t value)
{
	value = htole64(value);
	memcpy(*at, &value, sizeof value);
	*at += sizeof value;
}

uint32_t get_u32(const uint8_t **at)
{
	uint32_t value;

	memcpy(&value, *at, sizeof value);
	*at += sizeof value;
	return le32toh(value);
}

uint64_t get_u64(const uint8_t **at)
{
	uint64_t value;

	memcpy(&value, *at, sizeof value);
	*at += sizeof value;
	return le64toh(value);
}

void record_seal(uint8_t *bytes, size_t size)
{
	check(size >= RECORD_SUM_SIZE);
	put_u64(&bytes, hash64(bytes + RECORD_SUM_SIZE, size - RECORD_SUM_SIZE));
}

int record_verify(const uint8_t *bytes, size_t size)
{
	if (size < RECORD_SUM_SIZE)
		return -EUCLEAN;
	if (get_u64(&bytes) != hash64(bytes, size - RECORD_SUM_SIZE))
		return -EUCLEAN;
	return 0;
}

/* Kind, flags and the version's size share one word. */
static uint32_t object_head(const struct index_object *object, size_t version_size)
{
	uint32_t flags =
		(object->complete ? FLAG_COMPLETE : 0) | (object->strong ? FLAG_STRONG : 0);

	return OBJECT_KIND | flags << 8 | (uint32_t)version_size << 16;
}

size_t object_encode(const struct index_object_record *record, uint8_t bytes[OBJECT_SIZE_MAX])
{
	const struct index_object *object = &record->object;
	size_t name_size = strnlen(record->name, sizeof record->name);
	size_t version_size = strnlen(record->version, sizeof record->version);
	uint8_t *at = bytes + RECORD_SUM_SIZE;
	size_t size;

	check(name_size < sizeof record->name && version_size < sizeof record->version);
	check(object->n_present <= object->n_chunks);
	put_u32(&at, object_head(object, version_size));
	put_u32(&at, (uint32_t)name_size);
	put_u64(&at, object->size_bytes);
	put_u64(&at, object->disk_bytes);
	put_u64(&at, (uint64_t)object->mtime_ns);
	put_u64(&at, (uint64_t)object->opened_wall_ns);
	put_u64(&at, (uint64_t)object->pinned_until_ns);
	put_u64(&at, (uint64_t)object->ctime_ns);
	put_u64(&at, object->verified_epoch);
	put_u32(&at, object->n_chunks);
	put_u32(&at, object->n_present);
	memcpy(at, record->name, name_size);
	memcpy(at + name_size, record->version, version_size);
	size = (size_t)(at - bytes) + name_size + version_size;
	record_seal(bytes, size);
	return size;
}

static int take_string(const uint8_t *bytes, size_t size, char *ret, size_t ret_size)
{
	if (size >= ret_size || memchr(bytes, '\0', size))
		return -EUCLEAN;
	memcpy(ret, bytes, size);
	ret[size] = '\0';
	return 0;
}

int object_decode(const uint8_t *bytes, size_t size, struct index_object_record *ret)
{
	struct index_object *object = &ret->object;
	const uint8_t *at = bytes + RECORD_SUM_SIZE;
	uint32_t head, name_size, version_size, flags;

	if (record_verify(bytes, size) < 0 || size < OBJECT_FIXED)
		return -EUCLEAN;
	head = get_u32(&at);
	name_size = get_u32(&at);
	flags = head >> 8 & 0xff;
	version_size = head >> 16;
	if ((head & 0xff) != OBJECT_KIND || (flags & ~(FLAG_COMPLETE | FLAG_STRONG)))
		return -EUCLEAN;
	if (size != (uint64_t)OBJECT_FIXED + name_size + version_size)
		return -EUCLEAN;
	object->complete = flags & FLAG_COMPLETE;
	object->strong = flags & FLAG_STRONG;
	object->size_bytes = get_u64(&at);
	object->disk_bytes = get_u64(&at);
	object->mtime_ns = (int64_t)get_u64(&at);
	object->opened_wall_ns = (int64_t)get_u64(&at);
	object->pinned_until_ns = (int64_t)get_u64(&at);
	object->ctime_ns = (int64_t)get_u64(&at);
	object->verified_epoch = get_u64(&at);
	object->n_chunks = get_u32(&at);
	object->n_present = get_u32(&at);
	if (object->n_present > object->n_chunks)
		return -EUCLEAN;
	if (take_string(at, name_size, ret->name, sizeof ret->name) < 0)
		return -EUCLEAN;
	return take_string(at + name_size, version_size, ret->version, sizeof ret->version);
}

static bool is_present(const struct index_group *group, unsigned chunk)
{
	return group->present[chunk / 64] >> chunk % 64 & 1;
}

size_t group_encode(const struct index_group *group, uint8_t bytes[GROUP_SIZE_MAX])
{
	uint8_t *at = bytes + RECORD_SUM_SIZE;
	size_t size;

	put_u64(&at, GROUP_KIND);
	for (unsigned i = 0; i < INDEX_GROUP_CHUNKS / 64; i++)
		put_u64(&at, group->present[i]);
	for (unsigned i = 0; i < INDEX_GROUP_CHUNKS; i++) {
		if (is_present(group, i))
			put_u64(&at, group->sum[i]);
	}
	size = (size_t)(at - bytes);
	record_seal(bytes, size);
	return size;
}

int group_decode(const uint8_t *bytes, size_t size, struct index_group *ret)
{
	const uint8_t *at = bytes + RECORD_SUM_SIZE;
	size_t n_present = 0;

	if (record_verify(bytes, size) < 0 || size < GROUP_FIXED)
		return -EUCLEAN;
	if (get_u64(&at) != GROUP_KIND)
		return -EUCLEAN;
	for (unsigned i = 0; i < INDEX_GROUP_CHUNKS / 64; i++) {
		ret->present[i] = get_u64(&at);
		n_present += (size_t)__builtin_popcountll(ret->present[i]);
	}
	if (size != GROUP_FIXED + 8 * n_present)
		return -EUCLEAN;
	for (unsigned i = 0; i < INDEX_GROUP_CHUNKS; i++)
		ret->sum[i] = is_present(ret, i) ? get_u64(&at) : 0;
	return 0;
}
