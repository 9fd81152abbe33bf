#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "table_layout.h"

/* Uniques count up in steps of two, so that their places hardly meet. */
#define PROBES 64u
#define ONCE   1ull

static _Atomic uint64_t *place(const struct table *table, uint64_t unique, uint32_t probe)
{
	return &table->in_flight[((unique >> 1) + probe) % TABLE_IN_FLIGHT];
}

static _Atomic uint64_t *find(const struct table *table, uint64_t unique)
{
	for (uint32_t i = 0; i < PROBES; i++) {
		_Atomic uint64_t *at = place(table, unique, i);

		if ((atomic_load(at) & ~ONCE) == unique)
			return at;
	}
	return NULL;
}

void table_keep_all(struct table *table, bool all)
{
	atomic_store(&table->header->keep_all, all);
}

bool table_keeps_all(const struct table *table)
{
	return atomic_load(&table->header->keep_all);
}

static void saw_request(struct table *table, uint64_t unique)
{
	uint64_t last = atomic_load(&table->header->last_request);

	while (last < unique &&
		!atomic_compare_exchange_weak(&table->header->last_request, &last, unique))
		continue;
}

uint64_t table_last_request(const struct table *table)
{
	return atomic_load(&table->header->last_request) & ~ONCE;
}

bool table_request_begin(struct table *table, uint64_t unique, bool once)
{
	uint64_t word = unique | (once ? ONCE : 0);

	check(unique && !(unique & ONCE));
	saw_request(table, unique);
	/* One that came again. */
	if (find(table, unique))
		return true;
	for (uint32_t i = 0; i < PROBES; i++) {
		uint64_t none = 0;

		if (atomic_compare_exchange_strong(place(table, unique, i), &none, word)) {
			atomic_fetch_add(&table->n_in_flight, 1);
			return true;
		}
	}
	return false;
}

bool table_request_is_once(const struct table *table, uint64_t unique)
{
	const _Atomic uint64_t *at = atomic_load(&table->n_in_flight) ? find(table, unique) : NULL;

	return at && (atomic_load(at) & ONCE);
}

void table_request_end(struct table *table, uint64_t unique)
{
	_Atomic uint64_t *at = atomic_load(&table->n_in_flight) ? find(table, unique) : NULL;

	if (!at)
		return;
	atomic_store(at, 0);
	atomic_fetch_sub(&table->n_in_flight, 1);
}

void table_requests_drain(struct table *table, void (*each)(void *arg, uint64_t unique), void *arg)
{
	for (uint32_t i = 0; i < TABLE_IN_FLIGHT; i++) {
		uint64_t word = atomic_load(&table->in_flight[i]);

		if (!word)
			continue;
		each(arg, word & ~ONCE);
		atomic_store(&table->in_flight[i], 0);
	}
	atomic_store(&table->n_in_flight, 0);
}

int table_put_result(struct table *table, uint64_t unique, const void *reply, size_t size)
{
	if (size > TABLE_RESULT_MAX)
		return -EFBIG;
	for (uint32_t i = 0; i < TABLE_RESULTS; i++) {
		struct table_result *result = &table->results[i];
		uint64_t none = 0;

		if (!atomic_compare_exchange_strong(&result->sum, &none, 1))
			continue;
		result->unique = unique;
		result->life = atomic_load(&table->header->life);
		result->size = (uint32_t)size;
		memcpy(result->bytes, reply, size);
		atomic_store_explicit(&result->sum, table_result_sum(result), memory_order_release);
		return 0;
	}
	return -ENOSPC;
}

/* The record of a unique has one owner at any time, the thread that has its request. */
static struct table_result *find_result(const struct table *table, uint64_t unique)
{
	for (uint32_t i = 0; i < TABLE_RESULTS; i++) {
		struct table_result *result = &table->results[i];

		if (atomic_load_explicit(&result->sum, memory_order_acquire) > 1 &&
			result->unique == unique)
			return result;
	}
	return NULL;
}

size_t table_get_result(const struct table *table, uint64_t unique, void *ret, size_t size)
{
	const struct table_result *result = find_result(table, unique);

	if (!result || result->size > size)
		return 0;
	memcpy(ret, result->bytes, result->size);
	return result->size;
}

void table_drop_result(struct table *table, uint64_t unique)
{
	struct table_result *result = find_result(table, unique);

	if (result)
		atomic_store_explicit(&result->sum, 0, memory_order_release);
}

void table_adopt_requests(struct table *table)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < TABLE_RESULTS; i++) {
		uint64_t half = 1;

		atomic_compare_exchange_strong(&table->results[i].sum, &half, 0);
	}
	for (uint32_t i = 0; i < TABLE_IN_FLIGHT; i++)
		count += atomic_load(&table->in_flight[i]) != 0;
	atomic_store(&table->n_in_flight, count);
}

void table_drop_old_results(struct table *table)
{
	for (uint32_t i = 0; i < TABLE_RESULTS; i++) {
		struct table_result *result = &table->results[i];
		uint64_t sum = atomic_load_explicit(&result->sum, memory_order_acquire);

		if (sum > 1 && atomic_load(&result->life) != atomic_load(&table->header->life))
			atomic_compare_exchange_strong(&result->sum, &sum, 0);
	}
}
