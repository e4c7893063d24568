/* What the plans of a generation say of who holds what. A member holds the parts of the state whose weights its plan
 * has as state, its own and perhaps its neighbours'; it brings to a round the one whose gradient its plan gives to an
 * elastic group. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/planted.h"
#include "train/trainer_int.h"

static uint64_t len_of(const struct shard_part *p)
{
	return extent_len(p->param) + extent_len(p->stat);
}

static int in_order(const void *x, const void *y)
{
	const struct shard_part *a = x, *b = y;

	if (a->param.lo != b->param.lo)
		return a->param.lo < b->param.lo ? -1 : 1;
	return a->stat.lo < b->stat.lo ? -1 : a->stat.lo > b->stat.lo;
}

/* In order, each once; how many are left. */
static uint32_t each_once(struct shard_part *v, uint32_t n)
{
	uint32_t out = 0;

	qsort(v, n, sizeof(*v), in_order);
	for (uint32_t k = 0; k < n; k++)
		if (!out || !shard_part_same(&v[out - 1], &v[k]))
			v[out++] = v[k];
	return out;
}

/* --- what a member's plan says */

/* A vector of all elements of a part: the parameters, then, if it has some, running statistics. */
static bool extents_of(const struct trainer *t, const struct plan_buf *b, struct shard_part *ret)
{
	uint64_t n = t->model->nparam;

	if (!b->nextents || b->extent[0].kind != PLAN_FLAT)
		return false;
	*ret = (struct shard_part){ .param = { b->extent[0].lo, b->extent[0].hi } };
	if (b->nextents > 1)
		ret->stat = (struct extent){ b->extent[1].lo - n, b->extent[1].hi - n };
	return true;
}

static void held_of(const struct trainer *t, const struct plan *p, struct trainer_part *ret)
{
	ret->held = xcalloc(p->nbufs + 1, sizeof(*ret->held));
	for (uint32_t k = 0; k < p->nbufs; k++)
		if (p->buf[k].class == PLAN_WEIGHT && plan_is_state(&p->buf[k]) &&
		    extents_of(t, &p->buf[k], &ret->held[ret->nheld]))
			ret->nheld++;
	ret->nheld = each_once(ret->held, ret->nheld);  /* of a part there may be two versions */
	ret->at = xcalloc(ret->nheld + 1, sizeof(*ret->at));
}

/* Does it bring something to the round, or only get what comes of it? */
static bool brings(const struct trainer *t, const struct plan *p, struct shard_part *ret)
{
	for (uint32_t k = 0; k < p->ninstrs; k++) {
		const struct plan_instr *i = &p->instr[k];

		if (i->kind == PLAN_SUM && p->group[i->group].elastic && i->nin)
			return extents_of(t, &p->buf[i->in[0].buf], ret);
	}
	return false;
}

/* Its own is stepped last. */
static void own_of(const struct trainer *t, const struct plan *p, struct shard_part *ret)
{
	for (uint32_t k = 0; k < p->ninstrs; k++) {
		const struct plan_instr *i = &p->instr[k];

		for (uint32_t o = 0; i->kind == PLAN_VEC && !strcmp(i->fn, "opt") && o < i->nout; o++)
			if (p->buf[i->out[o].buf].class == PLAN_WEIGHT)
				(void)extents_of(t, &p->buf[i->out[o].buf], ret);
	}
}

/* --- where all of it lies in a contribution */

/* Every part that anybody holds, once, in order of the parameters. */
static struct shard_part *all_of(const struct trainer_part *part, uint32_t n, uint32_t *ret_n)
{
	struct shard_part *all;
	uint32_t have = 0;

	for (uint32_t k = 0; k < n; k++)
		have += part[k].nheld;
	all = xcalloc(have + 1, sizeof(*all));
	have = 0;
	for (uint32_t k = 0; k < n; k++)
		for (uint32_t i = 0; i < part[k].nheld; i++)
			all[have++] = part[k].held[i];
	*ret_n = each_once(all, have);
	return all;
}

/* All parts in that order, which goes on from the last to the first: a contribution begins with the one of number
 * `begin`. */
struct lay { uint32_t n, begin; struct shard_part *part; };

/* What is brought may be several of them. */
static uint64_t place_of(const struct lay *l, const struct shard_part *p)
{
	uint64_t at = 0;

	for (uint32_t k = 0; k < l->n; k++) {
		const struct shard_part *x = &l->part[(l->begin + k) % l->n];

		if (shard_part_same(x, p) || (extent_len(x->param) && x->param.lo == p->param.lo && x->param.hi <= p->param.hi))
			break;
		at += len_of(x);
	}
	return at;
}

/* false: what it holds does not lie end to end. */
static bool lay_part(const struct lay *l, struct trainer_part *p)
{
	uint64_t sum = 0;

	p->keep_lo = p->nheld ? UINT64_MAX : 0;
	p->keep_hi = 0;
	for (uint32_t i = 0; i < p->nheld; i++) {
		uint64_t n = len_of(&p->held[i]);

		p->at[i] = place_of(l, &p->held[i]);
		p->keep_lo = p->at[i] < p->keep_lo ? p->at[i] : p->keep_lo;
		p->keep_hi = p->at[i] + n > p->keep_hi ? p->at[i] + n : p->keep_hi;
		sum += n;
	}
	return p->keep_hi - p->keep_lo == sum;
}

