/* Two daemons' net rooms, each a process in its own namespace, joined by emulated links: one transfer, small calls
 * while it runs, and what both took. For test_far.c (is it good enough?) and far.c (figures). */
#ifndef TESTS_LINK_FAR_KIT_H
#define TESTS_LINK_FAR_KIT_H
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "common/mem.h"
#include "link/hub.h"
#include "loop/loop.h"
#include "net/chunk.h"
#include "net/nano.h"
#include "net/net.h"

#define FAR_CALLS_MAX 4000
#define FAR_IDLE_CALLS 10
#define FAR_LIMIT_US 120000000

/* How it is to be: words for the links of both sides, the transfer's size, limits of the sender's upload and the
 * receiver's download (bytes/s, 0: none), which version of IP. client: who dials listens on nothing, and gets the
 * transfer instead of sending it, through the other's door. */
struct far_conf { const char *a, *b; size_t bytes; uint64_t rate_up, rate_down; bool ip6, client; uint64_t seed; };
/* seconds of the transfer, of the calls before it and beside it; all bytes that went up the sender's link. */
struct far_result { double seconds, idle, median, p95, max; int calls; uint64_t queue_us_max, wire_bytes;
	char error[320]; };

struct far_side { struct loop *loop; struct env *env; struct nano *nano; struct net *net; struct chunks *chunks;
	uint8_t *mem; size_t bytes; struct id other; bool over, moved; struct err e; };

static struct far_side far_me;
static double far_took[FAR_CALLS_MAX];
static int far_calls;
static double far_asked;

static inline double far_seconds(void) { return (double)hub_now_ns() * 1e-9; }
static inline int far_by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static inline int far_start(const struct far_conf *c, uint8_t who, const char *ip, struct err *e)
{
	struct far_side *x = &far_me;
	struct nano_conf nc = { .client = who == 1 && c->client, .rate_up = who == 1 ? c->rate_up : 0,
		.rate_down = who == 2 ? c->rate_down : 0 };
	struct net_conf conf = { .boot_id = 1000 + who, .client = nc.client };
	struct log *log = log_new(64, LOG_ERROR_, NULL, NULL);
	struct loop_conf lc = { .log = log };
	char text[64];

	conf.seed[0] = who;
	snprintf(text, sizeof text, c->ip6 ? "[%s]:4237" : "%s:4237", ip);
	x->loop = loop_new(&lc, e);
	x->env = x->loop ? loop_env(x->loop) : NULL;
	if (!x->loop || nano_listen_parse(text, &nc, e) || !(x->nano = nano_new(x->loop, &nc, e)))
		return -1;
	conf.self = *nano_endpoint(x->nano);
	x->net = net_new(x->env, &conf, e);
	x->chunks = x->net ? chunks_new(x->env, x->net) : NULL;
	x->bytes = c->bytes;
	x->mem = big_alloc(c->bytes);
	if (!x->chunks || !x->mem)
		return err_set(e, ERR_NOMEM, "%zu bytes", c->bytes);
	for (size_t i = 0; i < c->bytes; i += 4096)
		x->mem[i] = (uint8_t)(who + i / 4096);
	return 0;
}

/* ---- the one who is dialled: answers calls, sends or takes the transfer ---- */

static inline void far_echo(void *arg, struct request *r) { net_reply(r, json_pack("{s:i}", "n", 1), NO_BLOB); }
static inline void far_nothing(void *arg, struct xfer *x, const struct err *e) { }
static inline void far_offered(void *arg, const struct id *from, const struct id *tag, uint64_t len)
{
	if (len == far_me.bytes)
		xfer_recv(far_me.chunks, from, tag, far_me.mem, len, 0, far_nothing, NULL);
}

static inline void far_send_it(void *arg, struct request *r)
{
	struct id tag = { .b = { 1 } }, to = r->f.from;

	net_reply(r, NULL, NO_BLOB);
	xfer_send(far_me.chunks, &to, &tag, far_me.mem, far_me.bytes, CLASS_weight, env_now(far_me.env) + FAR_LIMIT_US,
		far_nothing, NULL);
}

/* ---- the one who dials and asks ---- */

static inline bool far_is_over(void *arg) { return far_me.over; }
static inline void far_done(const struct err *e)
{
	if (e)
		far_me.e = *e;
	far_me.over = true;
}
static inline void far_answered(void *arg, const struct frame *f, const struct err *e);
static inline void far_ask(void)
{
	far_asked = far_seconds();
	net_call(far_me.net, &far_me.other, KIND_RUN_STATE, NULL, NO_BLOB, CLASS_control, FAR_LIMIT_US, far_answered, NULL);
}
static inline void far_answered(void *arg, const struct frame *f, const struct err *e)
{
	far_took[far_calls++] = far_seconds() - far_asked;
	if (e || far_calls == FAR_CALLS_MAX || far_me.moved || (!far_me.bytes && far_calls >= FAR_IDLE_CALLS))
		far_done(e);
	else
		far_ask();
}
static inline void far_moved(void *arg, struct xfer *x, const struct err *e)
{
	far_me.moved = true;
	if (e)
		far_done(e);
}
static inline void far_dialled(void *arg, const struct id *peer, const struct err *e)
{
	if (peer)
		far_me.other = *peer;
	far_done(e);
}
static inline void far_heard_go(void *arg, const struct frame *f, const struct err *e) { }
static inline bool far_wait(struct far_result *r)
{
	bool ok = loop_run_until(far_me.loop, far_is_over, NULL, FAR_LIMIT_US) && !far_me.e.code;

	if (!ok)
		snprintf(r->error, sizeof r->error, "%s", far_me.e.code ? far_me.e.text : "no end");
	far_me.over = false;
	return ok;
}

