/* Parts on their way, up and down the round's tree (tree.h). A member sends piece p of its gradient to who sums it;
 * that one keeps what it got until COMMIT and sums over C in member order when all of C is there: of a row it sends the
 * sum to p's owner; the owner sends the same bytes to all who sent it something, and they pass them on. An attempt only
 * changes the tree and weights: a member's piece that is there already is not sent again, a row's sum is. */
#include <stdlib.h>
#include <string.h>
#include "avg/grow.h"
#include "avg/parts.h"
#include "avg/sent.h"

#define AHEAD 3                                 /* pieces at once on their way to one owner */
#define LITTLE 65536                            /* a mean of so few bytes goes to whoever may want it */

/* ---- what arrives ---- */

static void raw_arrived(void *arg, struct xfer *x, const struct err *e)
{
	struct flow *f = arg;
	struct round *r = f->r;
	f->x = NULL;
	if (e)
		return;                         /* the deadline, or the news of a death, makes it missing */
	f->done = true;
	r->bytes_in += r->part[f->part].bytes;
	sent_arrived(r, f->part, f->member);
	flow_try(r, f->part);
	flow_missing(r);
}

static void *room_for(void *arg)
{
	struct flow *f = arg;
	struct rpart *rp = &f->r->part[f->part];
	void **raw = &rp->raw[f->member];
	return *raw = piece_room(f->r, *raw, rp->bytes);
}

static void open_one(struct round *r, size_t p, size_t i, char what)
{
	struct rpart *rp = &r->part[p];
	struct id tag;
	flow_cancel(&rp->in[i]);
	rp->in[i] = (struct flow){ .r = r, .part = (uint16_t)p, .member = (uint16_t)i };
	part_tag(r, what, what == 'x' ? 0 : r->attempt, p, who(r, i), who(r, (size_t)r->me), &tag);
	rp->in[i].x = xfer_recv_room(r->a->chunks, who(r, i), &tag, rp->bytes, 0, room_for, raw_arrived, &rp->in[i]);
}

/* Receivers of what comes, and of nothing else; pieces that are there or on their way stay so. */
static void open_raw(struct round *r, size_t p)
{
	struct rpart *rp = &r->part[p];
	if (!rp->raw) {
		rp->raw = xcalloc(r->b.n, sizeof *rp->raw);
		rp->in = xcalloc(r->b.n, sizeof *rp->in);
	}
	for (size_t i = 0; i < r->b.n; i++) {
		char what = part_brings(r, p, i);
		if (!what && rp->in[i].r) {
			flow_cancel(&rp->in[i]);
			if (sent_drop(r, p, i))
				spare_put(r->a, rp->raw[i], rp->bytes);
			rp->raw[i] = NULL;
			rp->in[i] = (struct flow){ 0 };
		}
		if (what == 'p' || (what && !rp->in[i].x && !rp->in[i].done))
			open_one(r, p, i, what);
	}
}

void flow_open(struct round *r)
{
	if (r->flow)
		return;                         /* with the attempt, which says who plays for whom */
	for (size_t p = 0; p < r->b.parts; p++)
		if (r->part[p].sums)
			open_raw(r, p);
	sents_stashed(r);
}

/* ---- what leaves ---- */

static void piece_sent(void *arg, struct xfer *x, const struct err *e)
{
	struct flow *f = arg;
	struct rpart *rp = &f->r->part[f->part];
	f->x = NULL;
	f->done = !e;
	rp->x_failed = e != NULL;
	if (!e)
		f->r->bytes_out += rp->bytes;
	if (!f->r->closed)
		flow_send_x(f->r);
}

static void send_piece(struct round *r, size_t p)
{
	struct rpart *rp = &r->part[p];
	struct id tag;
	char what = rp->sums ? 'p' : 'x';
	const void *data = rp->sums ? rp->p_enc : rp->plain ? (const void *)(r->x + rp->off) : rp->x_enc;
	if (!data) {
		sum_encode(r, p);               /* a large one comes back here */
		data = rp->x_enc;
	}
	if (!data)
		return;
	rp->x_out = (struct flow){ .r = r, .part = (uint16_t)p, .member = rp->up };
	part_tag(r, what, rp->sums ? r->attempt : 0, p, who(r, (size_t)r->me), who(r, rp->up), &tag);
	MARK(r->a, "avg.data.before");
	rp->x_out.x = xfer_send(r->a->chunks, who(r, rp->up), &tag, data, rp->bytes, CLASS_weight_grad,
		give_up_at(r), piece_sent, &rp->x_out);
	MARK(r->a, "avg.data.after");
}

