#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "table_layout.h"

#define NODES   300
#define HANDLES 50

static struct table *new_table(void)
{
	struct table *table;
	struct origin_attr attr = {.kind = ORIGIN_DIR};
	struct table_node_key key = {.name = "", .attr = &attr};
	struct table_node *root;

	assert_int_equal(table_new(NODES, HANDLES, &table), 0);
	assert_int_equal(table_add_node(table, &key, &root), 0);
	assert_true(root->id == TABLE_ROOT_ID);
	return table;
}

static int add(struct table *table, uint64_t parent, const char *name, enum origin_kind kind,
	const char *version, struct table_node **ret)
{
	struct origin_attr attr = {.kind = kind, .size_bytes = 7};
	struct table_node_key key = {parent, name, strlen(name), &attr};

	strcpy(attr.version.text, version);
	return table_add_node(table, &key, ret);
}

static int check_of(struct table *table)
{
	struct why why;

	return table_check(table_fd(table), &why);
}

static void names_and_versions(void **state)
{
	struct table *table = new_table();
	char name[TABLE_NAME_MAX + 1], version[ORIGIN_VERSION_MAX];
	struct table_node *brief, *full;

	(void)state;
	memset(name, 'n', sizeof name - 1);
	name[sizeof name - 1] = '\0';
	memset(version, 'v', sizeof version - 1);
	version[sizeof version - 1] = '\0';
	assert_int_equal(add(table, 1, "a", ORIGIN_FILE, "\"1\"", &brief), 0);
	assert_int_equal(add(table, 1, name, ORIGIN_FILE, version, &full), 0);
	assert_string_equal(table_name(table, brief), "a");
	assert_string_equal(table_version(table, brief), "\"1\"");
	assert_string_equal(table_name(table, full), name);
	assert_string_equal(table_version(table, full), version);
	assert_int_equal(check_of(table), 0);
	table_remove_node(table, full);
	assert_int_equal(check_of(table), 0);
	table_free(table);
}

static void ids_are_never_used_twice(void **state)
{
	struct table *table = new_table();
	struct table_node *node;
	uint64_t last = 0;

	(void)state;
	for (int i = 0; i < 1000; i++) {
		assert_int_equal(add(table, 1, "a", ORIGIN_FILE, "v", &node), 0);
		assert_true(node->id > last);
		assert_int_equal(node->id & TABLE_SLOT_MASK, 2);
		last = node->id;
		table_remove_node(table, node);
	}
	table_free(table);
}

static void ceilings(void **state)
{
	struct table *table = new_table();
	struct table_node *node, *first = NULL;
	struct table_handle *handle;
	char name[16];
	int n = 0;

	(void)state;
	for (;; n++) {
		snprintf(name, sizeof name, "%d", n);
		if (add(table, 1, name, ORIGIN_FILE, "v", &node))
			break;
		first = first ? first : node;
	}
	assert_int_equal(add(table, 1, "x", ORIGIN_FILE, "v", &node), -ENFILE);
	assert_int_equal(n, NODES - 2);
	for (n = 0; !table_add_handle(table, 100 + 2 * n, first->id, TABLE_CACHED, 0, &handle);)
		n++;
	assert_int_equal(n, HANDLES - 1);
	assert_int_equal(table_handles(table), HANDLES - 1);
	assert_int_equal(check_of(table), 0);
	table_remove_handle(table, handle);
	table_remove_node(table, first);
	/* Handles of a node that is gone. */
	assert_int_equal(check_of(table), -EUCLEAN);
	table_free(table);
}

struct model {
	struct table_node *nodes[NODES];
	struct table_handle *handles[HANDLES];
	uint64_t unique;
};

static void random_step(struct table *table, struct model *model, unsigned *seed)
{
	unsigned i = (unsigned)rand_r(seed) % NODES, j = (unsigned)rand_r(seed) % HANDLES;
	struct table_node *node = model->nodes[i];
	bool in_use = false;
	char name[400];

	for (unsigned k = 0; k < HANDLES; k++)
		in_use = in_use ||
			 (node && model->handles[k] && model->handles[k]->node == node->id);
	if (!node) {
		snprintf(name, sizeof name, "%0*u", rand_r(seed) % 4 ? 5 : 300, i);
		if (add(table, 1, name, ORIGIN_FILE, "v", &model->nodes[i]))
			model->nodes[i] = NULL;
	} else if (!in_use && rand_r(seed) % 2) {
		table_remove_node(table, node);
		model->nodes[i] = NULL;
	} else if (model->handles[j]) {
		table_remove_handle(table, model->handles[j]);
		model->handles[j] = NULL;
	} else if (table_add_handle(table, ++model->unique, node->id, TABLE_PASSTHROUGH, 0,
			   &model->handles[j])) {
		model->handles[j] = NULL;
	}
}

