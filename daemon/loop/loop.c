/* The loop (1/2): libevent's base, time, timers, descriptors, signals, deferred calls. Tour: every callback goes
 * through enter() and leave(): enter reads the clock, leave measures, runs what was deferred and, where the loop has
 * called, the timers that were set to fire at once, and arms the timer. That is a timerfd on CLOCK_BOOTTIME, so it
 * counts suspended time and is exact to microseconds. */
#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>
#include "common/mem.h"
#include "loop/int.h"

#define SLOW_US 50000
#define TICK_US 1000000
#define TIMERS_AT_ONCE 256              /* then the descriptors get their turn */
#define SOON_AT_ONCE 16
#define REAP_AT_ONCE 64
#define JUMP_US 500000                  /* smaller differences are the clock being slewed */
#define STALL_US 5000000

static uint64_t clock_us(const struct loop *l, int id)
{
	struct timespec ts;
	if (l->conf.read_clock)
		return l->conf.read_clock(l->conf.read_clock_arg, id);
	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

uint64_t loop_time(const struct loop *l) { return l->now; }
uint64_t loop_wall_us(const struct loop *l) { return clock_us(l, CLOCK_REALTIME); }

/* ---- around every callback ---- */
static void measure(struct loop *l, const char *name, uint64_t since)
{
	uint64_t took = clock_us(l, CLOCK_BOOTTIME) - since;
	int b = 0;

	while (b < LOOP_BUCKETS - 1 && took >> b)
		b++;
	l->stats.bucket[b]++;
	l->stats.callbacks++;
	if (took > l->stats.worst_us) {
		l->stats.worst_us = took;
		snprintf(l->stats.worst, sizeof(l->stats.worst), "%s", name);
	}
	if (took <= l->conf.slow_us)
		return;
	l->stats.slow++;
	log_write(l->env.log, LOG_WARN_, "loop", "%s held the loop for %llu ms", name, (unsigned long long)took / 1000);
}

void loop_enter(struct loop *l, const char *name)
{
	if (l->depth++)
		return;
	l->now = clock_us(l, CLOCK_BOOTTIME);
	l->entered = l->now;
	l->name = name ? name : "callback";
}

static void run_deferred(struct loop *l)
{
	struct list *i;
	while ((i = list_pop(&l->deferred))) {
		struct deferred *d = list_entry(i, struct deferred, link);
		d->waiting = false;
		d->fn(d);
	}
}

static void arm(struct loop *l)
{
	struct timer *t = heap_peek(&l->heap);
	uint64_t at = t ? t->at_us : 0;
	struct itimerspec its = {0};

	if (at == l->armed)
		return;
	l->armed = at;
	its.it_value.tv_sec = (time_t)(at / 1000000);
	its.it_value.tv_nsec = (long)(at % 1000000) * 1000;
	if (l->conf.read_clock && at) { /* a test's clock: the kernel cannot know when; look soon */
		its.it_value.tv_sec = 0;
		its.it_value.tv_nsec = 1000000;
		l->armed = 0;
	}
	timerfd_settime(l->timer.fd, l->conf.read_clock ? 0 : TFD_TIMER_ABSTIME, &its, NULL);
}

void loop_lap(struct loop *l, const char *name)
{
	run_deferred(l);
	measure(l, l->name, l->entered);
	l->now = clock_us(l, CLOCK_BOOTTIME);
	l->entered = l->now;
	l->name = name;
}

/* ---- timers ---- */
/* The next one if it is due by then. */
static bool fire_next(struct loop *l, uint64_t by_us)
{
	struct timer *t = heap_peek(&l->heap);

	if (!t || t->at_us > by_us)
		return false;
	heap_pop(&l->heap);
	l->stats.timers++;
	loop_lap(l, t->name ? t->name : "timer");
	t->fire(t);
	return true;
}

static void timer_ready(struct watch *w, int what)
{
	struct loop *l = w->loop;
	uint64_t times;
	ssize_t rc = read(w->fd, &times, sizeof(times));
	int n = 0;

	(void)rc;
	l->armed = 0;
	while (n < TIMERS_AT_ONCE && fire_next(l, l->now))
		n++;
}

/* What a callback wants done at once, but not inside itself, needs no turn of the loop. What that sets in its turn
 * waits for the descriptors: many a timer is set to fire at once only to let these go first. */
static void fire_soon(struct loop *l)
{
	uint64_t by_us = l->now + 1;
	int n = 0;

	while (!l->conf.read_clock && n < SOON_AT_ONCE && fire_next(l, by_us))
		n++;
}

void loop_leave(struct loop *l)
{
	if (l->depth > 1) {
		l->depth--;
		return;
	}
	run_deferred(l);
	measure(l, l->name, l->entered);
	arm(l);
	l->depth = 0;
}

/* The end of what the loop itself has called. Whoever sets a timer from outside has not to do with what is due. */
static void turn_over(struct loop *l)
{
	if (l->depth == 1) {
		run_deferred(l);
		fire_soon(l);
	}
	loop_leave(l);
}

/* ---- the clocks against each other, once a second ---- */
static void tell(struct loop *l, enum loop_clock what, int64_t by_us)
{
	if (l->conf.clock)
		l->conf.clock(l->conf.clock_arg, what, by_us);
}

static void tick_fire(struct timer *t)
{
	struct loop *l = container_of(t, struct loop, tick);
	uint64_t boot = clock_us(l, CLOCK_BOOTTIME), mono = clock_us(l, CLOCK_MONOTONIC);
	uint64_t wall = clock_us(l, CLOCK_REALTIME);
	int64_t jump = (int64_t)(wall - l->tick_wall) - (int64_t)(boot - l->tick_boot);
	int64_t slept = (int64_t)(boot - l->tick_boot) - (int64_t)(mono - l->tick_mono);
	uint64_t late = boot - l->tick_due;

	if (slept > JUMP_US)
		tell(l, LOOP_SUSPEND, slept);
	else if (late > STALL_US)
		tell(l, LOOP_STALL, (int64_t)late);
	if (jump > JUMP_US || jump < -JUMP_US)
		tell(l, LOOP_WALL_JUMP, jump);
	l->tick_boot = boot;
	l->tick_mono = mono;
	l->tick_wall = wall;
	l->tick_due = boot + TICK_US;
	heap_set(&l->heap, &l->tick, l->tick_due);
}

/* ---- descriptors and signals ---- */
static void on_fd(evutil_socket_t fd, short what, void *arg)
{
	struct watch *w = arg;
	struct loop *l = w->loop;
	int bits = (what & EV_READ ? WATCH_READ : 0) | (what & EV_WRITE ? WATCH_WRITE : 0);

	loop_enter(l, w->name);
	w->ready(w, bits);
	turn_over(l);
}

void loop_watch_fd(struct loop *l, struct watch *w, int what)
{
	short bits = (short)(EV_PERSIST | (what & WATCH_READ ? EV_READ : 0) | (what & WATCH_WRITE ? EV_WRITE : 0));

	if (w->ev && w->what == what)
		return;
	loop_unwatch(w);
	if (!what)
		return;
	w->loop = l;
	w->what = what;
	w->ev = event_new(l->base, w->fd, bits, on_fd, w);
	if (!w->ev || event_add(w->ev, NULL))
		abort();
}

void loop_unwatch(struct watch *w)
{
	if (w->ev)
		event_free(w->ev);
	w->ev = NULL;
	w->what = 0;
}

static void on_signal(evutil_socket_t fd, short what, void *arg)
{
	struct signal_watch *s = arg;
	struct loop *l = s->loop;
	loop_enter(l, s->name);
	s->caught(s);
	turn_over(l);
}

void loop_watch_signal(struct loop *l, struct signal_watch *s)
{
	s->loop = l;
	s->ev = event_new(l->base, s->signo, EV_SIGNAL | EV_PERSIST, on_signal, s);
	if (!s->ev || event_add(s->ev, NULL))
		abort();
}

void loop_unwatch_signal(struct signal_watch *s)
{
	if (s->ev)
		event_free(s->ev);
	s->ev = NULL;
}

/* ---- later ---- */
static void on_kick(evutil_socket_t fd, short what, void *arg)
{
	struct loop *l = arg;
	loop_enter(l, "deferred");
	turn_over(l);
}

void loop_defer(struct loop *l, struct deferred *d)
{
	if (d->waiting)
		return;
	d->waiting = true;
	list_push(&l->deferred, &d->link);
	if (!l->depth)                          /* called from outside of any callback */
		event_active(l->kick, EV_READ, 0);
}

void loop_undefer(struct deferred *d)
{
	if (d->waiting)
		list_del(&d->link);
	d->waiting = false;
}

/* ---- lanes hand back ---- */
static void work_ready(struct watch *w, int what)
{
	struct loop *l = w->loop;
	struct job *j;

	for (int i = 0; i < REAP_AT_ONCE && (j = work_take(l->work)); i++) {
		l->stats.jobs++;
		loop_lap(l, j->name ? j->name : "job");
		j->done(j);
	}
}

/* ---- life ---- */
static int open_parts(struct loop *l, struct err *e)
{
	int data = l->conf.data_threads > 0 ? l->conf.data_threads : 1;
	struct lane_row rows[] = { { "train", 1, 0 }, { "reduce", 1, 0 }, { "disk", 1, 0 }, { "data", data, 0 },
		{ "copy-in", 1, 0 }, { "copy-out", 1, 0 }, { "resolve", 1, 0 }, { "serve", 1, 0 }, { "query", 1, 0 },
		{ "verify", 1, 0 }, { "hash", 1, 0 } };
	struct event_config *cfg = event_config_new();

	if (cfg)        /* ours is the only thread that touches the base: no locks, no clock cache */
		event_config_set_flag(cfg, EVENT_BASE_FLAG_NOLOCK);
	l->base = cfg ? event_base_new_with_config(cfg) : NULL;
	event_config_free(cfg);
	if (!l->base)
		return err_set(e, ERR_IO, "libevent finds no way to wait for descriptors");
	l->kick = event_new(l->base, -1, 0, on_kick, l);
	l->timer.fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
	if (l->timer.fd < 0)
		return err_set(e, ERR_IO, "timerfd: %s", strerror(errno));
	l->work = work_new(rows, sizeof(rows) / sizeof(rows[0]), e);
	if (!l->work || !l->kick)
		return -1;
	l->timer.name = "timers";
	l->timer.ready = timer_ready;
	loop_watch_fd(l, &l->timer, WATCH_READ);
	l->done.name = "jobs done";
	l->done.fd = work_fd(l->work);
	l->done.ready = work_ready;
	loop_watch_fd(l, &l->done, WATCH_READ);
	return 0;
}

struct loop *loop_new(const struct loop_conf *conf, struct err *e)
{
	struct loop *l = xcalloc(1, sizeof(*l));

	l->conf = *conf;
	if (!l->conf.slow_us)
		l->conf.slow_us = SLOW_US;
	l->timer.fd = -1;
	heap_init(&l->heap);
	list_init(&l->deferred);
	list_init(&l->points);
	loop_env_init(l);
	l->now = clock_us(l, CLOCK_BOOTTIME);
	if (open_parts(l, e)) {
		loop_free(l);
		return NULL;
	}
	l->tick.name = "clock check";
	l->tick.fire = tick_fire;
	l->tick_boot = l->now;
	l->tick_mono = clock_us(l, CLOCK_MONOTONIC);
	l->tick_wall = clock_us(l, CLOCK_REALTIME);
	l->tick_due = l->now + TICK_US;
	heap_set(&l->heap, &l->tick, l->tick_due);
	arm(l);
	return l;
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	if (l->work)
		l->env.ops->detach(&l->env);
	loop_points_free(l);
	loop_unwatch(&l->timer);
	loop_unwatch(&l->done);
	work_free(l->work);
	if (l->timer.fd >= 0)
		close(l->timer.fd);
	if (l->kick)
		event_free(l->kick);
	if (l->base)
		event_base_free(l->base);
	heap_done(&l->heap);
	log_free(l->own_log);
	free(l);
}

void loop_run(struct loop *l)
{
	l->stop = false;
	arm(l);
	while (!l->stop)
		event_base_loop(l->base, EVLOOP_ONCE | EVLOOP_NO_EXIT_ON_EMPTY);
}

void loop_stop(struct loop *l)
{
	l->stop = true;
	event_base_loopbreak(l->base);
}

static void limit_fire(struct timer *t) { t->name = NULL; }

bool loop_run_until(struct loop *l, bool (*cond)(void *arg), void *arg, uint64_t limit_us)
{
	struct timer limit = { .name = "limit", .fire = limit_fire };
	bool met;

	l->stop = false;
	l->now = clock_us(l, CLOCK_BOOTTIME);
	heap_set(&l->heap, &limit, l->now + (limit_us ? limit_us : 1));
	arm(l);
	while (!(met = cond(arg)) && limit.name && !l->stop)
		event_base_loop(l->base, EVLOOP_ONCE | EVLOOP_NO_EXIT_ON_EMPTY);
	heap_set(&l->heap, &limit, 0);
	return met;
}

struct env *loop_env(struct loop *l) { return &l->env; }
struct event_base *loop_base(struct loop *l) { return l->base; }
struct work *loop_work(struct loop *l) { return l->work; }
void loop_stats(const struct loop *l, struct loop_stats *ret) { *ret = l->stats; }