/* A few pieces at a time to each one above, in order, so that the first can be summed while the last are still here;
 * what is on its way or there is not sent again. Those behind this peer come first: not everybody begins with one. */
void flow_send_x(struct round *r)
{
	bool mine = r->samples && r->x && (!r->attempted || r->w[r->me]);
	uint8_t *busy = xcalloc(r->b.n, sizeof *busy);
	for (size_t p = 0; p < r->b.parts; p++)
		busy[r->part[p].up] += r->part[p].x_out.x || r->part[p].encoding;
	size_t first = 0;
	while (first < r->b.parts && (int)r->part[first].up <= r->me)
		first++;
	for (size_t k = 0; k < r->b.parts; k++) {
		size_t p = (first + k) % r->b.parts;
		struct rpart *rp = &r->part[p];
		if (rp->owner == r->me || !part_mine(r, p) || rp->x_out.x || rp->x_out.done || rp->encoding || rp->x_failed ||
				busy[rp->up] >= AHEAD || !(rp->sums ? rp->passed : mine && grow_has(r, p)))
			continue;
		busy[rp->up]++;
		send_piece(r, p);
	}
	free(busy);
}

static void result_sent(void *arg, struct xfer *x, const struct err *e)
{
	struct flow *f = arg;
	f->x = NULL;
	f->done = !e;
	if (!e)
		f->r->bytes_out += f->r->part[f->part].bytes;
	if (f->r->closed)
		kick(f->r->a);                  /* perhaps the last thing that kept the round */
}

/* The leader has begun with it: news of its death that are older than that were of its earlier life. */
static bool died(const struct round *r, size_t i)
{
	const struct mate *m = mate_find(r->a, who(r, i));
	return !m || (!m->live && m->gone_us >= r->begun_us);
}

void flow_pass_on(struct round *r, size_t p)
{
	struct rpart *rp = &r->part[p];
	if (!rp->result_out)
		rp->result_out = xcalloc(r->b.n, sizeof *rp->result_out);
	for (size_t i = 0; i < r->b.n; i++) {
		struct flow *f = &rp->result_out[i];
		struct id tag;
		/* Who counts in this attempt is alive by the leader's word: ours may be news of its earlier life. Who does not,
		 * and does not sum for others, may be in an epoch of before, or fetch a whole state: it is asked first. */
		if ((int)i == r->me || tree_up(&r->tree, p, i) != (size_t)r->me || f->x || !tree_holds(&r->tree, p, i) ||
				(died(r, i) && !tree_weight(&r->tree, p, i, r->w)))
			continue;
		*f = (struct flow){ .r = r, .part = (uint16_t)p, .member = (uint16_t)i };
		part_tag(r, 'r', r->attempt, p, who(r, (size_t)r->me), who(r, i), &tag);
		MARK(r->a, "avg.result.before");
		bool counts = r->w[i] || tree_weight(&r->tree, p, i, r->w) || r->b.m[i].flags & MATE_AUX ||
			rp->bytes * r->b.parts <= LITTLE;
		const void *data = rp->plain ? (const void *)(r->mean + rp->off) : rp->r_enc;
		f->x = (counts ? xfer_send : xfer_offer)(r->a->chunks, who(r, i), &tag, data, rp->bytes, CLASS_weight_grad,
			give_up_at(r), result_sent, f);
		MARK(r->a, "avg.result.after");
	}
}

void flow_summed(struct round *r, size_t p)
{
	if (r->part[p].owner != r->me) {
		r->part[p].passed = true;
		flow_send_x(r);
		return;
	}
	flow_pass_on(r, p);
	sum_hash(r, p, true);
}

bool flow_owes(const struct round *r, size_t member)
{
	for (size_t p = 0; p < r->b.parts && !r->flow; p++) {
		const struct flow *f = r->part[p].result_out ? &r->part[p].result_out[member] : NULL;
		if (f && f->x && !xfer_waits(f->x))
			return true;
	}
	return false;
}

