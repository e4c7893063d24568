/* Runs a piece of a model, forward and backward. Values lie where piece_plan.c puts them. Gradients are made in the
 * reverse order; a tensor that several ops read collects the sum of theirs. One walk sizes the buffers of gradients and
 * the same walk executes: only `run` differs. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/cost.h"
#include "kernels/mixed.h"
#include "kernels/piece.h"
#include "kernels/vec.h"

/* The most scratch that one op of the piece needs. */
static size_t op_work(const struct model *m, int a, int b, size_t batch, int parts, bool backward)
{
	size_t most = 0;

	for (int i = a; i < b; i++) {
		const struct layer *l = &m->op[i];
		size_t n = mixed_bytes(l, batch, backward);

		n += l->ops->work ? arena_round(l->ops->work(l, batch, parts, backward)) : 0;
		most = n > most ? n : most;
	}
	return most;
}

struct places { const unsigned char *x; unsigned char *y, *saved, *pool; };

static real *address(const struct values *v, const struct places *p, int t)
{
	const struct spot *s = spot_of(v, spot_of(v, t)->root);

	switch (s->place) {
	case PLACE_X: return (real *)(p->x + s->offset);
	case PLACE_Y: return p->y ? (real *)(p->y + s->offset) : NULL;
	case PLACE_SAVED: return (real *)(p->saved + s->offset);
	case PLACE_POOL: return p->pool ? (real *)(p->pool + s->offset) : NULL;
	case PLACE_NONE: break;
	}
	return NULL;
}

static struct layer_call call_of(const struct values *v, const struct model_call *c, int i)
{
	const struct model_node *n = &v->m->node[i];
	const real *param = n->param < c->head.n ? c->head.param : c->param;

	return (struct layer_call){ .l = &v->m->op[i], .batch = c->batch, .param = param + n->param,
		.buffer = c->buffer ? c->buffer + n->buffer : NULL, .key = rand_key(c->key, (uint64_t)i), .train = c->train,
		.replay = c->replay };
}

int model_runs_in(const struct model *m, int a, int b, int i)
{
	return chain_with(m, a, b, i).head;
}

static uint64_t clock_of(const struct par *par, const struct model_call *c)
{
	return c->ns && par->now_ns ? par->now_ns() : 0;
}

/* Op a + i has ended now. */
static void lap(const struct par *par, const struct model_call *c, int i, uint64_t *since)
{
	uint64_t now = clock_of(par, c);

	if (c->ns)
		c->ns[i] += now - *since;
	*since = now;
}

void model_forward(const struct par *par, const struct model *m, int a, int b, const struct model_call *c,
	const real *x, real *y)
{
	struct values v = { .m = m, .a = a, .b = b, .lo = cut_low(m, a), .batch = c->batch, .keep = c->saved != NULL };
	struct places p = { .x = (const unsigned char *)x, .y = (unsigned char *)y, .saved = c->saved };
	unsigned char *work = c->work;
	uint64_t since;

	assert(!m->nbuffer || c->buffer);
	values_in(&v, work);
	values_plan(&v);
	p.pool = work + values_bytes(m, a, b);
	since = clock_of(par, c);
	for (int i = a; i < b; i++) {
		const struct layer *l = &m->op[i];
		struct layer_call call = call_of(&v, c, i);
		struct chain chain = chain_at(m, b, i);

		if (l->ops->view)
			continue;
		for (int k = 0; k < m->node[i].nin; k++)
			call.xs[k] = address(&v, &p, m->node[i].from[k]);
		call.x = call.xs[0];
		call.y = address(&v, &p, i + chain.n);
		call.plus = chain.plus < 0 ? NULL : address(&v, &p, chain.plus);
		call.rectify = chain.rectify;
		call.extra = v.keep && l->ops->extra ? p.saved + spot_of(&v, i + 1)->extra : NULL;
		call.work = p.pool + v.pool;
		call = mixed_call(par, &call, false);
		l->ops->forward(par, &call);
		lap(par, c, i - a, &since);
		for (int k = 0; k < chain.n && c->count; k++)
			cost_forward(&m->op[i + k], c->batch, c->count);
		i += chain.n - 1;
	}
	for (int t = v.lo; t <= b; t++) {
		real *to = cut_has(m, b, t) ? (real *)(p.y + cut_offset(m, b, t, c->batch)) : NULL;

		if (to && to != address(&v, &p, t))
			memcpy(to, address(&v, &p, t), tensor_bytes(m, t, c->batch));
	}
}

