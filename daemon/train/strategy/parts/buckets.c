/* A round whose gradient leaves while it is made: the model is cut into stretches of layers, the last first; as soon as
 * backward is through one, its parameters' gradient, a bucket, is given to the round's SUM. The samples count before
 * backward begins, so that the round has begun when the first bucket is there. */
#include <stdio.h>
#include <stdlib.h>
#include "common/mem.h"
#include "kernels/real.h"
#include "train/memory.h"
#include "train/strategy/replica.h"

#define MOST 64                         /* buckets: all their SUMs wait at once */

/* first: of the bucket that op o is in, the first op. */
struct buckets { const struct view *v; struct passes s; uint32_t *first; uint32_t n, all; char name[PLAN_NAME]; };

/* Cut before op o no parameters are shared by ops on both sides. */
static bool *closed_of(const struct profile *m)
{
	bool *closed = xcalloc((size_t)m->nops + 1, sizeof(*closed));

	for (uint32_t o = 0; o <= m->nops; o++)
		closed[o] = true;
	for (uint32_t o = 0; o < m->nops; o++)
		for (uint32_t k = m->op[o].shares; k && k <= o; k++)
			closed[k] = false;
	return closed;
}

static uint64_t lo_of(const struct profile *m, uint32_t o)
{
	return o < m->nops ? m->op[o].param_lo : m->params;
}

/* Where all is kept forward may be cut wherever one value flows, and is where a bucket ends. */
static void cut(const struct profile *m, struct passes *s, const uint32_t *first)
{
	passes_free(s);
	*s = (struct passes){ .a = 0, .b = m->nops - 1 };
	for (uint32_t a = 0, b; a < m->nops; a = b) {
		for (b = a; b < m->nops && first[b] == a;)
			b++;
		passes_add(s, PLAN_FWD, a, b - 1, PLAN_KEEP_ALL, false);
	}
	for (uint32_t b = m->nops; b; b = first[b - 1])
		passes_add(s, PLAN_BWD, first[b - 1], b - 1, PLAN_KEEP_NONE, false);
	passes_size(m, s);
}

/* May a bucket begin with op o? Where passes are cut already, only with one of their pieces. */
static bool may_begin(const struct profile *m, const struct passes *s, const bool *closed, bool once, uint32_t o)
{
	bool begins = once && m->op[o].flows <= 1 && !m->op[o].goes_on;

	for (uint32_t k = 0; k < s->n && !once; k++)
		begins = begins || (s->v[k].kind == PLAN_BWD && s->v[k].a == o);
	return begins && closed[o];
}

/* From the last op on: a bucket ends when it has enough, and there are parameters before it. */
static void share_out(struct buckets *b, const bool *closed, bool once, uint64_t bytes)
{
	const struct profile *m = b->v->profile;
	uint32_t end = m->nops, at;

	for (uint32_t o = m->nops; o-- > 0;) {
		bool begins = !o || (lo_of(m, o) > 0 && (lo_of(m, end) - lo_of(m, o)) * sizeof(real) >= bytes &&
			may_begin(m, &b->s, closed, once, o));

		if (!begins)
			continue;
		for (at = o; at < end; at++)
			b->first[at] = o;
		end = o;
		b->n++;
	}
}

/* false: there is but one, or a piece of the passes shares parameters with what is beside it. */
static bool make(struct buckets *b, const struct view *v, uint64_t bytes)
{
	const struct profile *m = v->profile;
	uint64_t least = replica_bytes(v) / MOST + 1;
	bool *closed = closed_of(m), once, whole = true;

	*b = (struct buckets){ .v = v, .first = xcalloc(m->nops, sizeof(uint32_t)) };
	memory_passes(m, 0, m->nops - 1, v->memory, &b->s);
	once = b->s.n == 2;
	for (uint32_t k = 0; k < b->s.n; k++)
		whole = whole && (b->s.v[k].kind != PLAN_BWD || closed[b->s.v[k].a]);
	if (whole)
		share_out(b, closed, once, bytes > least ? bytes : least);
	free(closed);
	if (b->n > 1 && once)
		cut(m, &b->s, b->first);
	return b->n > 1;
}

