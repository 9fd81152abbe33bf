#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

	assert_int_equal(node_claim(&f->nodes, n, false, false, 0, &id), CLAIM_CACHED);
	assert_int_equal(id, 0);
	assert_int_equal(node_claim(&f->nodes, n, true, false, 0, &id), CLAIM_STALE);
	assert_true(node_is_superseded(n));
	/* Again on the node itself, which no name leads to: as it is. */
	assert_int_equal(node_claim(&f->nodes, n, true, false, 0, &id), CLAIM_CACHED);

	next = look(f, f->nodes.root, "f", ORIGIN_FILE, "1");
	assert_ptr_not_equal(next, n);
	assert_int_equal(node_claim(&f->nodes, next, true, false, 0, &id), CLAIM_NEEDS_BACKING);
	assert_int_equal(node_claim(&f->nodes, next, true, false, 7, &id), CLAIM_PASSTHROUGH);
	assert_int_equal(id, 7);
	/* Of two at once one backing id is used; one whose object isn't warm follows. */
	assert_int_equal(node_claim(&f->nodes, next, true, false, 8, &id), CLAIM_PASSTHROUGH);
	assert_int_equal(id, 7);
	assert_int_equal(node_claim(&f->nodes, next, false, false, 0, &id), CLAIM_PASSTHROUGH);
	assert_int_equal(id, 7);
	assert_int_equal(node_unclaim(&f->nodes, next, TABLE_PASSTHROUGH), 0);
	assert_int_equal(node_unclaim(&f->nodes, next, TABLE_PASSTHROUGH), 0);
	assert_int_equal(node_unclaim(&f->nodes, next, TABLE_PASSTHROUGH), 7);
	/* With no handle left the mode is free again. */
	assert_int_equal(node_claim(&f->nodes, next, false, false, 0, &id), CLAIM_CACHED);
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

/* Forgets what the process knows, not the table. */
static void take_over(struct fixture *f)
{
	int fd = dup(table_fd(f->table));

	nodes_free(&f->nodes);
	table_free(f->table);
	assert_int_equal(table_adopt(fd, &f->table, NULL), 0);
	assert_int_equal(nodes_restore(&f->nodes, f->table, NULL), 0);
	assert_int_equal(nodes_settle(&f->nodes, NULL), 0);
}

static void restored(void **state)
{
	struct fixture *f = *state;
	struct node *d = look(f, f->nodes.root, "d", ORIGIN_DIR, "");
	struct node *old = look(f, d, "f", ORIGIN_FILE, "1");
	struct node *new = look(f, d, "f", ORIGIN_FILE, "2");
	struct node *gone = look(f, d, "g", ORIGIN_FILE, "1");
	uint64_t d_id = d->id, old_id = old->id, new_id = new->id, ino = new->ino,
		 gone_id = gone->id;

	/* Never told of: crashed before it was counted. */
	gone->record->lookups = 0;
	/* An id that was to be given up, and one that no handle has any more. */
	old->record->backing_id = 5;
	node_put(&f->nodes, d);
	node_put(&f->nodes, old);
	node_put(&f->nodes, new);
	gone->refs = 0;
	take_over(f);
	assert_int_equal(table_closing_take(f->table), 5);
	assert_int_equal(table_closing_take(f->table), 0);
	assert_null(nodes_get(&f->nodes, gone_id));
	d = look(f, f->nodes.root, "d", ORIGIN_DIR, "");
	assert_true(d->id == d_id);
	new = look(f, d, "f", ORIGIN_FILE, "2");
	assert_true(new->id == new_id &&new->ino == ino &&new->parent == d);
	old = nodes_get(&f->nodes, old_id);
	assert_true(old && node_is_superseded(old) && old->ino == ino);
	node_put(&f->nodes, d);
	node_put(&f->nodes, new);
	node_put(&f->nodes, old);
}

static size_t pick(struct fixture *f, struct doubt doubts[8])
{
	uint32_t at = 0;

	return nodes_pick_doubtful(&f->nodes, &at, doubts, 8);
}

/* What the kernel may not know any more is asked about, and freed if nobody was told meanwhile. */
static void doubted(void **state)
{
	struct fixture *f = *state;
	struct doubt doubts[8];
	struct node *a, *b;
	uint64_t a_id, b_id;

	look(f, f->nodes.root, "a", ORIGIN_FILE, "1")->refs = 0;
	look(f, f->nodes.root, "b", ORIGIN_FILE, "1")->refs = 0;
	assert_int_equal(pick(f, doubts), 0);
	take_over(f);
	a = look(f, f->nodes.root, "a", ORIGIN_FILE, "1");
	a_id = a->id;
	/* In use: not asked about. */
	assert_int_equal(pick(f, doubts), 1);
	b_id = doubts[0].id;
	assert_true(b_id != a_id);
	b = look(f, f->nodes.root, "b", ORIGIN_FILE, "1");
	assert_true(b->id == b_id);
	node_put(&f->nodes, b);
	assert_null(nodes_take_unknown(&f->nodes, &doubts[0]));
	node_put(&f->nodes, a);
	assert_int_equal(pick(f, doubts), 1);
	assert_true(doubts[0].id == a_id);
	node_put(&f->nodes, nodes_take_unknown(&f->nodes, &doubts[0]));
	assert_null(nodes_get(&f->nodes, a_id));
	/* b: known. But the kernel forgets fewer than were counted. */
	assert_int_equal(pick(f, doubts), 0);
	nodes_forget(&f->nodes, b_id, 1);
	assert_int_equal(pick(f, doubts), 1);
	node_put(&f->nodes, nodes_take_unknown(&f->nodes, &doubts[0]));
	assert_int_equal(nodes_count(&f->nodes), 1);
}

static void frozen(void **state)
{
	struct fixture *f = *state;
	struct node *n = look(f, f->nodes.root, "f", ORIGIN_FILE, "1");
	int id;

	assert_int_equal(node_claim(&f->nodes, n, true, false, 7, &id), CLAIM_PASSTHROUGH);
	nodes_freeze(&f->nodes);
	nodes_forget(&f->nodes, n->id, 1);
	nodes_supersede(&f->nodes, n);
	assert_int_equal(node_unclaim(&f->nodes, n, TABLE_PASSTHROUGH), 0);
	assert_int_equal(node_backing_id(n), 7);
	assert_false(node_is_superseded(n));
	node_put(&f->nodes, n);
	assert_int_equal(nodes_count(&f->nodes), 2);
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
		TEST(restored),
		TEST(doubted),
		TEST(frozen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
