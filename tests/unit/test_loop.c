/* The loop: timers in order and on time, deferred calls, descriptors, signals, jobs, slow callbacks, clock jumps,
 * names, fail points, what detach promises. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "common/log.h"
#include "common/mem.h"
#include "loop/loop.h"

#define SECOND 1000000

static struct loop *make(const struct loop_conf *conf)
{
	struct err e = {0};
	struct loop_conf none = {0};
	struct loop *l = loop_new(conf ? conf : &none, &e);
	assert_non_null(l);
	return l;
}

static bool yes(void *arg) { return *(int *)arg != 0; }
static bool never(void *arg) { return false; }

/* ---- timers ---- */
struct tick { struct timer t; struct env *env; int order, *next; uint64_t fired; uint64_t again_us; int times; };

static void tick_fire(struct timer *t)
{
	struct tick *k = container_of(t, struct tick, t);
	k->order = ++*k->next;
	k->fired = env_now(k->env);
	k->times++;
	if (k->again_us)
		env_after(k->env, t, k->again_us);
}

static void test_timers(void **state)
{
	struct loop *l = make(NULL);
	struct env *env = loop_env(l);
	int next = 0;
	struct tick k[5];
	uint64_t t0 = env_now(env);

	for (int i = 0; i < 5; i++) {
		k[i] = (struct tick){ .t = { .fire = tick_fire }, .env = env, .next = &next };
		env_timer(env, &k[i].t, t0 + (uint64_t)(5 - i) * 3000);
	}
	env_timer(env, &k[2].t, 0);             /* disarmed */
	k[0].again_us = 1000;
	assert_true(loop_run_until(l, yes, &k[0].order, SECOND));
	assert_int_equal(k[4].order, 1);
	assert_int_equal(k[3].order, 2);
	assert_int_equal(k[1].order, 3);
	assert_int_equal(k[0].order, 4);
	assert_int_equal(k[2].times, 0);
	assert_true(k[4].fired >= t0 + 3000 && k[0].fired >= t0 + 15000);
	loop_run_until(l, never, NULL, 30000);
	assert_true(k[0].times > 2);
	env_timer(env, &k[0].t, 0);
	loop_free(l);
}

/* ---- deferred ---- */
struct later { struct deferred d; struct loop *l; int runs, again, in_fire; struct timer t; };

static void later_fn(struct deferred *d)
{
	struct later *x = container_of(d, struct later, d);
	assert_int_equal(x->in_fire, 0);
	x->runs++;
	if (x->again-- > 0)
		loop_defer(x->l, d);
}

static void later_fire(struct timer *t)
{
	struct later *x = container_of(t, struct later, t);
	x->in_fire = 1;
	loop_defer(x->l, &x->d);
	loop_defer(x->l, &x->d);
	assert_int_equal(x->runs, 0);
	x->in_fire = 0;
}

static void test_deferred(void **state)
{
	struct loop *l = make(NULL);
	struct later x = { .d = { .fn = later_fn }, .l = l, .again = 2, .t = { .fire = later_fire } };

	env_after(loop_env(l), &x.t, 1);
	assert_true(loop_run_until(l, yes, &x.runs, SECOND));
	assert_int_equal(x.runs, 3);
	x.runs = 0;
	loop_defer(l, &x.d);                    /* from outside of any callback */
	assert_int_equal(x.runs, 0);
	assert_true(loop_run_until(l, yes, &x.runs, SECOND));
	assert_int_equal(x.runs, 1);
	loop_defer(l, &x.d);
	loop_undefer(&x.d);
	loop_run_until(l, never, NULL, 2000);
	assert_int_equal(x.runs, 1);
	loop_free(l);
}

/* ---- descriptors and signals ---- */
struct hear { struct watch w; int readable, writable; };

static void hear_ready(struct watch *w, int what)
{
	struct hear *h = container_of(w, struct hear, w);
	char c;
	if (what & WATCH_WRITE) {
		h->writable++;
		loop_watch_fd(w->loop, w, 0);
	}
	if (what & WATCH_READ) {
		assert_int_equal(read(w->fd, &c, 1), 1);
		h->readable++;
	}
}

static void caught(struct signal_watch *s) { loop_stop(s->loop); }

