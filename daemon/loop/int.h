/* The loop's own: shared by loop.c (waiting) and env.c (the struct env on top of it). */
#ifndef DAEMON_LOOP_INT_H
#define DAEMON_LOOP_INT_H
#include <stdio.h>
#include "common/heap.h"
#include "loop/loop.h"
#include "loop/work.h"

struct event;
struct faulty;
struct loop {
	struct env env;                         /* first: an env is its loop */
	struct loop_conf conf;
	struct log *own_log;                    /* nobody gave one: rooms may still write */
	struct event_base *base;
	struct event *kick;                     /* runs deferred calls that came from outside of a callback */
	struct work *work;
	struct transport *transport;
	struct heap heap;
	struct watch timer, done;
	uint64_t now, armed, entered;           /* armed: what the timerfd is set to */
	const char *name;                       /* of the running callback */
	int depth;
	bool stop, detached;
	struct list deferred, points;
	struct faulty *faulty;                  /* files with fail points before them; NULL */
	struct timer tick;
	uint64_t tick_boot, tick_mono, tick_wall, tick_due;
	struct loop_stats stats;
};

void loop_env_init(struct loop *l);
/* fault.c */
int loop_point(struct loop *l, const char *name);       /* 0, or -1: fail here; from any thread */
void loop_points_free(struct loop *l);
uint64_t loop_time(const struct loop *l);
uint64_t loop_wall_us(const struct loop *l);

#endif
