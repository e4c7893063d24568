/* The parts of a round as they stand: who brings what to whom in the tree (tree.h), what of it is here, what is
 * lacking. Transfers come and go in flow.c; here they are only stopped. */
#include <stdlib.h>
#include "avg/grid_flow.h"
#include "avg/grow.h"
#include "avg/parts.h"
#include "avg/sent.h"

void part_tag(const struct round *r, char what, uint32_t attempt, size_t part, const struct id *from,
	const struct id *to, struct id *ret)
{
	struct buf b = { 0 };
	buf_put(&b, r->a->conf.run.b, 32);
	buf_put(&b, r->id, DIGEST);
	buf_u8(&b, (uint8_t)what);
	buf_u32(&b, attempt);
	buf_u32(&b, (uint32_t)part);
	buf_put(&b, from->b, 32);
	buf_put(&b, to->b, 32);
	id_of(ret, b.p, b.len);
	buf_free(&b);
}

static bool may_bring(const struct round *r, size_t i)
{
	bool none = r->b.held ? r->b.held[i].unit == NO_UNIT : r->b.m[i].flags & MATE_AUX;
	return (int)i != r->me && !none && !(r->b.m[i].flags & MATE_FOLLOWER);
}

bool flow_holds(const struct round *r, size_t p)
{
	return tree_holds(&r->tree, p, (size_t)r->me);
}

bool part_mine(const struct round *r, size_t p)
{
	return tree_brings(&r->tree, p, (size_t)r->me);
}

void flow_cancel(struct flow *f)
{
	if (f->x)
		xfer_cancel(f->x);
	f->x = NULL;
}

/* What member i sends this peer of part p: nothing, its piece, or its row's sum (of this attempt). */
char part_brings(const struct round *r, size_t p, size_t i)
{
	if ((int)i == r->me || tree_up(&r->tree, p, i) != (size_t)r->me || !tree_brings(&r->tree, p, i))
		return 0;
	if (!tree_sums(&r->tree, p, i))
		return may_bring(r, i) ? 'x' : 0;
	return r->attempted && tree_weight(&r->tree, p, i, r->w) ? 'p' : 0;
}

void part_close(struct round *r, size_t p)
{
	struct rpart *rp = &r->part[p];
	for (size_t i = 0; rp->raw && i < r->b.n; i++) {
		flow_cancel(&rp->in[i]);
		if (sent_drop(r, p, i))
			spare_put(r->a, rp->raw[i], rp->bytes);
	}
	free(rp->raw);
	free(rp->in);
	rp->raw = NULL;
	rp->in = NULL;
}

/* Does the sum of part p need something of member i that is not there? */
bool flow_lacks(const struct round *r, size_t p, size_t i)
{
	const struct rpart *rp = &r->part[p];
	if (!tree_brings(&r->tree, p, i))
		return false;
	if ((int)i == r->me)
		return r->w[i] && (!r->x || !sent_own(r) || !(grow_has(r, p) || PLANTED(GROWN_HALF)));
	if (r->w[i] && !may_bring(r, i) && tree_up(&r->tree, p, i) == (size_t)r->me)
		return true;                    /* it has nothing to bring, whatever the leader says: there is no such sum */
	char what = part_brings(r, p, i);
	return what && (what == 'p' || r->w[i]) && (!rp->in || !rp->in[i].done || !sent_fits(r, p, i));
}

/* This peer's place in part p, as the tree is now: true when it is another than before. */
bool flow_place(struct round *r, size_t p)
{
	struct rpart *rp = &r->part[p];
	uint16_t up = (uint16_t)tree_up(&r->tree, p, (size_t)r->me);
	bool sums = tree_sums(&r->tree, p, (size_t)r->me), moved = up != rp->up || sums != rp->sums;
	rp->owner = r->tree.owner[p];
	rp->up = up;
	rp->sums = sums;
	return moved;
}

bool flow_complete(const struct round *r)
{
	if (r->mean_is_x)
		return r->x && !r->growing;
	if (r->flow)
		return grid_flow_complete(r);
	if (!r->attempted)
		return false;
	for (size_t p = 0; p < r->b.parts; p++)
		if (!r->part[p].ready && flow_holds(r, p))
			return false;
	return true;
}

void flow_stop(struct round *r, bool results_too)
{
	if (r->flow)
		grid_flow_stop(r, results_too);
	for (size_t p = 0; p < r->b.parts; p++) {
		struct rpart *rp = &r->part[p];
		flow_cancel(&rp->x_out);
		flow_cancel(&rp->result_in);
		for (size_t i = 0; rp->in && i < r->b.n; i++)
			flow_cancel(&rp->in[i]);
		for (size_t i = 0; results_too && rp->result_out && i < r->b.n; i++)
			flow_cancel(&rp->result_out[i]);
	}
}

bool flow_idle(const struct round *r)
{
	if (r->flow && !grid_flow_idle(r))
		return false;
	for (size_t p = 0; p < r->b.parts; p++)
		for (size_t i = 0; r->part[p].result_out && i < r->b.n; i++)
			if (r->part[p].result_out[i].x)
				return false;
	return r->jobs == 0;
}

void flow_free(struct round *r)
{
	grid_flow_free(r);
	free(r->came);
	r->came = NULL;
	for (size_t p = 0; p < r->b.parts; p++) {
		part_close(r, p);
		free(r->part[p].result_out);
		sum_free(r, p);
	}
}
