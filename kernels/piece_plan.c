/* Plans where the values of a piece lie: in the caller's x and y, in the saved set, or in a pool whose blocks are
 * placed by their lifetimes. */
#include <assert.h>
#include <string.h>
#include "kernels/piece.h"

size_t tensor_bytes(const struct model *m, int t, size_t batch)
{
	return batch * shape_count(model_shape(m, t)) * sizeof(real);
}

int cut_low(const struct model *m, int cut)
{
	return m->tensor[cut].low;
}

size_t cut_offset(const struct model *m, int cut, int t, size_t batch)
{
	size_t at = 0;

	for (int i = cut_low(m, cut); i < t; i++)
		if (cut_has(m, cut, i))
			at += arena_round(tensor_bytes(m, i, batch));
	return at;
}

size_t cut_bytes(const struct model *m, int cut, size_t batch)
{
	size_t n = 0;

	for (int t = cut_low(m, cut); t <= cut; t++)
		if (cut_has(m, cut, t))
			n = arena_round(n) + tensor_bytes(m, t, batch);
	return n;
}

size_t values_bytes(const struct model *m, int a, int b)
{
	return arena_round((size_t)(b - cut_low(m, a) + 1) * sizeof(struct spot)) +
		arena_round((size_t)(b - a) * sizeof(struct block));
}

void values_in(struct values *v, void *memory)
{
	size_t spots = arena_round((size_t)(v->b - v->lo + 1) * sizeof *v->t);

	memset(memory, 0, values_bytes(v->m, v->a, v->b));
	v->t = memory;
	v->block = (struct block *)((unsigned char *)memory + spots);
}

struct chain chain_at(const struct model *m, int b, int i)
{
	struct chain c = { i, 1, -1, false };

	if (m->op[i].ops->fuse != FUSE_HEAD || m->apart)
		return c;
	for (int j = i + 1; j < b && m->tensor[j].last == j && !c.rectify; j++) {
		const struct model_node *n = &m->node[j];

		if (m->op[j].ops->fuse == FUSE_PLUS && j == i + 1 && n->nin == 2 && n->from[0] != n->from[1])
			c.plus = n->from[n->from[0] == j];
		else if (m->op[j].ops->fuse == FUSE_RECTIFY)
			c.rectify = true;
		else
			break;
		c.n++;
	}
	return c;
}

struct chain chain_with(const struct model *m, int a, int b, int i)
{
	for (int head = i - 1; head >= a && head >= i - 2; head--) {
		struct chain c = chain_at(m, b, head);

		if (c.head + c.n > i)
			return c;
	}
	return chain_at(m, b, i);
}

/* Does backward of this piece read the value of tensor t? What came from outside it has anyway. A rectifier that goes
 * with its head finds from the head's input where it let values through. */
static bool needed(const struct values *v, int t)
{
	const struct model *m = v->m;
	bool y = m->op[t - 1].ops->needs_y;

	if (!v->keep || t <= v->a)
		return false;
	if (y && m->op[t - 1].ops->fuse == FUSE_RECTIFY)
		y = chain_with(m, v->a, v->b, t - 1).n != 2;
	return y || m->tensor[t].first_x < v->b;
}

/* May op i write its output over input `in`, whose root is r? When that value is nobody else's to read. */
static bool may_overwrite(const struct values *v, int i, int in, int r)
{
	const struct model_node *n = &v->m->node[i];
	const struct spot *s = spot_of(v, r);

	if (!v->m->op[i].ops->in_place || r <= v->a || s->needed || s->last != i)
		return false;
	for (int k = 0; k < n->nin; k++)
		if (k != in && spot_of(v, n->from[k])->root == r)
			return false;
	return true;
}

/* The root over which the chain's last op, i, may write: what its first op reads, or the other branch. -1: none. */
static int overwritten(const struct values *v, const struct chain *c, int i)
{
	const struct model *m = v->m;
	int from = m->node[c->head].from[0], r = spot_of(v, from)->root, add = c->head + 1;

	if (c->plus < 0 || c->plus != from)
		if (may_overwrite(v, c->head, 0, r))
			return r;
	if (c->plus < 0)
		return -1;
	r = spot_of(v, c->plus)->root;
	return r != spot_of(v, from)->root && may_overwrite(v, add, m->node[add].from[1] == c->plus, r) ? r : -1;
}

/* Groups: which tensors share memory, and for how long. */
static void group_op(struct values *v, int i)
{
	const struct model *m = v->m;
	struct chain c = chain_with(m, v->a, v->b, i);
	int t = i + 1, r, last = m->tensor[t].last;
	struct spot *s = spot_of(v, t), *root;

	if (c.head + c.n > t) {
		*s = (struct spot){ .root = t, .begin = i, .end = i, .last = last, .out = -1, .inside = true };
		return;
	}
	r = m->op[i].ops->view ? spot_of(v, m->node[i].from[0])->root : overwritten(v, &c, i);
	root = spot_of(v, r < 0 ? t : r);
	if (m->op[i].ops->view) {
		root->last = last > root->last ? last : root->last;
		root->needed = root->needed || needed(v, t);
	} else if (r >= 0) {
		root->last = last;
		root->needed = needed(v, t);
	} else {
		r = t;
		*root = (struct spot){ .begin = c.head, .end = i, .last = last, .needed = needed(v, t), .out = -1 };
	}
	s->root = r;
	if (root->end < last)
		root->end = last < v->b ? last : v->b - 1;
	if (last >= v->b && root->out < 0)
		root->out = t;
}

static size_t extra_bytes(const struct values *v, int i)
{
	const struct layer *l = &v->m->op[i];

	return v->keep && l->ops->extra ? arena_round(l->ops->extra(l, v->batch)) : 0;
}

static void place_op(struct values *v, int i)
{
	struct spot *s = spot_of(v, i + 1);
	size_t bytes = arena_round(tensor_bytes(v->m, i + 1, v->batch));

	s->extra = v->saved;
	v->saved += extra_bytes(v, i);
	if (s->root != i + 1 || s->inside)
		return;
	if (s->needed) {
		s->place = PLACE_SAVED;
		s->offset = v->saved;
		v->saved += bytes;
	} else if (s->out >= 0) {
		s->place = PLACE_Y;
		s->offset = cut_offset(v->m, v->b, s->out, v->batch);
	} else {
		s->place = PLACE_POOL;
		v->block[i - v->a] = (struct block){ .bytes = bytes, .begin = s->begin, .end = s->end };
	}
}

void values_plan(struct values *v)
{
	const struct model *m = v->m;

	assert(v->a >= 0 && v->a < v->b && v->b <= m->nops);
	v->saved = 0;
	for (int t = v->lo; t <= v->a; t++)
		if (cut_has(m, v->a, t))
			*spot_of(v, t) = (struct spot){ .root = t, .place = PLACE_X, .last = m->tensor[t].last, .out = -1,
				.offset = cut_offset(m, v->a, t, v->batch) };
	for (int i = v->a; i < v->b; i++)
		group_op(v, i);
	for (int i = v->a; i < v->b; i++)
		place_op(v, i);
	v->pool = pool_place(v->block, v->b - v->a);
	for (int i = v->a; i < v->b; i++)
		if (spot_of(v, i + 1)->root == i + 1 && spot_of(v, i + 1)->place == PLACE_POOL)
			spot_of(v, i + 1)->offset = v->block[i - v->a].offset;
}
