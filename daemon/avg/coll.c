/* Collectives in a fixed group, strict: everybody or an error. What callers ask for, and how it ends; coll_step.c moves
 * the bytes. */
#include <stdlib.h>
#include <string.h>
#include "avg/coll_int.h"
#include "common/mem.h"

struct coll *coll_new(struct env *env, struct net *net, struct chunks *chunks)
{
	struct coll *c = xcalloc(1, sizeof *c);
	c->env = env;
	c->net = net;
	c->chunks = chunks;
	list_init(&c->open);
	return c;
}

void coll_part(uint32_t n, uint32_t i, size_t len, size_t *ret_lo, size_t *ret_hi)
{
	*ret_lo = len / n * i + (i < len % n ? i : len % n);
	*ret_hi = *ret_lo + len / n + (i < len % n);
}

/* ---- ends ---- */

static void op_free(struct op *o)
{
	env_timer(o->c->env, &o->later, 0);
	while (!list_empty(&o->steps))
		coll_step_free(list_entry(o->steps.next, struct step, link));
	list_del(&o->link);
	free(o->members);
	free(o);
}

void coll_free(struct coll *c)
{
	if (!c)
		return;
	list_each_safe(it, &c->open)
		op_free(list_entry(it, struct op, link));
	for (int i = 0; i < COLL_SPARES; i++)
		big_free(c->spare[i].p, c->spare[i].bytes);
	free(c);
}

void coll_over(struct op *o)
{
	coll_done_fn *done = o->done;
	void *arg = o->arg;
	struct err e = o->why;
	list_each(it, &o->steps)
		if (list_entry(it, struct step, link)->summing)
			return;                 /* the lane still holds the memory; coll_step.c comes back here */
	op_free(o);
	done(arg, e.code ? &e : NULL);
}

/* The end is told from a timer, so that nothing calls back from inside a collective's beginning or a transfer. */
static void later(struct timer *t)
{
	coll_over(container_of(t, struct op, later));
}

void coll_end(struct op *o, const struct err *e)
{
	if (o->ended)
		return;
	o->ended = true;
	if (e)
		o->why = *e;
	list_each(it, &o->steps)
		coll_step_cancel(list_entry(it, struct step, link));
	env_after(o->c->env, &o->later, 1);
}

bool coll_cancel(struct coll *c, void *arg)
{
	struct err e;
	list_each_safe(it, &c->open) {
		struct op *o = list_entry(it, struct op, link);
		bool summing = false;
		if (o->arg != arg)
			continue;
		list_each(at, &o->steps)
			summing = summing || list_entry(at, struct step, link)->summing;
		if (!summing) {
			op_free(o);
			return true;
		}
		err_set(&e, ERR_CANCELLED, "the collective was given up");
		coll_end(o, &e);
		return false;
	}
	return true;
}

/* ---- what callers ask for ---- */

static struct op *op_new(struct coll *c, const struct coll_group *g, uint64_t seq, enum coll_type type, void *x,
	size_t len, uint64_t deadline_us, coll_done_fn *done, void *arg)
{
	struct op *o = xcalloc(1, sizeof *o);
	*o = (struct op){ .c = c, .tag = g->tag, .n = g->n, .me = g->me, .cls = g->cls, .seq = seq,
		.deadline_us = deadline_us, .type = type, .size = coll_size(type), .x = x, .len = len, .done = done,
		.arg = arg };
	o->later = (struct timer){ .fire = later, .name = "coll.end" };
	o->members = xmemdup(g->members, g->n * sizeof *g->members);
	list_init(&o->steps);
	list_push(&c->open, &o->link);
	return o;
}

static void reduce(struct op *o, enum coll_op op, enum coll_whose whose, uint32_t root)
{
	o->op = op;
	o->whose = whose;
	o->root = root;
	if (o->n == 1 || !o->len)
		coll_end(o, NULL);
	else
		coll_begin_steps(o);
}

void coll_allreduce(struct coll *c, const struct coll_group *g, uint64_t seq, enum coll_type type, void *x, size_t len,
	enum coll_op op, uint64_t deadline_us, coll_done_fn *done, void *arg)
{
	reduce(op_new(c, g, seq, type, x, len, deadline_us, done, arg), op, COLL_ALL, 0);
}

void coll_reduce(struct coll *c, const struct coll_group *g, uint64_t seq, uint32_t root, enum coll_type type, void *x,
	size_t len, enum coll_op op, uint64_t deadline_us, coll_done_fn *done, void *arg)
{
	reduce(op_new(c, g, seq, type, x, len, deadline_us, done, arg), op, COLL_ROOT, root);
}