static void test_descriptors(void **state)
{
	struct loop *l = make(NULL);
	int p[2];
	struct hear in = { .w = { .name = "in", .ready = hear_ready } };
	struct hear out = { .w = { .name = "out", .ready = hear_ready } };
	struct signal_watch term = { .signo = SIGUSR1, .name = "usr1", .caught = caught };

	assert_int_equal(pipe(p), 0);
	in.w.fd = p[0];
	out.w.fd = p[1];
	loop_watch_fd(l, &in.w, WATCH_READ);
	loop_watch_fd(l, &out.w, WATCH_WRITE);
	assert_true(loop_run_until(l, yes, &out.writable, SECOND));
	assert_int_equal(in.readable, 0);
	assert_int_equal(write(p[1], "xy", 2), 2);
	assert_true(loop_run_until(l, yes, &in.readable, SECOND));
	loop_run_until(l, never, NULL, 5000);
	assert_int_equal(in.readable, 2);
	assert_int_equal(out.writable, 1);
	loop_unwatch(&in.w);
	loop_unwatch(&in.w);
	loop_watch_signal(l, &term);
	kill(getpid(), SIGUSR1);
	loop_run(l);                            /* ends by the signal */
	loop_unwatch_signal(&term);
	close(p[0]);
	close(p[1]);
	loop_free(l);
}

/* ---- timers that fire at once ---- */
struct soon { struct watch w; struct timer t; struct deferred d; struct loop *l;
	char order[64]; int n, read; bool on; };

static void note(struct soon *x, char what)
{
	if (x->n < (int)sizeof x->order - 1)
		x->order[x->n++] = what;
}

static void soon_ready(struct watch *w, int what)
{
	struct soon *x = container_of(w, struct soon, w);
	char c;

	assert_int_equal(read(w->fd, &c, 1), 1);
	x->read++;
	note(x, 'r');
	if (!x->t.at_us)
		env_after(loop_env(x->l), &x->t, 1);
}

static void soon_fire(struct timer *t)
{
	struct soon *x = container_of(t, struct soon, t);

	note(x, 't');
	loop_defer(x->l, &x->d);
	if (x->on)
		env_after(loop_env(x->l), t, 1);
}

static void soon_fn(struct deferred *d) { note(container_of(d, struct soon, d), 'd'); }
static bool all_read(void *arg) { return ((struct soon *)arg)->read == 8; }

/* What a callback sets to fire at once, and what that puts off, is done before the next descriptor is looked at. One
 * that sets itself again and again keeps nobody from being looked at. */
static void test_soon(void **state)
{
	for (int on = 0; on < 2; on++) {
		struct loop *l = make(NULL);
		struct soon x = { .w = { .name = "in", .ready = soon_ready }, .t = { .fire = soon_fire },
			.d = { .fn = soon_fn }, .l = l, .on = on };
		int p[2];

		assert_int_equal(pipe(p), 0);
		x.w.fd = p[0];
		assert_int_equal(write(p[1], "12345678", 8), 8);
		loop_watch_fd(l, &x.w, WATCH_READ);
		assert_true(loop_run_until(l, all_read, &x, SECOND));
		env_timer(loop_env(l), &x.t, 0);
		if (on)
			assert_memory_equal(x.order, "rtd", 3);
		else
			assert_string_equal(x.order, "rtdrtdrtdrtdrtdrtdrtdrtd");
		loop_unwatch(&x.w);
		loop_undefer(&x.d);
		close(p[0]);
		close(p[1]);
		loop_free(l);
	}
}

/* Who sets one from outside is not called back meanwhile, whatever else is due. */
static void test_soon_outside(void **state)
{
	struct loop *l = make(NULL);
	struct env *env = loop_env(l);
	int next = 0;
	struct tick one = { .t = { .fire = tick_fire }, .env = env, .next = &next }, two = one;
	struct timespec ms = { 0, 1000000 };

	env_after(env, &one.t, 1);
	nanosleep(&ms, NULL);
	env_after(env, &two.t, 1);
	assert_int_equal(one.times + two.times, 0);
	assert_true(loop_run_until(l, yes, &two.order, SECOND));
	assert_int_equal(one.order, 1);
	loop_free(l);
}

/* ---- slow callbacks, jobs ---- */
struct slow { struct job job; struct timer t; struct env *env; int ran, done; };

static void hold(unsigned ms)
{
	struct timespec ts = { 0, (long)ms * 1000000 };
	nanosleep(&ts, NULL);
}