static void stays_sound(void **state)
{
	struct table *table = new_table();
	struct model model = {0};
	unsigned seed = 1;

	(void)state;
	for (int i = 0; i < 20000; i++) {
		random_step(table, &model, &seed);
		if (i % 400 == 0)
			assert_int_equal(check_of(table), 0);
	}
	assert_int_equal(check_of(table), 0);
	table_free(table);
}

/* SIGKILL came before the sum was written: the record counts as none. After it, a changed byte is
 * damage. */
static void half_written(void **state)
{
	struct table *table = new_table();
	struct table_node *node;
	struct table_handle *handle;

	(void)state;
	assert_int_equal(add(table, 1, "a", ORIGIN_FILE, "v", &node), 0);
	assert_int_equal(table_add_handle(table, 8, node->id, TABLE_CACHED, 0, &handle), 0);
	handle->sum = 0;
	handle->node = 12345;
	assert_int_equal(check_of(table), 0);
	node->sum = 0;
	node->text[0] = '/';
	assert_int_equal(check_of(table), 0);
	node->sum = table_node_sum(node, node->text);
	assert_int_equal(check_of(table), -EUCLEAN);
	node->text[0] = 'a';
	assert_int_equal(check_of(table), -EUCLEAN);
	node->sum = table_node_sum(node, node->text);
	assert_int_equal(check_of(table), 0);
	node->backing_id = 5;
	node->superseded = 1;
	assert_int_equal(check_of(table), 0);
	table_free(table);
}

/* Whatever byte of the records in use is changed, the check ends and doesn't crash. */
static void damage(void **state)
{
	struct table *table = new_table();
	struct table_node *node, *dir;
	size_t from = table_nodes_offset(), size = 5 * sizeof *node, found = 0;
	uint8_t *memory;

	(void)state;
	assert_int_equal(add(table, 1, "d", ORIGIN_DIR, "", &dir), 0);
	assert_int_equal(add(table, dir->id, "f", ORIGIN_FILE, "v", &node), 0);
	memory = mmap(NULL, from + size, PROT_READ | PROT_WRITE, MAP_SHARED, table_fd(table), 0);
	assert_true(memory != MAP_FAILED);
	for (size_t i = 0; i < from + size; i++) {
		memory[i] ^= 0xff;
		found += check_of(table) == -EUCLEAN;
		memory[i] ^= 0xff;
	}
	assert_true(found > 3 * 50);
	assert_int_equal(check_of(table), 0);
	munmap(memory, from + size);
	assert_int_equal(ftruncate(table_fd(table), 100), 0);
	assert_int_equal(check_of(table), -EUCLEAN);
	table_free(table);
}

static void init_bytes(void **state)
{
	struct table *table = new_table();
	uint8_t bytes[TABLE_INIT_MAX + 1] = {1, 2, 3};

	(void)state;
	assert_int_equal(table_put_init(table, bytes, sizeof bytes), -EFBIG);
	assert_int_equal(table_put_init(table, bytes, TABLE_INIT_MAX), 0);
	assert_int_equal(table_put_init_reply(table, bytes, 3), 0);
	assert_int_equal(check_of(table), 0);
	table_free(table);
}

static void adopt(struct table **table)
{
	int fd = dup(table_fd(*table));

	table_free(*table);
	assert_int_equal(table_adopt(fd, table, NULL), 0);
}