static inline void far_measure(const struct far_conf *c, const struct endpoint *at, struct far_result *r)
{
	struct far_side *x = &far_me;
	struct id tag = { .b = { 1 } };
	double t;

	net_dial(x->net, at, 10000000, far_dialled, NULL);
	if (!far_wait(r))
		return;
	x->bytes = 0;
	far_ask();
	if (!far_wait(r))
		return;
	qsort(far_took, (size_t)far_calls, sizeof *far_took, far_by_value);
	r->idle = far_took[far_calls / 2];
	far_calls = 0;
	x->bytes = c->bytes;
	t = far_seconds();
	if (c->client) {
		xfer_recv(x->chunks, &x->other, &tag, x->mem, c->bytes, env_now(x->env) + FAR_LIMIT_US, far_moved, NULL);
		net_call(x->net, &x->other, KIND_CREW_SHOW, NULL, NO_BLOB, CLASS_control, FAR_LIMIT_US, far_heard_go, NULL);
	} else {
		xfer_send(x->chunks, &x->other, &tag, x->mem, c->bytes, CLASS_weight, env_now(x->env) + FAR_LIMIT_US,
			far_moved, NULL);
	}
	far_ask();
	if (!far_wait(r))
		return;
	r->seconds = far_seconds() - t - far_took[far_calls - 1] / 2;   /* it was over on the way of the last answer */
	r->calls = far_calls;
	qsort(far_took, (size_t)far_calls, sizeof *far_took, far_by_value);
	r->median = far_took[far_calls / 2];
	r->p95 = far_took[far_calls * 95 / 100];
	r->max = far_took[far_calls - 1];
}

static inline void far_child(const struct hub_node *n, const struct far_conf *c, uint8_t who, int fd)
{
	struct far_result r = {0};
	struct endpoint at = {0};
	char ip[32];
	int back;
	struct err e;

	snprintf(ip, sizeof ip, c->ip6 ? "fd77::a4d:%x" : "10.77.0.%u", who);
	if (hub_enter(n, &back, &e) || far_start(c, who, ip, &e)) {
		snprintf(r.error, sizeof r.error, "%s", e.text);
		_exit(write(fd, &r, sizeof r) != sizeof r);
	}
	if (who == 2) {
		net_on(far_me.net, KIND_RUN_STATE, far_echo, NULL);
		net_on(far_me.net, KIND_CREW_SHOW, far_send_it, NULL);
		chunks_offer(far_me.chunks, far_offered, NULL);
		if (write(fd, "ready", 5) == 5)
			loop_run(far_me.loop);
		_exit(1);
	}
	snprintf(ip, sizeof ip, c->ip6 ? "fd77::a4d:%x" : "10.77.0.%u", 2);
	(void)endpoint_ip(ip, at.ip);
	for (int i = 0; i < CHANS; i++)
		at.port[i] = (uint16_t)(4237 + i);
	far_measure(c, &at, &r);
	_exit(write(fd, &r, sizeof r) != sizeof r);
}

/* Runs the hub until the child has said something; false: it ended without. */
static inline bool far_heard(struct hub *h, int fd, void *to, size_t len)
{
	uint64_t end = hub_now_ns() + FAR_LIMIT_US * 1000ull;

	while (hub_now_ns() < end)
		if (hub_run(h, 1000000, fd))
			return read(fd, to, len) == (ssize_t)len;
	return false;
}

/* 0, or -1 and ret->error. */
static inline int far_run(const struct far_conf *c, struct far_result *ret)
{
	struct hub *h = hub_new(c->seed ? c->seed : 1);
	char line[300], reply[512], ready[5];
	int fd[2][2];
	pid_t pid[2] = { 0, 0 };
	struct err e = {0};
	int rc = -1;

	memset(ret, 0, sizeof *ret);
	snprintf(line, sizeof line, "node a 10.77.0.1 %s", c->a);
	if (hub_command(h, line, reply, sizeof reply, &e))
		goto out;
	snprintf(line, sizeof line, "node b 10.77.0.2 %s", c->b ? c->b : c->a);
	if (hub_command(h, line, reply, sizeof reply, &e))
		goto out;
	for (int i = 1; i >= 0; i--) {          /* the one who is dialled first */
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd[i]) || (pid[i] = fork()) < 0)
			goto out;
		if (!pid[i])
			far_child(hub_node(h, i ? "b" : "a"), c, (uint8_t)(i + 1), fd[i][1]);
		close(fd[i][1]);
		if (i && !far_heard(h, fd[1][0], ready, 5))
			goto out;
	}
	rc = far_heard(h, fd[0][0], ret, sizeof *ret) && !ret->error[0] ? 0 : -1;
	ret->queue_us_max = hub_node(h, "a")->up.stats.queue_us_max;
	ret->wire_bytes = hub_node(h, c->client ? "b" : "a")->up.stats.bytes;
out:
	if (rc && !ret->error[0])
		snprintf(ret->error, sizeof ret->error, "%s", e.code ? e.text : "a process ended without a word");
	for (int i = 0; i < 2; i++)
		if (pid[i] > 0) {
			kill(pid[i], SIGKILL);
			waitpid(pid[i], NULL, 0);
			close(fd[i][0]);
		}
	hub_free(h);
	return rc;
}

#endif
