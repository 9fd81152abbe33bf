/* The way to a control socket whose queue is full, or where nobody listens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "connect.h"

#define QUEUED_MAX 64

struct fixture {
	char dir[64];
	struct sockaddr_un address;
	int listener;
	int queued[QUEUED_MAX];
	size_t n_queued;
};

static int make(void **state)
{
	static struct fixture f;

	f = (struct fixture){.address = {.sun_family = AF_UNIX}};
	snprintf(f.dir, sizeof f.dir, "/tmp/cachefs-test-XXXXXX");
	if (!mkdtemp(f.dir))
		return -1;
	snprintf(f.address.sun_path, sizeof f.address.sun_path, "%s/socket", f.dir);
	f.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	*state = &f;
	return bind(f.listener, (struct sockaddr *)&f.address, sizeof f.address) ||
	       listen(f.listener, 1);
}

static int unmake(void **state)
{
	struct fixture *f = *state;

	for (size_t i = 0; i < f->n_queued; i++)
		close(f->queued[i]);
	close(f->listener);
	unlink(f->address.sun_path);
	return rmdir(f->dir);
}

/* Nobody accepts. */
static void fill(struct fixture *f)
{
	int r = 0;

	while (!r && f->n_queued < QUEUED_MAX) {
		int *fd = &f->queued[f->n_queued];

		r = connect_control(f->address.sun_path, 0, fd, NULL);
		f->n_queued += !r;
	}
	assert_int_equal(r, -ETIMEDOUT);
	assert_true(f->n_queued > 0);
}

static void a_full_queue_is_said_to_be_full(void **state)
{
	struct fixture *f = *state;
	struct why why;
	int fd = -1;

	fill(f);
	assert_int_equal(connect_control(f->address.sun_path, 20, &fd, &why), -ETIMEDOUT);
	assert_non_null(strstr(why.text, "takes no more connections"));
	assert_int_equal(fd, -1);
}

static void *accept_one(void *arg)
{
	struct fixture *f = arg;

	close(accept(f->listener, NULL, NULL));
	return NULL;
}

static void it_is_waited_for(void **state)
{
	struct fixture *f = *state;
	pthread_t thread;
	int fd = -1;

	fill(f);
	assert_int_equal(pthread_create(&thread, NULL, accept_one, f), 0);
	assert_int_equal(connect_control(f->address.sun_path, 30000, &fd, NULL), 0);
	pthread_join(thread, NULL);
	close(fd);
}

static void nobody_listens(void **state)
{
	struct fixture *f = *state;
	struct why why;
	char name[128];
	int fd;

	snprintf(name, sizeof name, "%s.no", f->address.sun_path);
	assert_int_equal(connect_control(name, 30000, &fd, &why), -ENOENT);
	close(f->listener);
	assert_int_equal(connect_control(f->address.sun_path, 30000, &fd, &why), -ECONNREFUSED);
	assert_non_null(strstr(why.text, "no daemon listens"));
	f->listener = -1;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make, unmake)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_full_queue_is_said_to_be_full),
		TEST(it_is_waited_for),
		TEST(nobody_listens),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
