/* All-reduce in a fixed group, strict: everybody or an error. Small vectors are exchanged directly (one message each
 * way, latency first); larger ones go through a butterfly: member j sums part j in member order and sends it to all, so
 * that each byte crosses twice and every member decodes the same bytes. */
#include <stdlib.h>
#include <string.h>
#include "avg/coll.h"
#include "common/buf.h"
#include "common/list.h"
#include "common/mem.h"

#define DIRECT 16384                            /* bytes: below it latency counts, not bandwidth */
#define FEW 65536                               /* bytes: below it the sum stays on the loop (B11) */

struct coll { struct env *env; struct net *net; struct chunks *chunks; struct list open; };
struct piece { struct op *op; struct xfer *x; uint32_t member; bool done; };
struct op {
	struct list link; struct coll *c; struct job job; struct timer later;
	struct id *members, tag; uint32_t n, me; uint64_t seq, deadline_us;
	enum coll_op op; float *x; size_t len, lo, hi;          /* my part */
	float *raw;                             /* what the others sent of my part (butterfly) or of all (direct) */
	struct piece *in, *out, *result_in, *result_out;
	bool direct, summing, summed, ended; uint32_t left;     /* transfers and the sum that must end well */
	struct err why; coll_done_fn *done; void *arg;
};

struct coll *coll_new(struct env *env, struct net *net, struct chunks *chunks)
{
	struct coll *c = xcalloc(1, sizeof *c);
	c->env = env;
	c->net = net;
	c->chunks = chunks;
	list_init(&c->open);
	return c;
}

static void cut(const struct op *o, uint32_t i, size_t *ret_lo, size_t *ret_hi)
{
	*ret_lo = o->len / o->n * i + (i < o->len % o->n ? i : o->len % o->n);
	*ret_hi = *ret_lo + o->len / o->n + (i < o->len % o->n);
}

static void cancel(struct piece *p, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (p[i].x) {
			xfer_cancel(p[i].x);
			p[i].x = NULL;
		}
}

static void op_free(struct op *o)
{
	struct coll *c = o->c;
	env_timer(c->env, &o->later, 0);
	cancel(o->in, 4 * o->n);
	list_del(&o->link);
	big_free(o->raw, (o->hi - o->lo) * sizeof(float) * o->n);
	free(o->in);
	free(o->members);
	free(o);
}

void coll_free(struct coll *c)
{
	if (!c)
		return;
	list_each_safe(it, &c->open)
		op_free(list_entry(it, struct op, link));
	free(c);
}

/* The end is told from a timer, so that nothing calls back from inside coll_allreduce or a transfer. */
static void later(struct timer *t)
{
	struct op *o = container_of(t, struct op, later);
	coll_done_fn *done = o->done;
	void *arg = o->arg;
	struct err e = o->why;
	if (o->summing)
		return;                         /* the lane still holds the memory; sum_done comes back here */
	op_free(o);
	done(arg, e.code ? &e : NULL);
}

static void end(struct op *o, const struct err *e)
{
	if (o->ended)
		return;
	o->ended = true;
	if (e)
		o->why = *e;
	cancel(o->in, 4 * o->n);
	env_after(o->c->env, &o->later, 1);
}

bool coll_cancel(struct coll *c, void *arg)
{
	struct err e;
	list_each_safe(it, &c->open) {
		struct op *o = list_entry(it, struct op, link);
		if (o->arg != arg)
			continue;
		if (!o->summing) {
			op_free(o);
			return true;
		}
		err_set(&e, ERR_CANCELLED, "the collective was given up");
		end(o, &e);
		return false;
	}
	return true;
}

static void tag_of(const struct op *o, char what, uint32_t from, uint32_t to, struct id *ret)
{
	struct buf b = { 0 };
	buf_put(&b, o->tag.b, 32);
	buf_u64(&b, o->seq);
	buf_u8(&b, (uint8_t)what);
	buf_u32(&b, from);
	buf_u32(&b, to);
	id_of(ret, b.p, b.len);
	buf_free(&b);
}

static void one_less(struct op *o)
{
	if (--o->left == 0)
		end(o, NULL);
}

/* ---- the sum of my part ---- */

static float combine(enum coll_op op, float a, float b)
{
	if (op == COLL_MAX)
		return a != a || a > b ? a : b; /* NaN wins, whoever brings it */
	return a + b;
}

static void sum_run(struct job *j)
{
	struct op *o = container_of(j, struct op, job);
	size_t n = o->hi - o->lo;
	float *mine = o->x + o->lo;
	for (size_t k = 0; k < n; k++) {
		float v = o->me == 0 ? mine[k] : o->raw[k];
		for (uint32_t i = 1; i < o->n; i++)
			v = combine(o->op, v, i == o->me ? mine[k] : o->raw[i * n + k]);
		mine[k] = o->op == COLL_MEAN ? v / (float)o->n : v;
	}
}

static void result_over(void *arg, struct xfer *x, const struct err *e)
{
	struct piece *p = arg;
	p->x = NULL;
	if (e)
		end(p->op, e);
	else
		one_less(p->op);
}