static void adopted(void **state)
{
	struct table *table = new_table();
	struct table_node *a, *b, *node;
	struct table_handle *handle;
	uint32_t at = 0;
	size_t size;
	char name[500];

	(void)state;
	memset(name, 'x', sizeof name);
	name[sizeof name - 1] = '\0';
	assert_int_equal(add(table, 1, "a", ORIGIN_FILE, "v", &a), 0);
	assert_int_equal(add(table, 1, name, ORIGIN_FILE, "v", &b), 0);
	assert_int_equal(table_add_handle(table, 6, b->id, TABLE_CACHED, 3, &handle), 0);
	assert_int_equal(table_put_init(table, "init", 4), 0);
	table_saw_backing(table, 9);
	table_saw_backing(table, 4);
	table_remove_node(table, a);
	adopt(&table);
	assert_int_equal(table_nodes(table), 2);
	assert_int_equal(table_handles(table), 1);
	assert_int_equal(table_last_backing(table), 9);
	assert_memory_equal(table_init(table, &size), "init", 4);
	assert_int_equal(size, 4);
	table_init_reply(table, &size);
	assert_int_equal(size, 0);
	assert_true(table_next_node(table, &at)->id == TABLE_ROOT_ID);
	node = table_next_node(table, &at);
	assert_string_equal(table_name(table, node), name);
	assert_null(table_next_node(table, &at));
	at = 0;
	assert_true(table_next_handle(table, &at)->fh == 6);
	/* The slot that is free, and a new long text. */
	assert_int_equal(add(table, 1, name, ORIGIN_FILE, "w", &a), 0);
	assert_int_equal(a->id & TABLE_SLOT_MASK, 2);
	assert_string_equal(table_version(table, node), "v");
	assert_int_equal(check_of(table), 0);
	table_free(table);
}

static void count(void *arg, uint64_t unique)
{
	*(uint64_t *)arg += unique;
}

static void requests(void **state)
{
	struct table *table = new_table();
	uint64_t sum = 0, left = 2;

	(void)state;
	for (uint64_t unique = 2; unique <= 200; unique += 2)
		assert_true(table_request_begin(table, unique, unique % 4 == 0));
	assert_true(table_request_begin(table, 4, true));
	for (uint64_t unique = 4; unique <= 200; unique += 2)
		table_request_end(table, unique);
	assert_true(table_request_begin(table, 8, true));
	assert_true(table_request_is_once(table, 8));
	assert_false(table_request_is_once(table, 2));
	assert_false(table_request_is_once(table, 6));
	adopt(&table);
	assert_true(table_request_is_once(table, 8));
	table_request_end(table, 8);
	table_requests_drain(table, count, &sum);
	assert_true(sum == left);
	/* All places that a unique may have are taken. */
	for (uint64_t i = 0; i < 64; i++)
		assert_true(table_request_begin(table, 2 + 2 * (i * TABLE_IN_FLIGHT), false));
	assert_false(table_request_begin(table, 2 + 2 * (64ull * TABLE_IN_FLIGHT), false));
	table_free(table);
}

static void results(void **state)
{
	struct table *table = new_table();
	char bytes[TABLE_RESULT_MAX + 1];

	(void)state;
	memset(bytes, 'r', sizeof bytes);
	assert_int_equal(table_put_result(table, 2, bytes, sizeof bytes), -EFBIG);
	for (uint64_t i = 1; i <= TABLE_RESULTS; i++)
		assert_int_equal(table_put_result(table, 2 * i, bytes, i % 100 + 1), 0);
	assert_int_equal(table_put_result(table, 3, bytes, 1), -ENOSPC);
	table_drop_result(table, 4);
	assert_int_equal(check_of(table), 0);
	adopt(&table);
	assert_int_equal(table_get_result(table, 2, bytes, sizeof bytes), 2);
	assert_int_equal(table_get_result(table, 4, bytes, sizeof bytes), 0);
	assert_int_equal(table_get_result(table, 6, bytes, sizeof bytes), 4);
	assert_int_equal(table_put_result(table, 4, bytes, 50), 0);
	table_drop_old_results(table);
	assert_int_equal(table_get_result(table, 2, bytes, sizeof bytes), 0);
	assert_int_equal(table_get_result(table, 4, bytes, sizeof bytes), 50);
	/* Half-written, and damaged. */
	table->results[0].sum = 1;
	assert_int_equal(check_of(table), 0);
	adopt(&table);
	assert_int_equal(table->results[0].sum, 0);
	table->results[1].bytes[3] ^= 1;
	assert_int_equal(check_of(table), -EUCLEAN);
	table_free(table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_and_versions),
		cmocka_unit_test(ids_are_never_used_twice),
		cmocka_unit_test(ceilings),
		cmocka_unit_test(stays_sound),
		cmocka_unit_test(half_written),
		cmocka_unit_test(damage),
		cmocka_unit_test(init_bytes),
		cmocka_unit_test(adopted),
		cmocka_unit_test(requests),
		cmocka_unit_test(results),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