/* --- backward */

enum holder { IN_POOL, IN_DX, IN_DY };          /* dy is the caller's: never written */

struct grad { enum holder in; int refs; size_t offset; };

struct back {
	struct values v;
	struct grad *grad;              /* buffers in the order in which the walk asks for them */
	struct block *block;            /* their memory; bytes 0 for those outside of the pool */
	int n, now;                     /* now: the op whose turn it is */
	bool run, want_dx;
	const struct par *par;
	const struct model_call *c;
	const unsigned char *dy;
	unsigned char *dx, *pool, *work;
	const struct places *places;
	real *ret_grad;
};

/* Every input of every op asks for at most two buffers; the cuts for one per tensor. */
static int grads_max(const struct model *m, int a, int b)
{
	int edges = (b < m->nops ? m->node[b].edges : m->node[b - 1].edges + m->node[b - 1].nin) - m->node[a].edges;

	return 2 * edges + 2 * (b - cut_low(m, a) + 1);
}

static size_t back_bytes(const struct model *m, int a, int b)
{
	size_t n = (size_t)grads_max(m, a, b);

	return values_bytes(m, a, b) + arena_round(n * sizeof(struct grad)) + arena_round(n * sizeof(struct block));
}

static void back_in(struct back *k, unsigned char *memory)
{
	const struct values *v = &k->v;

	values_in(&k->v, memory);
	k->grad = (struct grad *)(memory + values_bytes(v->m, v->a, v->b));
	k->block = (struct block *)((unsigned char *)k->grad +
		arena_round((size_t)grads_max(v->m, v->a, v->b) * sizeof(struct grad)));
}

static int grad_new(struct back *k, enum holder in, size_t offset, int t)
{
	int id = k->n++;

	assert(id < grads_max(k->v.m, k->v.a, k->v.b));
	k->grad[id] = (struct grad){ in, 1, offset };
	if (k->run)
		return id;
	k->block[id] = (struct block){ .begin = k->v.a, .end = k->now,
		.bytes = in == IN_POOL ? arena_round(tensor_bytes(k->v.m, t, k->v.batch)) : 0 };
	return id;
}

static void grad_drop(struct back *k, int id)
{
	if (id >= 0 && !--k->grad[id].refs && !k->run)
		k->block[id].begin = k->now;
}

static real *grad_at(const struct back *k, int id)
{
	const struct grad *g = &k->grad[id];

	return g->in == IN_DX ? (real *)(k->dx + g->offset) : g->in == IN_DY ? (real *)(k->dy + g->offset) :
		(real *)(k->pool + k->block[id].offset);
}

/* A new buffer for tensor t's gradient: what flows out at cut a goes right there. */
static int grad_for(struct back *k, int t)
{
	const struct values *v = &k->v;

	return t <= v->a ? grad_new(k, IN_DX, cut_offset(v->m, v->a, t, v->batch), t) : grad_new(k, IN_POOL, 0, t);
}

static bool writable(const struct back *k, int id)
{
	return k->grad[id].in != IN_DY && k->grad[id].refs == 1;
}

static void copy(const struct back *k, int from, int to, int t)
{
	if (k->run)
		vec_copy(k->par, tensor_bytes(k->v.m, t, k->v.batch) / sizeof(real), grad_at(k, from), grad_at(k, to));
}

static void sum(const struct back *k, int from, int to, int t)
{
	if (k->run)
		vec_axpy(k->par, tensor_bytes(k->v.m, t, k->v.batch) / sizeof(real), 1, grad_at(k, from), grad_at(k, to));
}

/* The gradient in buffer id goes to tensor t as it is. The caller keeps its own reference. */
static void hand(struct back *k, int id, int t)
{
	struct spot *s = spot_of(&k->v, t);
	int old = s->grad;

	if (!s->want)
		return;
	if (old < 0 && t > k->v.a) {
		s->grad = id;
		k->grad[id].refs++;
		return;
	}
	if (old < 0 || !writable(k, old)) {
		s->grad = grad_for(k, t);
		copy(k, old < 0 ? id : old, s->grad, t);
		grad_drop(k, old);
		if (old < 0)
			return;
	}
	sum(k, id, s->grad, t);
}

