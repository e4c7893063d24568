/* Lanes and the team, meant for ThreadSanitizer too: order within a lane, parallel lanes, hand-back through the
 * descriptor, draining, limits; a team that computes the same as one thread, many times in a row. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "common/mem.h"
#include "loop/work.h"

struct sum { struct job job; int n; long result; int *order, at; bool done; };

static void sum_run(struct job *j)
{
	struct sum *s = container_of(j, struct sum, job);
	s->result = 0;
	for (int i = 0; i <= s->n; i++)
		s->result += i;
}

static void sum_done(struct job *j)
{
	struct sum *s = container_of(j, struct sum, job);
	s->done = true;
	if (s->order)
		s->at = (*s->order)++;
}

static size_t reap(struct work *w, int wait_ms)
{
	struct pollfd p = { .fd = work_fd(w), .events = POLLIN };
	struct job *j;
	size_t n = 0;

	poll(&p, 1, wait_ms);
	while ((j = work_take(w))) {
		j->done(j);
		n++;
	}
	return n;
}

static const struct lane_row rows[] = { { "train", 1, 0 }, { "disk", 1, 5 }, { "data", 3, 0 } };

static void test_lanes(void **state)
{
	struct err e;
	struct work *w = work_new(rows, 3, &e);
	static struct sum s[300];
	int order[3] = { 0, 0, 0 }, last[3] = { -1, -1, -1 };
	size_t done = 0;

	assert_int_equal(work_lane(w, "disk"), 1);
	assert_int_equal(work_lane(w, "none"), -1);
	for (int i = 0; i < 300; i++) {
		int lane = i % 3;
		s[i] = (struct sum){ .job = { .name = "sum", .lane = lane, .run = sum_run, .done = sum_done }, .n = 1000 + i,
			.order = &order[lane] };
		work_put(w, &s[i].job);
		if (i % 7 == 0)
			done += reap(w, 0);
	}
	for (int k = 0; k < 1000 && done < 300; k++)
		done += reap(w, 100);
	assert_int_equal(done, 300);
	assert_int_equal(work_pending(w), 0);
	for (int i = 0; i < 300; i++) {
		assert_int_equal(s[i].result, (long)(1000 + i) * (1001 + i) / 2);
		if (i % 3 == 2)                 /* three threads: any order */
			continue;
		assert_true(s[i].at > last[i % 3]);
		last[i % 3] = s[i].at;
	}
	work_free(w);
}

static void nap_run(struct job *j)
{
	struct timespec ts = { 0, 20000000 };
	nanosleep(&ts, NULL);
}

static void chain_done(struct job *j)
{
	struct sum *s = container_of(j, struct sum, job);
	s->done = true;
	if (s->n-- > 0)
		work_put((struct work *)(void *)s->order, j);
}

/* Draining waits for running jobs, and for those that a done puts behind. */
static void test_drain(void **state)
{
	struct err e;
	struct work *w = work_new(rows, 3, &e);
	struct sum s[4], c = { .job = { .name = "chain", .lane = 0, .run = sum_run, .done = chain_done }, .n = 5,
		.order = (int *)(void *)w };
	struct timespec a, b;

	clock_gettime(CLOCK_MONOTONIC, &a);
	for (int i = 0; i < 3; i++) {
		s[i] = (struct sum){ .job = { .name = "nap", .lane = 2, .run = nap_run, .done = sum_done } };
		work_put(w, &s[i].job);
	}
	work_put(w, &c.job);
	assert_int_equal(work_pending(w), 4);
	work_drain(w);
	clock_gettime(CLOCK_MONOTONIC, &b);
	assert_true(s[0].done && s[1].done && s[2].done);
	assert_int_equal(c.n, -1);
	assert_true((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 >= 20);
	work_free(w);
	work_free(NULL);
}

/* What is to run here has run when it is put, and is handed back like all others. */
static void test_here(void **state)
{
	struct err e;
	struct work *w = work_new(rows, 3, &e);
	struct sum s[3];

	for (int i = 0; i < 3; i++) {
		s[i] = (struct sum){ .job = { .name = "sum", .lane = 0, .run = sum_run, .done = sum_done, .here = i != 1 },
			.n = 1000 };
		work_put(w, &s[i].job);
		assert_true(i == 1 || s[i].result == 500500);
		assert_false(s[i].done);
		assert_int_equal(work_pending(w), i + 1);
	}
	for (size_t n = 0; n < 3; )
		n += reap(w, 1000);
	for (int i = 0; i < 3; i++)
		assert_true(s[i].done && s[i].result == 500500);
	assert_int_equal(work_pending(w), 0);
	work_put(w, &s[0].job);
	s[0].done = false;
	work_drain(w);
	assert_true(s[0].done);
	work_free(w);
}

static void test_limits(void **state)
{
	struct err e;
	struct lane_row bad = { "x", 0, 0 };

	assert_null(work_new(&bad, 1, &e));
	assert_int_equal(e.code, ERR_LIMIT);
	assert_null(work_new(rows, 0, &e));
}

/* ---- the team ---- */
struct vec { const double *a; double *b; size_t n; atomic_int parts; };

static void square(void *arg, int part, int parts)
{
	struct vec *v = arg;
	size_t lo = v->n * (size_t)part / (size_t)parts, hi = v->n * (size_t)(part + 1) / (size_t)parts;
	atomic_fetch_add(&v->parts, 1);
	for (size_t i = lo; i < hi; i++)
		v->b[i] = v->a[i] * v->a[i];
}

static void test_team(void **state)
{
	static double a[1000], b[1000];

	for (int n = 1; n <= 5; n++) {
		struct team *t = team_new(n, 0);
		struct par p = team_par(t, CPU_PLAIN, NULL);
		assert_int_equal(p.n, n);
		for (int round = 0; round < 300; round++) {
			struct vec v = { a, b, 1000, 0 };
			for (int i = 0; i < 1000; i++) {
				a[i] = round + i;
				b[i] = -1;
			}
			if (p.run)
				p.run(&p, square, &v);
			else
				square(&v, 0, 1);
			assert_int_equal(atomic_load(&v.parts), n);
			for (int i = 0; i < 1000; i++)
				if (b[i] != a[i] * a[i])
					fail_msg("team of %d, round %d: element %d", n, round, i);
			if (round % 50 == 49) {         /* long enough for them to fall asleep */
				struct timespec ts = { 0, 2000000 };
				nanosleep(&ts, NULL);
			}
		}
		team_free(t);
	}
	team_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_lanes), cmocka_unit_test(test_drain),
		cmocka_unit_test(test_limits), cmocka_unit_test(test_here), cmocka_unit_test(test_team) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