static void slow_run(struct job *j) { container_of(j, struct slow, job)->ran = 1; }
static void slow_done(struct job *j) { hold(8); container_of(j, struct slow, job)->done = 1; }
static void slow_fire(struct timer *t) { hold(6); container_of(t, struct slow, t)->ran = 1; }
static uint64_t wall0(void *arg) { return 0; }

static void test_slow(void **state)
{
	struct log *log = log_new(16, LOG_DEBUG_, wall0, NULL);
	struct loop_conf conf = { .log = log, .slow_us = 5000 };
	struct loop *l = make(&conf);
	struct slow s = { .env = loop_env(l), .t = { .fire = slow_fire, .name = "molasses" } };
	struct log_line lines[4];
	struct loop_stats st;

	env_after(s.env, &s.t, 1);
	assert_true(loop_run_until(l, yes, &s.ran, SECOND));
	s.ran = 0;
	s.job = (struct job){ .name = "treacle", .lane = env_lane(s.env, "disk"), .run = slow_run, .done = slow_done };
	env_work(s.env, &s.job);
	assert_int_equal(s.done, 0);
	assert_true(loop_run_until(l, yes, &s.done, SECOND));
	assert_int_equal(s.ran, 1);
	loop_stats(l, &st);
	assert_int_equal(st.slow, 2);
	assert_int_equal(st.jobs, 1);
	assert_true(st.worst_us >= 6000);
	assert_int_equal(log_recent(log, 0, lines, 4), 2);
	assert_non_null(strstr(lines[0].text, "molasses"));
	assert_non_null(strstr(lines[1].text, "treacle"));
	assert_int_equal(env_lane(s.env, "nonsense"), -1);
	loop_free(l);
	log_free(log);
}

/* ---- clocks ---- */
struct clocks { uint64_t boot, mono, wall; int news; enum loop_clock what; int64_t by; };

static uint64_t read_clock(void *arg, int id)
{
	struct clocks *c = arg;
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	uint64_t t = (uint64_t)ts.tv_sec * SECOND + (uint64_t)ts.tv_nsec / 1000;
	/* 50 times as fast */
	return t * 50 + (id == CLOCK_REALTIME ? c->wall : id == CLOCK_MONOTONIC ? c->mono : c->boot);
}

static void clock_news(void *arg, enum loop_clock what, int64_t by_us)
{
	struct clocks *c = arg;
	c->what = what;
	c->by = by_us;
	c->news++;
}

static void test_clocks(void **state)
{
	struct clocks c = { 0 };
	struct loop_conf conf = { .clock = clock_news, .clock_arg = &c, .read_clock = read_clock, .read_clock_arg = &c };
	struct loop *l = make(&conf);

	assert_false(loop_run_until(l, yes, &c.news, 3 * SECOND));      /* 60 ms: nothing to tell */
	c.wall += 3600 * (uint64_t)SECOND;
	assert_true(loop_run_until(l, yes, &c.news, 20 * (uint64_t)SECOND));
	assert_int_equal(c.what, LOOP_WALL_JUMP);
	assert_true(c.by > 3590 * (int64_t)SECOND && c.by < 3610 * (int64_t)SECOND);
	c.news = 0;
	c.wall -= 10 * (uint64_t)SECOND;
	assert_true(loop_run_until(l, yes, &c.news, 20 * (uint64_t)SECOND));
	assert_int_equal(c.what, LOOP_WALL_JUMP);
	assert_true(c.by < -9 * (int64_t)SECOND);
	c.news = 0;
	c.boot += 100 * (uint64_t)SECOND;       /* suspended: boot time and wall time went on, monotonic did not */
	c.wall += 100 * (uint64_t)SECOND;
	assert_true(loop_run_until(l, yes, &c.news, 200 * (uint64_t)SECOND));
	assert_int_equal(c.what, LOOP_SUSPEND);
	assert_true(c.by > 99 * (int64_t)SECOND);
	loop_free(l);
}

/* ---- names ---- */
struct ask { struct resolving r; int done; };
static void ask_done(struct resolving *r) { container_of(r, struct ask, r)->done = 1; }

