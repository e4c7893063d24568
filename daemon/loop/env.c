/* The loop: struct env of the real world on top of it. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include "common/mem.h"
#include "common/text.h"
#include "loop/files.h"
#include "loop/int.h"
#include "net/resolve.h"

static struct loop *of(struct env *e) { return (struct loop *)e; }

static uint64_t real_now(struct env *e) { return loop_time(of(e)); }
static uint64_t real_wall(struct env *e) { return loop_wall_us(of(e)) / 1000; }

static void real_timer(struct env *e, struct timer *t, uint64_t at_us)
{
	struct loop *l = of(e);
	heap_set(&l->heap, t, at_us);
	if (!l->depth) {        /* from outside of a callback: nobody else will arm the timerfd */
		loop_enter(l, "timer");
		loop_leave(l);
	}
}

static void real_send(struct env *e, const struct endpoint *to, enum chan chan, uint64_t token, struct packet *p)
{
	struct loop *l = of(e);
	if (l->transport)
		l->transport->send(l->transport, to, chan, token, p);
	else
		p->gone(p, false);      /* detached: see env.h */
}

static void real_close_link(struct env *e, const struct endpoint *to, bool waiting)
{
	if (of(e)->transport)
		of(e)->transport->close_link(of(e)->transport, to, waiting);
}

static bool real_linkinfo(struct env *e, const struct endpoint *to, struct linkinfo *ret)
{
	memset(ret, 0, sizeof(*ret));
	return of(e)->transport && of(e)->transport->linkinfo(of(e)->transport, to, ret);
}

static void real_work(struct env *e, struct job *j)
{
	if (!of(e)->detached) {
		work_put(of(e)->work, j);
		return;
	}
	j->run(j);
	j->done(j);
}

static int real_lane(struct env *e, const char *name) { return work_lane(of(e)->work, name); }

static void real_secure(struct env *e, void *out, size_t n)
{
	uint8_t *p = out;
	while (n) {
		ssize_t got = getrandom(p, n, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			fputs("getrandom failed: no keys can be made\n", stderr);
			abort();
		}
		p += got;
		n -= (size_t)got;
	}
}

static uint64_t real_rand(struct env *e)
{
	uint64_t v;
	real_secure(e, &v, sizeof(v));
	return v;
}

static void real_resolve(struct env *e, struct resolving *r)
{
	if (of(e)->detached) {
		r->rc = err_set(&r->error, ERR_CANCELLED, "%s: the daemon is stopping", r->name);
		r->done(r);
		return;
	}
	resolve_start(e, work_lane(of(e)->work, "resolve"), r);
}

static void real_detach(struct env *e)
{
	struct loop *l = of(e);
	struct transport *t;

	if (l->detached)
		return;
	loop_enter(l, "detach");
	l->detached = true;
	e->recv = NULL;
	work_drain(l->work);
	t = l->transport;
	l->transport = NULL;
	if (t)
		t->detach(t);
	loop_leave(l);
}

static void real_heard(struct env *e, const uint8_t ip[16], uint64_t door_token)
{
	if (of(e)->transport && of(e)->transport->heard)
		of(e)->transport->heard(of(e)->transport, ip, door_token);
}

static void real_ban(struct env *e, const uint8_t ip[16], uint64_t until_us)
{
	if (of(e)->transport && of(e)->transport->ban)
		of(e)->transport->ban(of(e)->transport, ip, until_us);
}

void loop_plug(struct loop *l, struct transport *t) { l->transport = t; }

static int real_fail(struct env *e, const char *point) { return loop_point(of(e), point); }

static const struct env_ops ops = {
	.now = real_now, .wall = real_wall, .timer = real_timer, .send = real_send, .close_link = real_close_link,
	.linkinfo = real_linkinfo, .work = real_work, .lane = real_lane, .rand = real_rand, .secure = real_secure,
	.resolve = real_resolve, .fail = real_fail, .detach = real_detach, .heard = real_heard, .ban = real_ban,
};

static uint64_t log_wall(void *arg) { return loop_wall_us(arg) / 1000; }

void loop_env_init(struct loop *l)
{
	l->env.ops = &ops;
	l->env.files = files_real();
	if (!l->conf.log)
		l->own_log = log_new(1, LOG_ERROR_, log_wall, l);
	l->env.log = l->conf.log ? l->conf.log : l->own_log;
}