static bool all_there(const struct round *r, size_t p)
{
	if (r->part[p].owner != r->me && !tree_weight(&r->tree, p, (size_t)r->me, r->w))
		return false;                   /* a row that brings nothing */
	for (size_t i = 0; i < r->b.n; i++)
		if (flow_lacks(r, p, i) || (r->bad[i] && r->w[i] && tree_brings(&r->tree, p, i) &&
				(tree_up(&r->tree, p, i) == (size_t)r->me ||
				(int)i == r->me)))
			return false;
	return true;
}

void flow_try(struct round *r, size_t p)
{
	struct rpart *rp = &r->part[p];
	if (!r->attempted || r->closed || !rp->sums || rp->ready || rp->passed || rp->summing ||
			!all_there(r, p))
		return;
	sum_start(r, p);
}

/* ---- results ---- */

static void result_arrived(void *arg, struct xfer *x, const struct err *e)
{
	struct flow *f = arg;
	struct round *r = f->r;
	struct rpart *rp = &r->part[f->part];
	f->x = NULL;
	if (e || r->closed)
		return;
	f->done = true;
	r->bytes_in += rp->bytes;
	sum_take(r, f->part);
}

static void want_result(struct round *r, size_t p)
{
	struct rpart *rp = &r->part[p];
	struct id tag;
	rp->result_in = (struct flow){ .r = r, .part = (uint16_t)p, .member = rp->up };
	if (rp->summing)                        /* a job of an attempt that is over still has its place: flow_again */
		return;
	part_tag(r, 'r', r->attempt, p, who(r, rp->up), who(r, (size_t)r->me), &tag);
	if (!rp->plain && !rp->in_enc)
		rp->in_enc = spare_get(r->a, rp->bytes);
	if (!rp->plain && !rp->in_enc)
		return;                         /* no memory: the leader finds this peer late */
	rp->result_in.x = xfer_recv(r->a->chunks, who(r, rp->up), &tag, rp->plain ? (void *)(r->mean + rp->off) :
		rp->in_enc, rp->bytes, 0, result_arrived, &rp->result_in);
}

void flow_again(struct round *r, size_t p)
{
	struct rpart *rp = &r->part[p];
	if (r->attempted && rp->owner != r->me && flow_holds(r, p) && !rp->ready && !rp->result_in.x && !rp->result_in.done)
		want_result(r, p);
	flow_try(r, p);
}

static void restart(struct round *r, size_t p)
{
	struct rpart *rp = &r->part[p];
	rp->ready = PLANTED(OLD_RESULT) && rp->ready;
	rp->passed = PLANTED(OLD_ROW) && rp->passed;
	flow_cancel(&rp->result_in);
	for (size_t i = 0; rp->result_out && i < r->b.n; i++)
		flow_cancel(&rp->result_out[i]);
	if (flow_place(r, p) || rp->sums) {
		flow_cancel(&rp->x_out);
		rp->x_out.done = rp->x_failed = false;
	}
	if (rp->sums)
		open_raw(r, p);
	else
		part_close(r, p);
	if (!r->w[r->me] && !rp->sums)
		flow_cancel(&rp->x_out);
	if (rp->owner != r->me && flow_holds(r, p))
		want_result(r, p);
}

/* Weights, attempt number and total are set; the tree changes here. */
void flow_attempt(struct round *r, const uint16_t *owner, const uint16_t *sub)
{
	memcpy(r->tree.owner, owner, r->b.parts * sizeof *owner);
	if (r->tree.sub)
		memcpy(r->tree.sub, sub, r->b.parts * r->tree.rows * sizeof *sub);
	memset(r->broken, 0, r->b.n * sizeof *r->broken);
	if (!r->came)
		r->came = xcalloc(r->b.n, sizeof *r->came);
	for (size_t i = 0; i < r->b.n; i++)
		r->came[i] = flow_came(r, i);
	for (size_t p = 0; p < r->b.parts; p++)
		restart(r, p);
	round_care(r);
	flow_send_x(r);
	for (size_t p = 0; p < r->b.parts && !r->closed; p++)
		flow_try(r, p);
}