static void test_resolve(void **state)
{
	struct loop *l = make(NULL);
	struct env *env = loop_env(l);
	struct ask a = { .r = { .name = "127.0.0.9", .done = ask_done, .at.port = { 5, 6, 7 } } };

	env->ops->resolve(env, &a.r);
	assert_int_equal(a.done, 0);
	assert_true(loop_run_until(l, yes, &a.done, 5 * SECOND));
	assert_int_equal(a.r.rc, 0);
	assert_int_equal(a.r.at.ip[11], 0xff);
	assert_int_equal(a.r.at.ip[15], 9);
	assert_int_equal(a.r.at.port[2], 7);
	a.done = 0;
	memcpy(a.r.name, "no such name.", 14); /* a blank: refused without a query */
	env->ops->resolve(env, &a.r);
	assert_true(loop_run_until(l, yes, &a.done, 20 * (uint64_t)SECOND));
	assert_int_equal(a.r.rc, -1);
	assert_non_null(strstr(a.r.error.text, "no such name."));
	loop_free(l);
}

/* ---- detach: everything comes back before it returns ---- */
struct pkt { struct packet p; int gone; bool sent; };
static int pkt_seal(struct packet *p, uint32_t connection, uint8_t *out) { return 0; }
static void pkt_gone(struct packet *p, bool sent) { ((struct pkt *)p)->gone++; ((struct pkt *)p)->sent = sent; }

static void test_detach(void **state)
{
	struct loop *l = make(NULL);
	struct env *env = loop_env(l);
	struct slow s[20] = {{{{0}}}};
	struct ask a = { .r = { .name = "127.0.0.1", .done = ask_done } };
	struct pkt p = { .p = { .wire_len = 8, .seal = pkt_seal, .gone = pkt_gone } };
	struct endpoint to = {{0}};
	uint8_t x[16] = {0}, y[16] = {0};

	for (int i = 0; i < 20; i++) {
		s[i].job = (struct job){ .name = "j", .lane = env_lane(env, i % 2 ? "data" : "train"), .run = slow_run,
			.done = slow_done };
		env_work(env, &s[i].job);
	}
	env->ops->resolve(env, &a.r);
	env->ops->detach(env);
	for (int i = 0; i < 20; i++)
		assert_true(s[i].done);
	assert_true(a.done);
	s[0].done = 0;
	env_work(env, &s[0].job);
	assert_true(s[0].done);                 /* afterwards at once */
	env->ops->send(env, &to, CHAN_CTRL, 0, &p.p);
	assert_int_equal(p.gone, 1);
	assert_false(p.sent);
	env->ops->secure(env, x, 16);
	env->ops->secure(env, y, 16);
	assert_memory_not_equal(x, y, 16);
	loop_free(l);
}

static void test_failpoints(void **state)
{
	struct loop *l = make(NULL);
	struct env *env = loop_env(l);
	struct err e;

	assert_int_equal(loop_failpoints(l, "a.before=error:2,b=error", &e), 0);
	assert_int_equal((env->ops->fail)(env, "a.before"), 0);
	assert_int_equal((env->ops->fail)(env, "a.before"), -1);
	assert_int_equal((env->ops->fail)(env, "a.before"), 0);
	assert_int_equal((env->ops->fail)(env, "b"), -1);
	assert_int_equal((env->ops->fail)(env, "c"), 0);
#ifdef FAILPOINTS
	assert_int_equal(loop_failpoints(l, "mem.big=error:2,file.open=error", &e), 0);
	void *p = big_alloc(10);
	assert_non_null(p);
	assert_null(big_alloc(10));
	big_free(p, 10);
	struct files *f = env->files;
	assert_int_equal(f->open(f, "/dev/null", O_RDONLY, 0, &e), -1);
	int fd = f->open(f, "/dev/null", O_RDONLY, 0, &e);
	assert_true(fd >= 0);
	f->close(f, fd, NULL);
#endif
	assert_int_equal(loop_failpoints(l, "a", &e), -1);
	assert_int_equal(loop_failpoints(l, "a=burn", &e), -1);
	assert_int_equal(loop_failpoints(l, "a=kill:0", &e), -1);
	assert_int_equal(loop_failpoints(l, "a=kill:x", &e), -1);
	loop_free(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_timers), cmocka_unit_test(test_deferred),
		cmocka_unit_test(test_descriptors), cmocka_unit_test(test_soon), cmocka_unit_test(test_soon_outside),
		cmocka_unit_test(test_slow),
		cmocka_unit_test(test_clocks),
		cmocka_unit_test(test_resolve), cmocka_unit_test(test_detach), cmocka_unit_test(test_failpoints) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
