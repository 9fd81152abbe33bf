#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nodes.h"

#define NODES 64

struct fixture {
	struct table *table;
	struct nodes nodes;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);

	if (!f || table_new(NODES, 8, &f->table) || nodes_init(&f->nodes, f->table, 5))
		return -1;
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	struct why why;
	int r = table_check(table_fd(f->table), &why);

	nodes_free(&f->nodes);
	table_free(f->table);
	free(f);
	return r;
}

static struct node *look(struct fixture *f, struct node *parent, const char *name,
	enum origin_kind kind, const char *version)
{
	struct origin_attr attr = {.kind = kind, .size_bytes = 9, .mtime_ns = 77};
	struct node_name key = {parent, name, strlen(name), 0};
	struct node *node;
	char *path;

	strcpy(attr.version.text, version);
	assert_int_equal(node_path(&f->nodes, parent, name, strlen(name), &path), 0);
	key.ino = path_ino(path);
	free(path);
	assert_int_equal(nodes_lookup(&f->nodes, &key, &attr, 0, &node), 0);
	return node;
}

static void same_until_the_version_changes(void **state)
{
	struct fixture *f = *state;
	struct node *a = look(f, f->nodes.root, "f", ORIGIN_FILE, "1");
	struct node *b = look(f, f->nodes.root, "f", ORIGIN_FILE, "1");
	struct node *c = look(f, f->nodes.root, "f", ORIGIN_FILE, "2");
	uint64_t id = a->id;

	assert_ptr_equal(a, b);
	assert_ptr_not_equal(a, c);
	assert_true(a->ino == c->ino && a->id != c->id);
	assert_true(node_is_superseded(a) && !node_is_superseded(c));
	node_put(&f->nodes, a);
	node_put(&f->nodes, b);
	node_put(&f->nodes, c);
	nodes_forget(&f->nodes, id, 1);
	b = nodes_get(&f->nodes, id);
	assert_ptr_equal(b, a);
	node_put(&f->nodes, b);
	/* More than there were: a hint, not a proof. */
	nodes_forget(&f->nodes, id, 100);
	assert_null(nodes_get(&f->nodes, id));
	nodes_forget(&f->nodes, id, 1);
	assert_int_equal(nodes_count(&f->nodes), 2);
}

static void directories_stay(void **state)
{
	struct fixture *f = *state;
	struct node *d = look(f, f->nodes.root, "d", ORIGIN_DIR, "");
	struct node *file, *again;

	node_put(&f->nodes, d);
	nodes_forget(&f->nodes, d->id, 1);
	file = look(f, f->nodes.root, "d", ORIGIN_FILE, "1");
	assert_ptr_not_equal(file, d);
	again = look(f, f->nodes.root, "d", ORIGIN_DIR, "");
	assert_ptr_equal(again, d);
	node_put(&f->nodes, file);
	node_put(&f->nodes, again);
}

static void paths(void **state)
{
	struct fixture *f = *state;
	struct node *d = look(f, f->nodes.root, "dir", ORIGIN_DIR, "");
	struct node *e = look(f, d, "e", ORIGIN_DIR, "");
	struct node *file = look(f, e, "file", ORIGIN_FILE, "1");
	struct origin_attr attr;
	char *path;

	assert_int_equal(node_path(&f->nodes, file, NULL, 0, &path), 0);
	assert_string_equal(path, "dir/e/file");
	assert_true(file->ino == path_ino(path) && file->ino > 1);
	free(path);
	assert_int_equal(node_path(&f->nodes, e, "xyz", 2, &path), 0);
	assert_string_equal(path, "dir/e/xy");
	free(path);
	assert_int_equal(node_path(&f->nodes, f->nodes.root, NULL, 0, &path), 0);
	assert_string_equal(path, "");
	free(path);
	node_attr(&f->nodes, file, &attr);
	assert_int_equal(attr.size_bytes, 9);
	assert_string_equal(attr.version.text, "1");
	node_attr(&f->nodes, d, &attr);
	assert_int_equal(attr.mtime_ns, 5);
	node_put(&f->nodes, d);
	node_put(&f->nodes, e);
	node_put(&f->nodes, file);
}

static void one_mode(void **state)
{
	struct fixture *f = *state;
	struct node *n = look(f, f->nodes.root, "f", ORIGIN_FILE, "1"), *next;
	int id = -1;

	assert_int_equal(node_claim(&f->nodes, n, false, 0, &id), CLAIM_CACHED);
	assert_int_equal(id, 0);
	assert_int_equal(node_claim(&f->nodes, n, true, 0, &id), CLAIM_STALE);
	assert_true(node_is_superseded(n));
	/* Again on the node itself, which no name leads to: as it is. */
	assert_int_equal(node_claim(&f->nodes, n, true, 0, &id), CLAIM_CACHED);

	next = look(f, f->nodes.root, "f", ORIGIN_FILE, "1");
	assert_ptr_not_equal(next, n);
	assert_int_equal(node_claim(&f->nodes, next, true, 0, &id), CLAIM_NEEDS_BACKING);
	assert_int_equal(node_claim(&f->nodes, next, true, 7, &id), CLAIM_PASSTHROUGH);
	assert_int_equal(id, 7);
	/* Of two at once one backing id is used; one whose object isn't warm follows. */
	assert_int_equal(node_claim(&f->nodes, next, true, 8, &id), CLAIM_PASSTHROUGH);
	assert_int_equal(id, 7);
	assert_int_equal(node_claim(&f->nodes, next, false, 0, &id), CLAIM_PASSTHROUGH);
	assert_int_equal(id, 7);
	assert_int_equal(node_unclaim(&f->nodes, next, TABLE_PASSTHROUGH), 0);
	assert_int_equal(node_unclaim(&f->nodes, next, TABLE_PASSTHROUGH), 0);
	assert_int_equal(node_unclaim(&f->nodes, next, TABLE_PASSTHROUGH), 7);
	/* With no handle left the mode is free again. */
	assert_int_equal(node_claim(&f->nodes, next, false, 0, &id), CLAIM_CACHED);
	assert_int_equal(node_unclaim(&f->nodes, next, TABLE_CACHED), 0);
	node_unclaim(&f->nodes, n, TABLE_CACHED);
	node_unclaim(&f->nodes, n, TABLE_CACHED);
	node_put(&f->nodes, n);
	node_put(&f->nodes, next);
}

static void full(void **state)
{
	struct fixture *f = *state;
	struct origin_attr attr = {.kind = ORIGIN_FILE, .version.text = "1"};
	struct node *node, *first = NULL;
	char name[16];
	int n, r;

	for (n = 0;; n++) {
		snprintf(name, sizeof name, "%d", n);
		r = nodes_lookup(&f->nodes,
			&(struct node_name){f->nodes.root, name, strlen(name), path_ino(name)},
			&attr, 0, &node);
		if (r)
			break;
		assert_int_equal(nodes_are_plenty(&f->nodes), n + 2 < NODES / 4 * 3);
		first = first ? first : node;
		node_put(&f->nodes, node);
	}
	assert_int_equal(r, -ENFILE);
	assert_int_equal(n, NODES - 2);
	nodes_forget(&f->nodes, first->id, 1);
	node = look(f, f->nodes.root, "x", ORIGIN_FILE, "1");
	node_put(&f->nodes, node);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(same_until_the_version_changes),
		TEST(directories_stay),
		TEST(paths),
		TEST(one_mode),
		TEST(full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
