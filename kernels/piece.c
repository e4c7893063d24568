/* Runs a piece of a model, forward and backward, in memory planned by one walk that sizes and execution share.
 *
 * Tensor i is the input of op i. Consecutive tensors that may share memory (views, in-place layers) form a group.
 * A group is kept when backward needs its last value; the others live in two scratch slots that alternate, because
 * in a chain only neighbours are alive together. Group 0 is the caller's x; the last group is the caller's y. */
#include <assert.h>
#include <string.h>
#include "kernels/arena.h"
#include "kernels/model.h"

enum place { AT_X, AT_Y, AT_SAVED, AT_SLOT };

struct group { int first, last; enum place place; int slot; size_t bytes; };

struct walk {
	const struct model *m;
	int a, b;
	size_t batch;
	bool keep;                      /* training with a saved set */
	struct group g;                 /* the current group */
	size_t saved, slot[2];          /* sizes so far; of saved: where the next kept thing goes */
	int last_slot;
};

static size_t tensor_bytes(const struct model *m, int i, size_t batch)
{
	return batch * shape_count(model_shape(m, i)) * sizeof(real);
}

/* Does backward read the value of tensor i? */
static bool needed(const struct walk *w, int i)
{
	return w->keep && ((i > w->a && w->m->op[i - 1].ops->needs_y) || (i < w->b && w->m->op[i].ops->needs_x));
}

/* The group that begins with tensor `first`; sets its end and place. */
static void group_begin(struct walk *w, int first)
{
	bool version_needed = needed(w, first);
	int last = first;

	for (; last < w->b; last++) {
		const struct layer_ops *o = w->m->op[last].ops;

		if (o->view) {
			version_needed = version_needed || needed(w, last + 1);
		} else if (o->in_place && first > w->a && !version_needed) {
			version_needed = needed(w, last + 1);
		} else {
			break;
		}
	}
	w->g = (struct group){ .first = first, .last = last, .bytes = tensor_bytes(w->m, first, w->batch) };
	if (first == w->a)
		w->g.place = AT_X;
	else if (version_needed)
		w->g.place = AT_SAVED;
	else if (last == w->b)
		w->g.place = AT_Y;
	else
		w->g.place = AT_SLOT;
	if (w->g.place == AT_SLOT) {
		w->g.slot = w->last_slot = 1 - w->last_slot;
		if (arena_round(w->g.bytes) > w->slot[w->g.slot])
			w->slot[w->g.slot] = arena_round(w->g.bytes);
	}
}

static void walk_begin(struct walk *w, const struct model *m, int a, int b, size_t batch, bool keep)
{
	assert(a >= 0 && a < b && b <= m->nops);
	*w = (struct walk){ .m = m, .a = a, .b = b, .batch = batch, .keep = keep, .last_slot = 1 };
	group_begin(w, a);
}

static size_t extra_bytes(const struct walk *w, int i)
{
	const struct layer *l = &w->m->op[i];

	return w->keep && l->ops->extra ? arena_round(l->ops->extra(l, w->batch)) : 0;
}

/* Steps over op i. Returns where in the saved set its extra lies; *ret_y: where tensor i + 1 lies, if it is kept. */
static size_t walk_op(struct walk *w, int i, size_t *ret_y)
{
	size_t extra = w->saved;

	w->saved += extra_bytes(w, i);
	if (i + 1 > w->g.last) {
		group_begin(w, i + 1);
		if (w->g.place == AT_SAVED) {
			*ret_y = w->saved;
			w->saved += arena_round(w->g.bytes);
		}
	}
	return extra;
}

/* The most scratch that one op of the piece needs. */
static size_t op_work(const struct model *m, int a, int b, size_t batch, int parts, bool backward)
{
	size_t most = 0;

	for (int i = a; i < b; i++) {
		const struct layer *l = &m->op[i];
		size_t n = l->ops->work ? arena_round(l->ops->work(l, batch, parts, backward)) : 0;

		most = n > most ? n : most;
	}
	return most;
}

/* Gradients ping-pong between two slots; sizes as backward_walk uses them. */
struct back { size_t slot[2]; int at; };

static void *back_take(struct back *k, unsigned char *base, size_t bytes)
{
	k->at = 1 - k->at;
	if (!base && arena_round(bytes) > k->slot[k->at])
		k->slot[k->at] = arena_round(bytes);
	return base ? base + (k->at ? k->slot[0] : 0) : NULL;
}

static int first_real(const struct model *m, int a, int b)
{
	while (a < b && m->op[a].ops->view)
		a++;
	return a;
}

/* Slot sizes of a backward pass that wants dx. Without dx fewer ops run, in the same slots. */
static void back_size(const struct model *m, int a, int b, size_t batch, struct back *ret)
{
	int stop = first_real(m, a, b);

	*ret = (struct back){ .at = 1 };
	for (int i = b - 1, own = 0; i > stop; i--) {
		const struct layer_ops *o = m->op[i].ops;

		if (o->view || (o->in_place && own))
			continue;
		back_take(ret, NULL, tensor_bytes(m, i, batch));
		own = 1;
	}
	ret->at = 1;            /* the pass itself takes the slots in the same order */
}

struct place_of { size_t y, extra; };   /* in the saved set, per op; y: SIZE_MAX when not there */