/* The part of a later op has been made in its own buffer: add it to what is there. */
static void collect(struct back *k, int part, int t)
{
	struct spot *s = spot_of(&k->v, t);

	if (writable(k, s->grad)) {
		sum(k, part, s->grad, t);
		grad_drop(k, part);
		return;
	}
	sum(k, s->grad, part, t);
	grad_drop(k, s->grad);
	s->grad = part;
}

/* Where its gradient goes; NULL: nobody wants it. */
static real *grad_of(const struct back *k, int i)
{
	size_t at = k->v.m->node[i].param;
	real *to = at < k->c->head.n && k->c->head.grad ? k->c->head.grad : k->ret_grad;

	return k->ret_grad ? to + at : NULL;
}

/* Has an op behind it made something for the same parameters, where this pass adds to it? */
static bool goes_on_grad(const struct back *k, int i)
{
	const struct model *m = k->v.m;
	bool here = false;

	for (int j = i + 1; m->node[i].shared_later && j < k->v.b; j++)
		here = here || m->node[j].owner == m->node[i].owner;
	return k->c->apart ? here : m->node[i].shared_later;
}

/* The first op of this pass that has something for these parameters. Zeros are written right before they are added to,
 * while they are near. */
static bool begins_grad(const struct back *k, int i)
{
	return k->c->fresh && k->ret_grad && k->v.m->op[i].nparam && !goes_on_grad(k, i);
}

static void grad_zero(const struct back *k, int i)
{
	if (begins_grad(k, i))
		vec_fill(k->par, k->v.m->op[i].nparam, 0, grad_of(k, i));
}

static void layer_back(struct back *k, int i, int id, const int *into)
{
	const struct values *v = &k->v;
	const struct model_node *n = &v->m->node[i];
	const struct layer *l = &v->m->op[i];
	struct layer_call call = call_of(v, k->c, i);

	assert(k->places->saved || (!l->ops->extra && !l->ops->needs_y));
	for (int in = 0; in < n->nin; in++) {
		call.xs[in] = address(v, k->places, n->from[in]);
		call.dxs[in] = into[in] < 0 ? NULL : grad_at(k, into[in]);
	}
	call.x = call.xs[0];
	call.dx = call.dxs[0];
	call.y = address(v, k->places, i + 1);
	call.dy = grad_at(k, id);
	call.rectify = chain_at(v->m, v->b, i).rectify && chain_at(v->m, v->b, i).plus < 0;
	call.dparam = grad_of(k, i);
	call.fresh = begins_grad(k, i) && l->ops->stores;
	if (!call.fresh)
		grad_zero(k, i);
	call.extra = l->ops->extra ? k->places->saved + spot_of(v, i + 1)->extra : NULL;
	call.work = k->work;
	call = mixed_call(k->par, &call, true);
	l->ops->backward(k->par, &call);
	if (k->c->count) {
		bool dx = false;

		for (int in = 0; in < n->nin; in++)
			dx |= call.dxs[in] != NULL;
		cost_backward(l, v->batch, call.dparam != NULL, dx, k->c->count);
	}
}

/* A rectifier right behind its head: the head's backward does both. */
static bool rectified_before(const struct back *k, int i)
{
	const struct model *m = k->v.m;

	return m->op[i].ops->fuse == FUSE_RECTIFY && chain_with(m, k->v.a, k->v.b, i).n == 2;
}

static void back_op(struct back *k, int i)
{
	const struct model_node *n = &k->v.m->node[i];
	const struct layer_ops *o = k->v.m->op[i].ops;
	struct spot *out = spot_of(&k->v, i + 1);
	int id = out->grad, into[LAYER_INPUTS_MAX];
	bool part[LAYER_INPUTS_MAX] = { false }, passes = o->view || o->spread || rectified_before(k, i);

	k->now = i;
	out->grad = -1;
	if (!out->want || id < 0) {
		if (k->run)
			grad_zero(k, i);                /* nobody asks for its output */
		grad_drop(k, id);
		return;
	}
	for (int in = 0; in < n->nin; in++) {
		struct spot *s = spot_of(&k->v, n->from[in]);

		into[in] = -1;
		if (passes) {
			hand(k, id, n->from[in]);
		} else if (s->want && s->grad >= 0) {
			into[in] = grad_new(k, IN_POOL, 0, n->from[in]);
			part[in] = true;
		} else if (s->want && o->in_place && n->from[in] > k->v.a && k->grad[id].in == IN_POOL && writable(k, id)) {
			into[in] = s->grad = id;
			k->grad[id].refs++;
		} else if (s->want) {
			into[in] = s->grad = grad_for(k, n->from[in]);
		}
	}
	if (k->run && !passes)
		layer_back(k, i, id, into);
	else if (k->run && k->c->count)
		cost_backward(&k->v.m->op[i], k->v.batch, false, true, k->c->count);
	for (int in = 0; in < n->nin; in++)
		if (part[in])
			collect(k, into[in], n->from[in]);
	grad_drop(k, id);
}