void coll_reduce_scatter(struct coll *c, const struct coll_group *g, uint64_t seq, enum coll_type type, void *x,
	size_t len, enum coll_op op, void *out, uint64_t deadline_us, coll_done_fn *done, void *arg)
{
	struct op *o = op_new(c, g, seq, type, x, len, deadline_us, done, arg);
	o->out = out;
	if (o->n == 1 && len)
		memmove(out, x, len * o->size);
	reduce(o, op, COLL_PART, 0);
}

/* ---- those that only move: one step, which ends with the last transfer ---- */

void coll_allgather(struct coll *c, const struct coll_group *g, uint64_t seq, enum coll_type type, void *x, size_t len,
	uint64_t deadline_us, coll_done_fn *done, void *arg)
{
	struct op *o = op_new(c, g, seq, type, x, len, deadline_us, done, arg);
	struct step *s = coll_only_step(o);
	coll_part(o->n, o->me, len, &s->lo, &s->hi);
	for (uint32_t k = 1; k < o->n; k++) {
		uint32_t i = (o->me + k) % o->n;
		size_t lo, hi;
		coll_part(o->n, i, len, &lo, &hi);
		if (hi > lo)
			coll_receive(s, &s->result_in[i], 'g', i, o->x + lo * o->size, hi - lo);
		if (s->hi > s->lo)
			coll_give(s, &s->result_out[i], 'g', i, o->x + s->lo * o->size, s->hi - s->lo);
	}
	coll_step_less(s);
}

void coll_broadcast(struct coll *c, const struct coll_group *g, uint64_t seq, uint32_t root, enum coll_type type,
	void *x, size_t len, uint64_t deadline_us, coll_done_fn *done, void *arg)
{
	struct op *o = op_new(c, g, seq, type, x, len, deadline_us, done, arg);
	struct step *s = coll_only_step(o);
	for (uint32_t i = 0; i < o->n && o->me == root; i++)
		if (i != root)
			coll_give(s, &s->out[i], 'b', i, x, len);
	if (o->me != root)
		coll_receive(s, &s->in[root], 'b', root, x, len);
	coll_step_less(s);
}

void coll_alltoall(struct coll *c, const struct coll_group *g, uint64_t seq, enum coll_type type, const void *x,
	size_t len, void *y, uint64_t deadline_us, coll_done_fn *done, void *arg)
{
	struct op *o = op_new(c, g, seq, type, y, len, deadline_us, done, arg);
	struct step *s = coll_only_step(o);
	const char *from = x;
	coll_part(o->n, o->me, len, &s->lo, &s->hi);
	size_t mine = s->hi - s->lo;
	if (mine)
		memcpy(o->x + o->me * mine * o->size, from + s->lo * o->size, mine * o->size);
	for (uint32_t k = 1; k < o->n; k++) {
		uint32_t i = (o->me + k) % o->n;
		size_t lo, hi;
		coll_part(o->n, i, len, &lo, &hi);
		coll_receive(s, &s->in[i], 'a', i, mine ? o->x + i * mine * o->size : NULL, mine);
		coll_give(s, &s->out[i], 'a', i, hi > lo ? from + lo * o->size : NULL, hi - lo);
	}
	coll_step_less(s);
}

void coll_send(struct coll *c, const struct coll_group *g, uint64_t seq, uint32_t to, enum coll_type type,
	const void *x, size_t len, uint64_t deadline_us, coll_done_fn *done, void *arg)
{
	struct step *s = coll_only_step(op_new(c, g, seq, type, NULL, len, deadline_us, done, arg));
	coll_give(s, &s->out[to], 'p', to, x, len);
	coll_step_less(s);
}

void coll_recv(struct coll *c, const struct coll_group *g, uint64_t seq, uint32_t from, enum coll_type type, void *x,
	size_t len, uint64_t deadline_us, coll_done_fn *done, void *arg)
{
	struct step *s = coll_only_step(op_new(c, g, seq, type, x, len, deadline_us, done, arg));
	coll_receive(s, &s->in[from], 'p', from, x, len);
	coll_step_less(s);
}

void coll_barrier(struct coll *c, const struct coll_group *g, uint64_t seq, uint64_t deadline_us, coll_done_fn *done,
	void *arg)
{
	coll_alltoall(c, g, seq, COLL_F32, NULL, 0, NULL, deadline_us, done, arg);
}