void model_need(const struct model *m, int a, int b, size_t batch, int parts, struct model_need *ret_need)
{
	struct walk w;
	struct back k;
	size_t y;

	memset(ret_need, 0, sizeof *ret_need);
	ret_need->x = tensor_bytes(m, a, batch);
	ret_need->y = tensor_bytes(m, b, batch);
	for (int keep = 0; keep < 2; keep++) {
		size_t work;

		walk_begin(&w, m, a, b, batch, keep);
		for (int i = a; i < b; i++)
			walk_op(&w, i, &y);
		work = w.slot[0] + w.slot[1] + op_work(m, a, b, batch, parts, false);
		if (keep) {
			ret_need->saved = w.saved;
			ret_need->work_fwd = work;
		} else {
			ret_need->work_eval = work;
		}
	}
	back_size(m, a, b, batch, &k);
	ret_need->work_bwd = arena_round((size_t)(b - a) * sizeof(struct place_of)) + k.slot[0] + k.slot[1] +
		op_work(m, a, b, batch, parts, true);
}

/* The memory of the walk's current group. slot1 is where the second slot begins. */
static real *group_memory(const struct walk *w, const struct model_call *c, const real *x, real *y, size_t slot1)
{
	switch (w->g.place) {
	case AT_X: return (real *)x;
	case AT_Y: return y;
	case AT_SAVED: return (real *)((unsigned char *)c->saved + w->saved - arena_round(w->g.bytes));
	case AT_SLOT: return (real *)((unsigned char *)c->work + (w->g.slot ? slot1 : 0));
	}
	return NULL;
}

void model_forward(const struct par *par, const struct model *m, int a, int b, const struct model_call *c,
	const real *x,
	real *y)
{
	struct walk size, w;
	real *in = (real *)x, *out;
	size_t unused;

	walk_begin(&size, m, a, b, c->batch, c->saved != NULL);
	for (int i = a; i < b; i++)
		walk_op(&size, i, &unused);
	walk_begin(&w, m, a, b, c->batch, c->saved != NULL);
	for (int i = a; i < b; i++, in = out) {
		const struct layer *l = &m->op[i];
		bool same = i + 1 <= w.g.last;
		size_t extra = walk_op(&w, i, &unused);
		struct layer_call call = { .l = l, .batch = c->batch, .param = c->param + m->offset[i], .x = in,
			.train = c->train, .replay = c->replay };

		out = same ? in : group_memory(&w, c, x, y, size.slot[0]);
		call.y = out;
		call.extra = w.keep && l->ops->extra ? (unsigned char *)c->saved + extra : NULL;
		call.work = (unsigned char *)c->work + size.slot[0] + size.slot[1];
		if (!l->ops->view)
			l->ops->forward(par, &call);
	}
	if (in != y)
		memcpy(y, in, tensor_bytes(m, b, c->batch));
}

/* Where forward left what backward needs: the same walk, written down because backward goes the other way. */
static void places_fill(const struct model *m, int a, int b, size_t batch, struct place_of *at)
{
	struct walk w;
	size_t y = SIZE_MAX;

	walk_begin(&w, m, a, b, batch, true);
	for (int i = a; i < b; i++) {
		bool same = i + 1 <= w.g.last;

		if (!same)
			y = SIZE_MAX;
		at[i - a].extra = walk_op(&w, i, &y);
		at[i - a].y = y;
	}
}

/* The lowest op that must run: all of them when dx is wanted, else the lowest with parameters. */
static int lowest(const struct model *m, int a, int b, bool want_dx)
{
	if (want_dx)
		return first_real(m, a, b);
	while (a < b && m->op[a].nparam == 0)
		a++;
	return a;
}

void model_backward(const struct par *par, const struct model *m, int a, int b, const struct model_call *c,
	const real *x,
	const real *dy, real *dx, real *grad)
{
	struct place_of *at = c->work;
	unsigned char *saved = c->saved, *base = (unsigned char *)c->work + arena_round((size_t)(b - a) * sizeof *at);
	int stop = lowest(m, a, b, dx != NULL), x_last = first_real(m, a, b);
	const real *d = dy;
	struct back k;

	places_fill(m, a, b, c->batch, at);
	back_size(m, a, b, c->batch, &k);
	for (int i = b - 1; i >= stop; i--) {
		const struct layer *l = &m->op[i];
		size_t in = i > a ? at[i - 1 - a].y : SIZE_MAX, out = at[i - a].y;
		struct layer_call call = { .l = l, .batch = c->batch, .param = c->param + m->offset[i], .dy = d,
			.dparam = grad ? grad + m->offset[i] : NULL, .train = c->train, .replay = c->replay };

		if (l->ops->view)
			continue;
		assert(saved || (in == SIZE_MAX && out == SIZE_MAX && !l->ops->extra));
		call.x = i <= x_last ? x : in != SIZE_MAX ? (real *)(saved + in) : NULL;
		call.y = out != SIZE_MAX ? (real *)(saved + out) : NULL;
		call.extra = l->ops->extra ? saved + at[i - a].extra : NULL;
		call.work = base + k.slot[0] + k.slot[1];
		if (i == stop)
			call.dx = dx;
		else if (l->ops->in_place && d != dy)
			call.dx = (real *)d;
		else
			call.dx = back_take(&k, base, tensor_bytes(m, i, c->batch));
		l->ops->backward(par, &call);
		d = call.dx;
	}
	if (dx && stop == b)            /* nothing but views */
		memcpy(dx, dy, tensor_bytes(m, a, c->batch));
}
