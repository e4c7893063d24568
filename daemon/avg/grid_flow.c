/* A round in a grid (grid.h): what this peer gets, sums and sends in each phase. Before phase 0 it has its own pieces,
 * after phase k the means of its line, which are what it, and whoever it plays for, brings into phase k + 1; every part
 * goes its way alone. An attempt begins anew with the members' own pieces: what was summed with the dead in it is of no
 * use. Callbacks end with member_check, which may begin another attempt: nothing is touched behind it. */
#include <stdlib.h>
#include <string.h>
#include "avg/grid_int.h"
#include "avg/grow.h"
#include "avg/robust.h"
#include "common/hash.h"

#define AHEAD 3                                 /* pieces at once on their way to one owner */

static const struct id *who(const struct round *r, size_t i) { return &r->b.m[i].id; }

/* ---- sums ---- */

struct grid_job {
	struct job job; struct piece *c; uint32_t attempt; int rc;
	struct reduce_term *t; size_t terms;
};

static void give_tag(const struct piece *c, char what, size_t from, size_t to, struct id *ret)
{
	const struct round *r = c->r;
	struct buf b = { 0 };
	buf_put(&b, r->a->conf.run.b, 32);
	buf_put(&b, r->id, DIGEST);
	buf_u8(&b, (uint8_t)what);
	buf_u32(&b, r->attempt);
	buf_u32(&b, c->l->is.k);
	buf_u32(&b, (uint32_t)c->l->is.line);
	buf_u32(&b, (uint32_t)c->part);
	buf_put(&b, who(r, from)->b, 32);
	buf_put(&b, who(r, to)->b, 32);
	id_of(ret, b.p, b.len);
	buf_free(&b);
}

static uint64_t give_up_at(const struct round *r)
{
	return now_of(r->a) + 8 * r->b.data_us + r->b.ready_us + 2 * SECOND;
}

static void sent(void *arg, struct xfer *x, const struct err *e)
{
	struct pass *p = arg;
	struct round *r = p->c->r;
	size_t k = p->c->l->is.k;
	bool up = p == &p->c->up;
	p->x = NULL;
	p->done = !e;
	p->failed = e != NULL;
	r->bytes_out += e ? 0 : bytes_of(p->c);
	if (r->closed)
		kick(r->a);                     /* perhaps the last thing that kept the round */
	else if (up)
		grid_pump(r, k);
}

static void pass_on(struct piece *c)
{
	struct round *r = c->r;
	const struct grid_line *l = &c->l->is;
	c->out = xcalloc(l->natives + 1, sizeof *c->out);
	for (size_t i = 0; i < l->natives; i++) {
		size_t to = l->native[i];
		struct pass *p = &c->out[i];
		struct id tag;
		if ((int)to == r->me || (r->flow->grid.stand[to] == GRID_TAKES && !flow_lives(r, to)))
			continue;
		*p = (struct pass){ .c = c, .who = (uint16_t)to };
		give_tag(c, 'd', (size_t)r->me, to, &tag);
		MARK(r->a, "avg.result.before");
		p->x = xfer_send_hashed(r->a->chunks, who(r, to), &tag, c->mean, bytes_of(c), c->sent, CLASS_weight_grad,
			give_up_at(r), sent, p);
		MARK(r->a, "avg.result.after");
	}
}

static void settled(struct round *r)
{
	if (r->closed)
		return;
	flow_missing(r);
	member_check(r);
}

/* The line's mean of this part is here: what this peer brings into the next phase, or has in the end. */
static void have(struct piece *c, const float *mean)
{
	struct round *r = c->r;
	size_t k = c->l->is.k;
	r->flow->val[(k + 1) * r->b.parts + c->part] = mean;
	if (k == last_phase(r))
		sum_hash(r, c->part, (int)c->owner == r->me);
}

/* It is hashed; or was, and another attempt has waited for that. */
void grid_flow_hashed(struct round *r, bool current)
{
	r->flow->left -= current;
	if (!current && r->flow->late)
		grid_flow_attempt(r);
	settled(r);
}

static void take_sum(struct piece *c)
{
	struct round *r = c->r;
	struct rpart *rp = &r->part[c->part];
	c->summed = true;
	r->flow->left--;
	pass_on(c);
	if (!c->l->native)
		return;
	if (c->l->is.k == last_phase(r))
		memcpy(r->mean + rp->off, c->mean, rp->bytes);
	have(c, c->mean);
	grid_pump(r, c->l->is.k + 1);
}

static void sum_run(struct job *j)
{
	struct grid_job *s = container_of(j, struct grid_job, job);
	struct piece *c = s->c;
	const struct rpart *rp = &c->r->part[c->part];
	s->rc = reduce_part(&c->r->coding, rp->off, rp->len, s->t, s->terms, c->l->is.total, ROBUST_NONE, c->mean);
	if (!s->rc)
		xxh128_of(c->mean, rp->bytes, c->sent);
}

/* Of phase 0 the contribution is no number; later the sum of a line is not, though all that went into it were. */
static void blame(struct round *r, const struct grid_job *s)
{
	const struct grid_line *l = &s->c->l->is;
	for (size_t i = 0; i < s->terms; i++)
		if (s->t[i].bad)
			(l->k ? r->broken : r->bad)[l->player[i]] = true;
}

static void sum_over(struct grid_job *s)
{
	struct piece *c = s->c;
	struct round *r = c->r;
	bool current = !r->closed && s->attempt == r->attempt;
	r->jobs--;
	r->a->x_jobs--;
	c->summing = false;
	if (current && s->rc)
		blame(r, s);
	else if (current)
		take_sum(c);
	free(s->t);
	free(s);
}

