/* Memory that goes from round to round: buffers, since fresh pages cost more than the sum, room for means, and what
 * encoding left out.
 *
 * Error feedback (Seide et al., 1-Bit Stochastic Gradient Descent, Interspeech 2014; Karimireddy et al., Error Feedback
 * Fixes SignSGD, ICML 2019): what encoding left out of a range is added to it in the next round: by a member to its
 * pieces, by the reducer to its mean. The residual of a round counts only when its COMMIT does; a range that has got
 * another reducer, or is cut differently, has none any more. */
#include <stdlib.h>
#include "avg/int.h"

void *spare_get(struct avg *a, size_t bytes)
{
	for (size_t i = 0; i < SPARES; i++)
		if (a->spare[i].p && a->spare[i].bytes == bytes) {
			void *p = a->spare[i].p;
			a->spare[i].p = NULL;
			return p;
		}
	return big_alloc(bytes);
}

void spare_put(struct avg *a, void *p, size_t bytes)
{
	size_t to = SPARES;
	if (!p)
		return;
	for (size_t i = 0; i < SPARES && to == SPARES; i++)
		if (!a->spare[i].p)
			to = i;
	if (to == SPARES) {
		to = bytes % SPARES;
		big_free(a->spare[to].p, a->spare[to].bytes);
	}
	a->spare[to].p = p;
	a->spare[to].bytes = bytes;
}

void *piece_room(struct round *r, void *had, size_t bytes)
{
	void *p = had ? had : spare_get(r->a, bytes);
	if (!p && !r->memory_told) {            /* it stays missing: the leader gives the part to another */
		r->memory_told = true;
		hub_event(r->a, LOG_ERROR_, "memory", NULL, "no memory for a contribution of %zu bytes", bytes);
	}
	return p;
}

/* Where element 0 of a vector would be whose elements from lo on are at p. */
float *round_base(const void *p, uint64_t lo)
{
	return p ? (float *)((uintptr_t)p - lo * sizeof(float)) : NULL;
}

static void own_back(struct lease *l)
{
	big_free(l->p, l->bytes);
	free(l);
}

/* The owner's, or else one of this room's own, which may be kept for longer than this room lives. */
struct lease *round_room(struct avg *a, size_t bytes)
{
	struct lease *l = a->cb.room ? a->cb.room(a->arg, bytes) : NULL;
	void *p = l ? l->p : big_alloc(bytes);
	if (l || !p)
		return l;
	l = xcalloc(1, sizeof *l);
	*l = (struct lease){ .p = p, .bytes = bytes, .refs = 1, .back = own_back };
	return l;
}

/* ---- what encoding left out ---- */

static void residual_free(struct avg *a, struct residual *s)
{
	spare_put(a, s->v, s->len * sizeof(float));
	*s = (struct residual){ 0 };
}

void residuals_clear(struct avg *a)
{
	for (size_t i = 0; i < a->nres; i++) {
		a->res_dropped += a->res[i].len;
		residual_free(a, &a->res[i]);
	}
	free(a->res);
	a->res = NULL;
	a->nres = 0;
}

static void residual_del(struct avg *a, size_t i)
{
	a->res[i] = a->res[--a->nres];
}

/* The one of exactly this range and side, out of the list. */
static struct residual residual_take(struct avg *a, uint64_t off, uint64_t len, enum residue of)
{
	for (size_t i = 0; i < a->nres; i++)
		if (a->res[i].off == off && a->res[i].len == len && a->res[i].of == of) {
			struct residual s = a->res[i];
			residual_del(a, i);
			return s;
		}
	return (struct residual){ 0 };
}

static void residual_put(struct avg *a, struct residual *s)
{
	for (size_t i = a->nres; i-- > 0;) {
		struct residual *o = &a->res[i];
		if (o->off >= s->off + s->len || s->off >= o->off + o->len)
			continue;
		a->res_dropped += o->len;
		residual_free(a, o);
		residual_del(a, i);
	}
	a->res = xrealloc(a->res, (a->nres + 1) * sizeof *a->res);
	a->res[a->nres++] = *s;
	*s = (struct residual){ 0 };
}

/* Memory for what this round leaves out, and what the last one did; without memory there is no feedback. */
void residual_begin(struct round *r, struct rpart *rp, enum residue of, float **ret_was, float **ret_now)
{
	if (!r->feedback || rp->plain)
		return;
	if (!rp->was.v)
		rp->was = residual_take(r->a, rp->off, rp->len, of);
	if (!rp->now.v)
		rp->now = (struct residual){ .off = rp->off, .len = rp->len, .v = spare_get(r->a, rp->len * sizeof(float)) };
	rp->now.of = of;
	*ret_now = rp->now.v;
	*ret_was = rp->was.v && rp->was.of == of ? rp->was.v : NULL;
}

enum residue residual_role(const struct round *r, const struct rpart *rp)
{
	return rp->owner == r->me ? OF_MEAN : rp->sums ? OF_ROW : OF_PIECE;
}

/* The round is over here, and no job reads: which residuals hold now? */
void sum_settle(struct round *r, bool committed)
{
	struct avg *a = r->a;
	bool in = committed && r->me >= 0 && r->commit && (r->commit->m[r->me].flags & MATE_IN);
	for (size_t p = 0; p < r->b.parts; p++) {
		struct rpart *rp = &r->part[p];
		enum residue of = residual_role(r, rp);
		bool kept = rp->now.of == OF_PIECE ? in : committed && rp->now.of == of &&
			(of == OF_ROW ? rp->passed : rp->ready);
		if (rp->now.v && kept)
			residual_put(a, &rp->now);
		else if (rp->was.v && !a->freeing)
			residual_put(a, &rp->was);
		if (rp->now.v)
			residual_free(a, &rp->now);
		if (rp->was.v) {
			a->res_dropped += rp->was.of == of ? 0 : rp->was.len;
			residual_free(a, &rp->was);
		}
	}
}

void sum_free(struct round *r, size_t p)
{
	struct rpart *rp = &r->part[p];
	spare_put(r->a, rp->p_enc, rp->bytes);
	spare_put(r->a, rp->x_enc, rp->bytes);
	spare_put(r->a, rp->r_enc, rp->bytes);
	spare_put(r->a, rp->in_enc, rp->bytes);
	if (rp->now.v)
		residual_free(r->a, &rp->now);
	if (rp->was.v)
		residual_free(r->a, &rp->was);
}