/* A tensor's gradient is wanted when it flows out at cut a, or when an op with parameters lies behind it. */
static void wants(struct back *k)
{
	const struct model *m = k->v.m;

	for (int t = k->v.lo; t <= k->v.b; t++) {
		struct spot *s = spot_of(&k->v, t);

		s->grad = -1;
		if (t <= k->v.a) {
			s->want = k->want_dx && cut_has(m, k->v.a, t);
			continue;
		}
		s->want = m->op[t - 1].nparam > 0;
		for (int in = 0; in < m->node[t - 1].nin; in++)
			s->want = s->want || spot_of(&k->v, m->node[t - 1].from[in])->want;
	}
}

static void back_walk(struct back *k)
{
	const struct values *v = &k->v;
	uint64_t since = k->run ? clock_of(k->par, k->c) : 0;

	k->n = 0;
	k->now = v->b - 1;
	wants(k);
	for (int t = v->lo; t <= v->b; t++)
		if (cut_has(v->m, v->b, t) && spot_of(v, t)->want) {
			int id = grad_new(k, IN_DY, cut_offset(v->m, v->b, t, v->batch), t);

			hand(k, id, t);
			grad_drop(k, id);
		}
	for (int i = v->b - 1; i >= v->a; i--) {
		back_op(k, i);
		if (k->run)
			lap(k->par, k->c, i - v->a, &since);
	}
}

/* Bytes of the pool of a pass; back_in has been called. */
static size_t back_plan(struct back *k, bool want_dx)
{
	k->run = false;
	k->want_dx = want_dx;
	back_walk(k);
	return pool_place(k->block, k->n);
}

void model_backward(const struct par *par, const struct model *m, int a, int b, const struct model_call *c,
	const real *x, const real *dy, real *dx, real *grad)
{
	struct places p = { .x = (const unsigned char *)x, .saved = c->saved };
	struct back k = { .v = { .m = m, .a = a, .b = b, .lo = cut_low(m, a), .batch = c->batch, .keep = true },
		.par = par, .c = c, .dy = (const unsigned char *)dy, .dx = (unsigned char *)dx, .places = &p,
		.ret_grad = grad };

	back_in(&k, c->work);
	values_plan(&k.v);
	k.pool = (unsigned char *)c->work + back_bytes(m, a, b);
	k.work = k.pool + back_plan(&k, dx != NULL);
	k.run = true;
	back_walk(&k);
}

void model_need(const struct model *m, int a, int b, size_t batch, int parts, struct model_need *ret_need)
{
	struct back k = { .v = { .m = m, .a = a, .b = b, .lo = cut_low(m, a), .batch = batch } };
	size_t table = values_bytes(m, a, b), with, without;
	void *memory = aligned_alloc(ARENA_ALIGN, back_bytes(m, a, b));

	assert(memory);         /* small; kernels that fail here leave nothing to do */
	back_in(&k, memory);
	values_plan(&k.v);
	*ret_need = (struct model_need){ .x = cut_bytes(m, a, batch), .y = cut_bytes(m, b, batch),
		.work_eval = table + k.v.pool + op_work(m, a, b, batch, parts, false) };
	k.v.keep = true;
	back_in(&k, memory);
	values_plan(&k.v);
	ret_need->saved = k.v.saved;
	ret_need->work_fwd = table + k.v.pool + op_work(m, a, b, batch, parts, false);
	with = back_plan(&k, true);
	without = back_plan(&k, false);
	ret_need->work_bwd = back_bytes(m, a, b) + (with > without ? with : without) +
		op_work(m, a, b, batch, parts, true);
	free(memory);
}