static bool lay_all(const struct lay *l, struct trainer_part *part, uint32_t n)
{
	bool fits = true;

	for (uint32_t k = 0; k < n; k++)
		fits = lay_part(l, &part[k]) && fits;
	return fits;
}

static int lay_out(struct trainer_part *part, const struct shard_part *own, uint32_t n, struct err *e)
{
	struct lay l = { 0 };
	bool fits;

	l.part = all_of(part, n, &l.n);
	while (!(fits = lay_all(&l, part, n)) && l.begin + 1 < l.n)
		l.begin++;
	for (uint32_t k = 0; k < n; k++) {
		part[k].lo = part[k].brings ? place_of(&l, &own[k]) : 0;
		part[k].hi = part[k].brings ? part[k].lo + len_of(&own[k]) : 0;
	}
	free(l.part);
	return fits ? 0 : err_set(e, ERR_INVALID, "what members hold of the model cannot lie end to end in a contribution");
}

int trainer_parts(const struct trainer *t, const struct view *v, struct trainer_part *ret, struct err *e)
{
	struct plan *p = xcalloc(v->nmembers, sizeof(*p));
	struct shard_part *own = xcalloc(v->nmembers, sizeof(*own));
	struct view x = seat_view_at(t, v, true);
	int rc = plan_members(t->strategy, &x, p, NULL, e);

	for (uint32_t k = 0; k < v->nmembers && rc == 0; k++) {
		ret[k] = (struct trainer_part){ 0 };
		held_of(t, &p[k], &ret[k]);
		own_of(t, &p[k], &ret[k].own);
		ret[k].brings = brings(t, &p[k], &own[k]);
		ret[k].unit = seat_share_of(t, v, k).unit;
		plan_free(&p[k]);
	}
	if (rc == 0)
		rc = lay_out(ret, own, v->nmembers, e);
	free(own);
	free(p);
	return rc;
}

bool part_at(const struct trainer_part *part, const struct plan_buf *b, size_t *ret_at, size_t *ret_len)
{
	for (uint32_t k = 0; k < part->nheld; k++)
		if (b->nextents && b->extent[0].lo == part->held[k].param.lo && b->extent[0].hi == part->held[k].param.hi &&
		    b->bytes == len_of(&part->held[k]) * sizeof(real)) {
			*ret_at = PLANTED(KEPT_ASTRAY) ? 0 : (size_t)(part->at[k] - part->keep_lo);
			*ret_len = (size_t)len_of(&part->held[k]);
			return true;
		}
	return false;
}

/* Elements of what lies there in one piece, or is to lie where the round puts it. */
static size_t room_of(const struct exec_span *v, uint32_t n)
{
	size_t bytes = n ? v[0].bytes : 0;

	for (uint32_t k = 1; k < n && v[0].p && (const char *)v[k].p == (const char *)v[0].p + bytes; k++)
		bytes += v[k].bytes;
	return bytes / sizeof(real);
}

/* A planner's mistake must not write beyond its buffers. */
int sum_of(const struct trainer *t, const struct exec_net *n, const struct exec_span *in, uint32_t nin,
	const struct exec_span *out, uint32_t nout, struct sum *ret, struct err *e)
{
	const struct trainer_part *part = &t->seat.part;
	size_t all = trainer_round_len(t), brings = t->seat.is ? (size_t)(part->hi - part->lo) : all;
	const struct plan_buf *to = nout ? &n->plan->buf[n->instr->out[0].buf] : NULL;

	ret->at = 0;
	ret->len = all;
	if (!t->seat.is && to && to->nextents) {        /* of a vector that is given in parts */
		ret->at = to->extent[0].lo;
		ret->len = brings = to->bytes / sizeof(real);
	}
	if (!nout || (t->seat.is && !part_at(part, &n->plan->buf[n->instr->out[0].buf], &ret->at, &ret->len)))
		return err_set(e, ERR_INVALID, "plan %s: SUM of %s is of no part that this peer holds", n->plan->strategy,
			nout ? out->buffer : n->tag);
	if (ret->len > all || ret->at > all - ret->len || room_of(out, nout) < ret->len)
		return err_set(e, ERR_INVALID, "plan %s: SUM brings elements %zu to %zu of %zu into %s, which has room for %zu",
			n->plan->strategy, ret->at, ret->at + ret->len, all, out->buffer, room_of(out, nout));
	if (nin && room_of(in, nin) < brings)
		return err_set(e, ERR_INVALID, "plan %s: SUM takes %zu elements from %s, which has %zu", n->plan->strategy,
			brings, in->buffer, room_of(in, nin));
	if (nin && t->grow.on && (const real *)in->p != t->grow.x + ret->at)
		return err_set(e, ERR_INVALID, "plan %s: SUM takes %s, which does not lie where parts are given from",
			n->plan->strategy, in->buffer);
	ret->to = out->p;
	ret->from = nin ? in->p : NULL;
	return 0;
}