static void send_results(struct op *o)
{
	struct id tag;
	for (uint32_t i = 0; i < o->n && !o->direct; i++) {
		if (i == o->me || o->hi == o->lo)
			continue;
		tag_of(o, 'r', o->me, i, &tag);
		o->result_out[i].x = xfer_send(o->c->chunks, &o->members[i], &tag, o->x + o->lo,
			(o->hi - o->lo) * sizeof(float),
			CLASS_activation, o->deadline_us, result_over, &o->result_out[i]);
	}
}

static void sum_done(struct job *j)
{
	struct op *o = container_of(j, struct op, job);
	o->summing = false;
	if (o->ended) {
		later(&o->later);
		return;
	}
	o->summed = true;
	send_results(o);
	one_less(o);
}

/* In a direct exchange my own vector must be with everybody before the sum overwrites it. */
static void try_sum(struct op *o)
{
	for (uint32_t i = 0; i < o->n; i++)
		if (i != o->me && o->hi > o->lo && (!o->in[i].done || (o->direct && !o->out[i].done)))
			return;
	if (o->summing || o->summed || o->ended)
		return;
	o->summing = true;
	size_t bytes = (o->hi - o->lo) * sizeof(float) * o->n;
	o->job = (struct job){ .name = "coll.sum", .lane = env_lane(o->c->env, "reduce"), .run = sum_run, .done = sum_done,
		.cost_us = bytes / 2000 };
	if (bytes > FEW) {
		env_work(o->c->env, &o->job);
		return;
	}
	sum_run(&o->job);
	sum_done(&o->job);
}

static void piece_over(void *arg, struct xfer *x, const struct err *e)
{
	struct piece *p = arg;
	struct op *o = p->op;
	p->x = NULL;
	p->done = !e;
	if (e) {
		end(o, e);
		return;
	}
	one_less(o);
	try_sum(o);
}

/* ---- start ---- */

static struct xfer *receive(struct op *o, struct piece *p, char what, uint32_t from, float *to, size_t n,
	xfer_done_fn *over)
{
	struct id tag;
	tag_of(o, what, from, o->me, &tag);
	return xfer_recv(o->c->chunks, &o->members[from], &tag, to, n * sizeof(float), o->deadline_us, over, p);
}

static void start(struct op *o)
{
	size_t n = o->hi - o->lo;
	struct id tag;
	for (uint32_t i = 0; i < o->n; i++) {
		size_t lo = 0, hi = o->len;
		if (i == o->me)
			continue;
		if (!o->direct)
			cut(o, i, &lo, &hi);
		if (n) {
			o->left++;
			o->in[i].x = receive(o, &o->in[i], 'x', i, o->raw + i * n, n, piece_over);
		}
		if (hi > lo) {
			o->left++;
			tag_of(o, 'x', o->me, i, &tag);
			o->out[i].x = xfer_send(o->c->chunks, &o->members[i], &tag, o->x + lo, (hi - lo) * sizeof(float),
				CLASS_activation,
				o->deadline_us, piece_over, &o->out[i]);
		}
	}
	for (uint32_t i = 0; i < o->n && !o->direct; i++) {
		size_t lo, hi;
		cut(o, i, &lo, &hi);
		if (i == o->me || hi == lo)
			continue;
		o->left++;                      /* its part of the result; my own part of it has left long before that comes */
		o->result_in[i].x = receive(o, &o->result_in[i], 'r', i, o->x + lo, hi - lo, result_over);
	}
	if (n && !o->direct)
		o->left += o->n - 1;            /* results to send */
	o->left++;                              /* the sum */
	try_sum(o);
}

void coll_allreduce(struct coll *c, const struct coll_group *g, uint64_t seq, float *x, size_t len, enum coll_op op,
	uint64_t deadline_us,
	coll_done_fn *done, void *arg)
{
	struct op *o = xcalloc(1, sizeof *o);
	*o = (struct op){ .c = c, .tag = g->tag, .n = g->n, .me = g->me, .seq = seq, .deadline_us = deadline_us, .op = op,
		.x = x, .len = len,
		.hi = len, .done = done, .arg = arg, .direct = len * sizeof(float) <= DIRECT };
	o->later = (struct timer){ .fire = later, .name = "coll.end" };
	o->members = xmemdup(g->members, g->n * sizeof *g->members);
	o->in = xcalloc(4 * (size_t)g->n, sizeof *o->in);
	o->out = o->in + g->n;
	o->result_in = o->out + g->n;
	o->result_out = o->result_in + g->n;
	for (uint32_t i = 0; i < 4 * g->n; i++)
		o->in[i] = (struct piece){ .op = o, .member = i % g->n };
	list_push(&c->open, &o->link);
	if (!o->direct)
		cut(o, o->me, &o->lo, &o->hi);
	if (g->n == 1 || !len) {
		end(o, NULL);
		return;
	}
	o->raw = big_alloc((o->hi - o->lo) * sizeof(float) * o->n);
	if (!o->raw && o->hi > o->lo) {
		struct err e;
		err_set(&e, ERR_NOMEM, "all-reduce of %zu floats over %u members: no memory for %zu bytes", len, g->n,
			(o->hi - o->lo) * sizeof(float) * o->n);
		end(o, &e);
		return;
	}
	start(o);
}
