/* The real world, first half: one loop thread (libevent) that owns all state; time, timers, chance, descriptors,
 * signals, lanes, fail points. It is a struct env; net/nano.c adds the transport to it.
 *
 * Every callback runs under a name; one that takes over slow_us is logged with it. After each callback the deferred
 * ones run, so that what was sent in it leaves at once but nobody is re-entered. */
#ifndef DAEMON_LOOP_H
#define DAEMON_LOOP_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/err.h"
#include "common/list.h"
#include "env.h"

struct event_base;
struct loop;

enum loop_clock { LOOP_WALL_JUMP, LOOP_SUSPEND, LOOP_STALL };        /* E8; by_us: how far, signed */
struct loop_conf {
	struct log *log;                                /* borrowed; NULL = silent, env->log is there all the same */
	uint64_t slow_us;                               /* 0 = 50 000 */
	int train_threads;                              /* size of the train lane's team; 0 = 1 */
	int data_threads;                               /* 0 = 1 */
	void (*clock)(void *arg, enum loop_clock what, int64_t by_us);   /* may be NULL; on the loop */
	void *clock_arg;
	/* Tests only: another source of time, in us (wall too). NULL = CLOCK_BOOTTIME, CLOCK_MONOTONIC, CLOCK_REALTIME. */
	uint64_t (*read_clock)(void *arg, int clock_id);
	void *read_clock_arg;
};

struct loop *loop_new(const struct loop_conf *conf, struct err *e);
void loop_free(struct loop *l);                         /* detaches first; NULL is fine */
struct env *loop_env(struct loop *l);
struct event_base *loop_base(struct loop *l);           /* for evhttp only */
void loop_run(struct loop *l);                          /* until loop_stop */
void loop_stop(struct loop *l);                         /* from a callback */
/* Runs until cond is true (asked after every round of callbacks) or limit_us has gone by; returns the last answer. */
bool loop_run_until(struct loop *l, bool (*cond)(void *arg), void *arg, uint64_t limit_us);

/* ---- descriptors ---- the struct lives in its owner. ready may unwatch or free it. */
enum { WATCH_READ = 1, WATCH_WRITE = 2 };
struct watch {
	int fd; const char *name; void (*ready)(struct watch *w, int what);
	void *ev; int what; struct loop *loop;
};
/* level-triggered; again = changes what; 0 = stops */
void loop_watch_fd(struct loop *l, struct watch *w, int what);
void loop_unwatch(struct watch *w);                                     /* before closing the descriptor; idempotent */

/* ---- signals ---- */
struct signal_watch {
	int signo; const char *name; void (*caught)(struct signal_watch *s);
	void *ev; struct loop *loop;
};
void loop_watch_signal(struct loop *l, struct signal_watch *s);
void loop_unwatch_signal(struct signal_watch *s);

/* ---- later: after the running callback has returned, before anything else. Already waiting: nothing happens. ---- */
struct deferred { struct list link; const char *name; void (*fn)(struct deferred *d); bool waiting; };
void loop_defer(struct loop *l, struct deferred *d);
void loop_undefer(struct deferred *d);

/* ---- for those who dispatch by themselves: everything between enter and leave is one callback, lap ends it and
 * begins the next. Other entrances (evhttp) wrap themselves in enter and leave, or env_now stands still. ---- */
void loop_enter(struct loop *l, const char *name);
void loop_lap(struct loop *l, const char *name);
void loop_leave(struct loop *l);

/* ---- what the transport plugs in (net/nano.c) ---- */
struct transport {
	void (*send)(struct transport *t, const struct endpoint *to, enum chan chan, uint64_t door_token, struct packet *p);
	void (*close_link)(struct transport *t, const struct endpoint *to, bool waiting);
	bool (*linkinfo)(struct transport *t, const struct endpoint *to, struct linkinfo *ret);
	void (*detach)(struct transport *t);
	void (*heard)(struct transport *t, const uint8_t ip[16], uint64_t door_token);
	void (*ban)(struct transport *t, const uint8_t ip[16], uint64_t until_us);
};
void loop_plug(struct loop *l, struct transport *t);    /* NULL unplugs: packets then come back unsent */

/* ---- lanes ---- */
struct work *loop_work(struct loop *l);

/* ---- fail points: "name=kill", "name=stop:3" (at the third time), "name=error", comma-separated; test builds. ---- */
int loop_failpoints(struct loop *l, const char *text, struct err *e);

/* ---- figures ---- */
#define LOOP_BUCKETS 24                                 /* bucket i: callbacks that took under 2^i us */
struct loop_stats { uint64_t callbacks, slow, timers, jobs, worst_us; char worst[48]; uint64_t bucket[LOOP_BUCKETS]; };
void loop_stats(const struct loop *l, struct loop_stats *ret);

#endif