static void sum_done(struct job *j)
{
	struct grid_job *s = container_of(j, struct grid_job, job);
	struct round *r = s->c->r;
	struct avg *a = r->a;
	sum_over(s);
	settled(r);
	avg_job_over(a);
}

static const float *held(const struct round *r, size_t k, size_t p)
{
	const struct grid_flow *f = r->flow;
	if (k)
		return f->val[k * r->b.parts + p];
	return r->x && r->w[r->me] && grow_has(r, p) ? r->x + r->part[p].off : NULL;
}

static bool all_there(const struct piece *c)
{
	const struct grid_line *l = &c->l->is;
	for (size_t i = 0; i < l->players; i++) {
		bool own = (int)l->player[i] == c->r->me;
		if (own ? !held(c->r, l->k, c->part) : !c->in[i].done)
			return false;
		if (l->k ? c->r->broken[l->player[i]] : c->r->bad[l->player[i]])
			return false;
	}
	return true;
}

static void try_sum(struct piece *c)
{
	struct round *r = c->r;
	const struct grid_line *l = &c->l->is;
	const struct rpart *rp = &r->part[c->part];
	if ((int)c->owner != r->me || c->summing || c->summed || !c->mean || !c->in || !all_there(c))
		return;
	struct grid_job *s = xcalloc(1, sizeof *s);
	*s = (struct grid_job){ .c = c, .attempt = r->attempt, .t = xcalloc(l->players, sizeof *s->t) };
	s->job = (struct job){ .name = "avg.sum", .lane = env_lane(r->a->env, "reduce"), .run = sum_run, .done = sum_done,
		.cost_us = rp->len * sizeof(float) / 2000 * l->players };
	for (size_t i = 0; i < l->players; i++)
		s->t[s->terms++] = (struct reduce_term){ .weight = l->weight[i], .row = l->k > 0,
			.x = (int)l->player[i] == r->me ? held(r, l->k, c->part) : c->raw[i] };
	c->summing = true;
	r->jobs++;
	r->a->x_jobs++;
	if (rp->bytes > FEW) {
		env_work(r->a->env, &s->job);
		return;
	}
	sum_run(&s->job);
	sum_over(s);
}

/* ---- up ---- */

static void send_up(struct piece *c)
{
	struct round *r = c->r;
	struct id tag;
	c->up = (struct pass){ .c = c, .who = c->owner };
	give_tag(c, 'u', (size_t)r->me, c->owner, &tag);
	MARK(r->a, "avg.data.before");
	c->up.x = xfer_send(r->a->chunks, who(r, c->owner), &tag, held(r, c->l->is.k, c->part), bytes_of(c),
		CLASS_weight_grad, give_up_at(r), sent, &c->up);
	MARK(r->a, "avg.data.after");
}

/* A few at a time to each owner; those behind this peer come first, so that not everybody begins with one. */
static void pump_line(struct round *r, struct line *l)
{
	uint8_t *busy = xcalloc(r->b.n, sizeof *busy);
	size_t first = 0, parts = r->b.parts;
	for (size_t p = 0; p < parts; p++)
		busy[l->piece[p].owner] += l->piece[p].up.x != NULL;
	while (first < parts && (int)l->piece[first].owner <= r->me)
		first++;
	for (size_t i = 0; i < parts; i++) {
		struct piece *c = &l->piece[(first + i) % parts];
		if ((int)c->owner == r->me) {
			try_sum(c);
			continue;
		}
		if (!l->player || c->up.x || c->up.done || c->up.failed || busy[c->owner] >= AHEAD ||
				!held(r, l->is.k, c->part))
			continue;
		busy[c->owner]++;
		send_up(c);
	}
	free(busy);
}

void grid_pump(struct round *r, size_t k)
{
	if (r->closed || !r->attempted)
		return;
	for (size_t i = 0; i < r->flow->lines; i++)
		if (r->flow->line[i].is.k == k)
			pump_line(r, &r->flow->line[i]);
}

void grid_flow_send(struct round *r)
{
	grid_pump(r, 0);
}

/* ---- what arrives ---- */

static void came(void *arg, struct xfer *x, const struct err *e)
{
	struct pass *p = arg;
	struct piece *c = p->c;
	struct round *r = c->r;
	p->x = NULL;
	if (e || r->closed)
		return;                         /* the deadline, or the news of a death, makes it missing */
	p->done = true;
	r->bytes_in += bytes_of(c);
	if (p == &c->down) {
		xfer_digest(x, c->sent);
		have(c, c->mean ? c->mean : r->mean + r->part[c->part].off);
		grid_pump(r, c->l->is.k + 1);
		round_touch(r);
	} else {
		try_sum(c);
	}
	settled(r);
}

static void *room_for(void *arg)
{
	struct pass *p = arg;
	struct piece *c = p->c;
	float **raw = &c->raw[p - c->in];
	return *raw = piece_room(c->r, *raw, bytes_of(c));
}

void grid_expect_raw(struct piece *c, size_t player)
{
	struct pass *p = &c->in[player];
	struct id tag;
	*p = (struct pass){ .c = c, .who = c->l->is.player[player] };
	give_tag(c, 'u', p->who, (size_t)c->r->me, &tag);
	p->x = xfer_recv_room(c->r->a->chunks, who(c->r, p->who), &tag, bytes_of(c), 0, room_for, came, p);
}

void grid_expect(struct piece *c, struct pass *p, char what, size_t from, void *to)
{
	struct id tag;
	*p = (struct pass){ .c = c, .who = (uint16_t)from };
	give_tag(c, what, from, (size_t)c->r->me, &tag);
	if (to)                                 /* no memory: the others find this peer late */
		p->x = xfer_recv(c->r->a->chunks, who(c->r, from), &tag, to, bytes_of(c), 0, came, p);
}
