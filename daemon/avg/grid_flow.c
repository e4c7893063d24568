/* A round in a grid (grid.h): what this peer gets, sums and sends in each phase. Before phase 0 it has its own pieces,
 * after phase k the means of its line, which are what it, and whoever it plays for, brings into phase k + 1; every part
 * goes its way alone. An attempt begins anew with the members' own pieces: what was summed with the dead in it is of no
 * use. Callbacks end with member_check, which may begin another attempt: nothing is touched behind it. */
#include <stdlib.h>
#include <string.h>
#include "avg/grid_int.h"
#include "avg/grow.h"
#include "avg/parts.h"
#include "common/hash.h"

#define AHEAD 3                                 /* pieces at once on their way to one owner */

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

static void pump(struct round *r, size_t k);

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
		pump(r, k);
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
		p->x = xfer_send(r->a->chunks, who(r, to), &tag, c->mean, bytes_of(c), CLASS_weight_grad, give_up_at(r), sent,
			p);
		MARK(r->a, "avg.result.after");
	}
}

static void hash_done(struct job *j);

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
	if (k == last_phase(r))                 /* its line goes on first */
		sum_hash_later(r, c->part, (int)c->owner == r->me, hash_done);
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
	pump(r, c->l->is.k + 1);
}

static void sum_run(struct job *j)
{
	struct grid_job *s = container_of(j, struct grid_job, job);
	struct piece *c = s->c;
	const struct rpart *rp = &c->r->part[c->part];
	s->rc = reduce_part(&c->r->coding, rp->off, rp->len, s->t, s->terms, c->l->is.total, ROBUST_NONE, c->mean);
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

static void pump(struct round *r, size_t k)
{
	if (r->closed || !r->attempted)
		return;
	for (size_t i = 0; i < r->flow->lines; i++)
		if (r->flow->line[i].is.k == k)
			pump_line(r, &r->flow->line[i]);
}

void grid_flow_send(struct round *r)
{
	pump(r, 0);
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
		have(c, c->mean ? c->mean : r->mean + r->part[c->part].off);
		pump(r, c->l->is.k + 1);
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

static void expect_raw(struct piece *c, size_t player)
{
	struct pass *p = &c->in[player];
	struct id tag;
	*p = (struct pass){ .c = c, .who = c->l->is.player[player] };
	give_tag(c, 'u', p->who, (size_t)c->r->me, &tag);
	p->x = xfer_recv_room(c->r->a->chunks, who(c->r, p->who), &tag, bytes_of(c), 0, room_for, came, p);
}

static void expect(struct piece *c, struct pass *p, char what, size_t from, void *to)
{
	struct id tag;
	*p = (struct pass){ .c = c, .who = (uint16_t)from };
	give_tag(c, what, from, (size_t)c->r->me, &tag);
	if (to)                                 /* no memory: the others find this peer late */
		p->x = xfer_recv(c->r->a->chunks, who(c->r, from), &tag, to, bytes_of(c), 0, came, p);
}

/* ---- an attempt ---- */

static void piece_open(struct piece *c)
{
	struct round *r = c->r;
	const struct grid_line *l = &c->l->is;
	bool in_place = l->k == last_phase(r) && (int)c->owner != r->me;
	if (((int)c->owner == r->me || c->l->native) && !in_place)
		c->mean = spare_get(r->a, bytes_of(c));
	if ((int)c->owner != r->me) {
		if (c->l->native) {
			r->flow->left += l->k == last_phase(r);
			expect(c, &c->down, 'd', c->owner, in_place ? r->mean + r->part[c->part].off : c->mean);
		}
		return;
	}
	r->flow->left += 1 + (l->k == last_phase(r) && c->l->native);
	c->in = xcalloc(l->players + 1, sizeof *c->in);
	c->raw = xcalloc(l->players + 1, sizeof *c->raw);
	for (size_t i = 0; i < l->players; i++)
		if ((int)l->player[i] != r->me)
			expect_raw(c, i);
}

static void line_open(struct round *r, struct line *to, const struct grid_line *is)
{
	size_t me = (size_t)r->me;
	*to = (struct line){ .is = *is, .player = grid_index_of(is->player, is->players, me) < is->players,
		.native = grid_index_of(is->native, is->natives, me) < is->natives };
	to->piece = xcalloc(r->b.parts + 1, sizeof *to->piece);
	for (size_t p = 0; p < r->b.parts; p++)
		to->piece[p] = (struct piece){ .r = r, .l = to, .part = p, .owner = is->owner[p % is->owners] };
}

/* A line matters when this peer brings something, gets something or sums. */
static bool matters(const struct round *r, const struct grid_line *l)
{
	size_t me = (size_t)r->me;
	return grid_index_of(l->player, l->players, me) < l->players ||
		grid_index_of(l->native, l->natives, me) < l->natives || grid_index_of(l->owner, l->owners, me) < l->owners;
}

/* Those of the attempt that matter here, into to (NULL: only how many). */
static size_t lines_of(struct round *r, struct line *to)
{
	struct grid_flow *f = r->flow;
	struct grid_line l;
	size_t n = 0;
	for (unsigned k = 0; k < f->grid.dims; k++)
		for (size_t i = 0; i < grid_lines(&f->grid, k); i++) {
			if (!grid_line(&f->plan, k, i, &l) || !matters(r, &l))
				continue;
			if (to)
				line_open(r, &to[n], &l);
			n++;
		}
	return n;
}

/* Weights, attempt number and stands are set. */
void grid_flow_attempt(struct round *r)
{
	struct grid_flow *f = r->flow;
	grid_retire(r);
	memset(r->broken, 0, r->b.n * sizeof *r->broken);
	memset(f->val, 0, (f->grid.dims + 1) * r->b.parts * sizeof *f->val);
	f->left = SIZE_MAX;
	f->late = false;
	for (size_t p = 0; p < r->b.parts; p++)
		r->part[p].ready = false;
	for (size_t p = 0; p < r->b.parts; p++)
		f->late = f->late || r->part[p].summing;
	if (f->late)
		return;                         /* a job still reads what this one would write: hash_done */
	if ((size_t)r->me >= f->grid.n || f->grid.stand[r->me] == GRID_GONE)
		return;                         /* not in it: the state comes from another member */
	f->left = 0;
	grid_plan_make(&f->plan, &f->grid, r->w);
	f->planned = true;
	f->lines = lines_of(r, NULL);
	f->line = xcalloc(f->lines + 1, sizeof *f->line);
	lines_of(r, f->line);
	for (size_t i = 0; i < f->lines; i++)
		for (size_t p = 0; p < r->b.parts; p++)
			piece_open(&f->line[i].piece[p]);
	round_care(r);
	for (size_t k = 0; k < f->grid.dims; k++)
		pump(r, k);
}

/* The mean of a part, of this attempt; or of the one before, and this one has waited for that. */
static void hash_done(struct job *j)
{
	struct round *r;
	size_t p;
	bool current = sum_hashed(j, &r, &p);
	struct avg *a = r->a;
	if (!r->closed) {
		r->flow->left -= current;
		if (!current && r->flow->late)
			grid_flow_attempt(r);
		settled(r);
	}
	avg_job_over(a);
}