static const char *name_of(struct buckets *b, const char *what, uint32_t op)
{
	(void)snprintf(b->name, sizeof(b->name), "%s.%u", what, b->first[op]);
	return b->name;
}

static const char *of(void *arg, const struct pass *x)
{
	return name_of(arg, "grad", x->a);
}

/* Behind the BWD that ends a bucket. */
static void made(void *arg, struct plan *p, const struct pass *x)
{
	struct buckets *b = arg;
	bool ends = b->first[x->a] == x->a, last = b->first[b->v->profile->nops - 1] == x->a;
	const char *name = name_of(b, "grad", x->a);

	if (!ends)
		return;
	plan_vec(p, 0, "bucket", "%s batch%s loss%s%s -> %s", name, x->a ? "" : "!",
		last && b->v->profile->stats_bytes ? " stats" : "", b->v->samples ? " acc" : "", name);
	plan_coll(p, PLAN_SUM, 0, b->all, "grad.%u! -> mean.%u", b->first[x->a], b->first[x->a]);
}

/* Of ops a .. e - 1. */
static void buffer(struct plan *p, struct buckets *b, const char *what, uint32_t a, uint32_t e)
{
	const struct profile *m = b->v->profile;
	uint64_t stats = e == m->nops ? m->stats_bytes : 0;
	uint32_t g;

	replica_buffer(p, name_of(b, what, a), PLAN_WEIGHT_GRAD, (lo_of(m, e) - lo_of(m, a)) * sizeof(real) + stats, false);
	g = plan_find(p, b->name);
	plan_extent(p, g, PLAN_FLAT, "", lo_of(m, a), lo_of(m, e));
	if (stats)
		plan_extent(p, g, PLAN_FLAT, "", m->params, m->params + stats / sizeof(real));
}

static void buffers(struct plan *p, struct buckets *b)
{
	const struct profile *m = b->v->profile;

	passes_buffers(p, &b->s);
	for (uint32_t a = 0, e; a < m->nops; a = e) {
		for (e = a; e < m->nops && b->first[e] == a;)
			e++;
		buffer(p, b, "grad", a, e);
		buffer(p, b, "mean", a, e);
	}
}

/* The gradient in the order of its elements. */
static void step(struct plan *p, struct buckets *b)
{
	struct buf refs = { 0 };

	for (uint32_t o = 0; o < b->v->profile->nops; o++)
		if (b->first[o] == o)
			buf_printf(&refs, "%s! ", name_of(b, "mean", o));
	buf_u8(&refs, 0);
	plan_vec(p, 0, "opt", "%sw opt -> w opt skipped", (const char *)refs.p);
	plan_vec(p, 0, "digest", "w -> digest")->lane = plan_lane(p, "reduce", 1, 1);
	buf_free(&refs);
}

bool replica_buckets(struct plan *p, const struct view *v, uint64_t bytes)
{
	struct buckets b;
	const struct passes_parts parts = { .arg = &b, .of = of, .made = made };
	bool is = make(&b, v, bytes);

	if (is) {
		b.all = replica_group(p, v);
		buffers(p, &b);
		if (v->profile->stats_bytes)
			plan_vec(p, 0, "tail", "%s -> stats", v->samples ? "acc" : "w");
		plan_do(p, PLAN_LOAD, 0, "-> batch");
		passes_forward(p, &b.s, "w");
		plan_vec(p, 0, "loss", "y! batch -> dy loss correct")->inplace = true;
		plan_do(p, PLAN_COMMIT, 0, "batch loss");       /* not before forward is over */
		passes_backward_parts(p, &b.s, "w", &parts);
		plan_do(p, PLAN_COMMIT, 0, "%s", "")->scope = PLAN_GROUP;
		step(p, &b);
	}
	passes_free(&b.s);
	free(b.first);
	return is;
}
