/* Collectives in a fixed group, strict: everybody or an error: transfers between pairs, perhaps a sum in
 * between, and transfers of results. Small vectors are exchanged directly (one message each way, latency first); larger
 * ones go through a butterfly: member j sums part j in member order and sends it to all: each byte crosses twice
 * and every member has the same bytes. Long vectors are cut into steps, a few of which are under way at once: while one
 * is summed the next is on its way, and the memory for what others send stays small. */
#include <stdlib.h>
#include <string.h>
#include "avg/coll.h"
#include "common/buf.h"
#include "common/list.h"
#include "common/mem.h"
#include "kernels/vec.h"

#define DIRECT 16384                            /* bytes: below it latency counts, not bandwidth */
#define FEW 65536                               /* bytes: below it the sum stays on the loop (B11) */
#define STEP (1u << 18)                         /* floats of a part in one step */
#define AHEAD 4                                 /* steps under way at once */
#define SPARES 8
#define BLOCK 4096

struct spare { float *p; size_t bytes; };
struct coll { struct env *env; struct net *net; struct chunks *chunks; struct list open; struct spare spare[SPARES]; };
struct piece { struct step *s; struct xfer *x; bool done; };
/* What the caller asked for. */
struct op {
	struct list link; struct coll *c; struct timer later; struct list steps;
	struct id *members, tag; uint32_t n, me; uint64_t seq, deadline_us;
	enum coll_op op; bool gather /* the results go to all */;
	float *x; size_t len, at /* not begun yet */; uint32_t number;
	bool ended; struct err why; coll_done_fn *done; void *arg;
};
/* A range of the vector on its way: [x, x + len), of which [lo, hi) is this member's. */
struct step {
	struct list link; struct op *o; struct job job; uint32_t number;
	float *x; size_t len, lo, hi, raw_bytes;
	float *raw;                             /* what the others sent of my part (butterfly) or of all (direct) */
	struct piece *in, *out, *result_in, *result_out;
	bool direct, sums, summing, summed; uint32_t left;      /* transfers and the sum that must end well */
};

static void begin_steps(struct op *o);

struct coll *coll_new(struct env *env, struct net *net, struct chunks *chunks)
{
	struct coll *c = xcalloc(1, sizeof *c);
	c->env = env;
	c->net = net;
	c->chunks = chunks;
	list_init(&c->open);
	return c;
}

void coll_part(uint32_t n, uint32_t i, size_t len, size_t *ret_lo, size_t *ret_hi)
{
	*ret_lo = len / n * i + (i < len % n ? i : len % n);
	*ret_hi = *ret_lo + len / n + (i < len % n);
}

/* ---- memory and ends ---- */

static float *raw_get(struct coll *c, size_t bytes)
{
	for (int i = 0; i < SPARES; i++)
		if (c->spare[i].p && c->spare[i].bytes == bytes) {
			float *p = c->spare[i].p;
			c->spare[i].p = NULL;
			return p;
		}
	return big_alloc(bytes);
}

static void raw_put(struct coll *c, float *p, size_t bytes)
{
	int to = 0;
	while (to < SPARES - 1 && c->spare[to].p)
		to++;
	big_free(c->spare[to].p, c->spare[to].bytes);
	c->spare[to] = (struct spare){ p, bytes };
}

static void cancel(struct step *s)
{
	for (uint32_t i = 0; i < 4 * s->o->n; i++)
		if (s->in[i].x) {
			xfer_cancel(s->in[i].x);
			s->in[i].x = NULL;
		}
}

static void step_free(struct step *s)
{
	cancel(s);
	list_del(&s->link);
	if (s->raw)
		raw_put(s->o->c, s->raw, s->raw_bytes);
	free(s->in);
	free(s);
}

static void op_free(struct op *o)
{
	env_timer(o->c->env, &o->later, 0);
	while (!list_empty(&o->steps))
		step_free(list_entry(o->steps.next, struct step, link));
	list_del(&o->link);
	free(o->members);
	free(o);
}

void coll_free(struct coll *c)
{
	if (!c)
		return;
	list_each_safe(it, &c->open)
		op_free(list_entry(it, struct op, link));
	for (int i = 0; i < SPARES; i++)
		big_free(c->spare[i].p, c->spare[i].bytes);
	free(c);
}

/* The end is told from a timer, so that nothing calls back from inside a collective's beginning or a transfer. */
static void later(struct timer *t)
{
	struct op *o = container_of(t, struct op, later);
	coll_done_fn *done = o->done;
	void *arg = o->arg;
	struct err e = o->why;
	list_each(it, &o->steps)
		if (list_entry(it, struct step, link)->summing)
			return;                 /* the lane still holds the memory; sum_done comes back here */
	op_free(o);
	done(arg, e.code ? &e : NULL);
}

static void end(struct op *o, const struct err *e)
{
	if (o->ended)
		return;
	o->ended = true;
	if (e)
		o->why = *e;
	list_each(it, &o->steps)
		cancel(list_entry(it, struct step, link));
	env_after(o->c->env, &o->later, 1);
}

bool coll_cancel(struct coll *c, void *arg)
{
	struct err e;
	list_each_safe(it, &c->open) {
		struct op *o = list_entry(it, struct op, link);
		bool summing = false;
		if (o->arg != arg)
			continue;
		list_each(at, &o->steps)
			summing = summing || list_entry(at, struct step, link)->summing;
		if (!summing) {
			op_free(o);
			return true;
		}
		err_set(&e, ERR_CANCELLED, "the collective was given up");
		end(o, &e);
		return false;
	}
	return true;
}

static void one_less(struct step *s)
{
	struct op *o = s->o;
	if (--s->left || o->ended)
		return;
	step_free(s);
	if (o->at < o->len)
		begin_steps(o);
	else if (list_empty(&o->steps))
		end(o, NULL);
}

/* ---- transfers ---- */

static void tag_of(const struct step *s, char what, uint32_t from, uint32_t to, struct id *ret)
{
	struct buf b = { 0 };
	buf_put(&b, s->o->tag.b, 32);
	buf_u64(&b, s->o->seq);
	buf_u8(&b, (uint8_t)what);
	buf_u32(&b, from);
	buf_u32(&b, to);
	buf_u32(&b, s->number);
	id_of(ret, b.p, b.len);
	buf_free(&b);
}

static void receive(struct step *s, struct piece *p, char what, uint32_t from, float *to, size_t n, xfer_done_fn *over)
{
	struct op *o = s->o;
	struct id tag;
	tag_of(s, what, from, o->me, &tag);
	s->left++;
	p->x = xfer_recv(o->c->chunks, &o->members[from], &tag, to, n * sizeof(float), o->deadline_us, over, p);
}

static void give(struct step *s, struct piece *p, char what, uint32_t to, const float *from, size_t n,
	xfer_done_fn *over)
{
	struct op *o = s->o;
	struct id tag;
	tag_of(s, what, o->me, to, &tag);
	s->left++;
	p->x = xfer_send(o->c->chunks, &o->members[to], &tag, from, n * sizeof(float), CLASS_activation, o->deadline_us,
		over, p);
}

static void result_over(void *arg, struct xfer *x, const struct err *e)
{
	struct piece *p = arg;
	p->x = NULL;
	e ? end(p->s->o, e) : one_less(p->s);
}

/* ---- the sum of my part ---- */

static void combine(enum coll_op op, const struct par *par, size_t n, const float *x, float *acc)
{
	if (op != COLL_MAX) {
		vec_axpy(par, n, 1, x, acc);
		return;
	}
	for (size_t k = 0; k < n; k++)          /* NaN wins, whoever brings it */
		acc[k] = acc[k] != acc[k] || acc[k] > x[k] ? acc[k] : x[k];
}

static void sum_run(struct job *j)
{
	struct step *s = container_of(j, struct step, job);
	const struct op *o = s->o;
	size_t n = s->hi - s->lo;
	float *mine = s->x + s->lo, acc[BLOCK];
	struct par par = par_serial(CPU_PLAIN, NULL);
	(void)cpu_pick(NULL, &par.cpu, NULL);
	for (size_t at = 0; at < n; at += BLOCK) {
		size_t len = n - at < BLOCK ? n - at : BLOCK;
		for (uint32_t i = 0; i < o->n; i++) {
			const float *x = i == o->me ? mine + at : s->raw + i * n + at;
			if (i)
				combine(o->op, &par, len, x, acc);
			else
				memcpy(acc, x, len * sizeof *x);
		}
		for (size_t k = 0; k < len && o->op == COLL_MEAN; k++)
			acc[k] /= (float)o->n;
		memcpy(mine + at, acc, len * sizeof *acc);
	}
}

static void send_results(struct step *s)
{
	struct op *o = s->o;
	for (uint32_t i = 0; i < o->n && !s->direct && o->gather; i++)
		if (i != o->me && s->hi > s->lo)
			give(s, &s->result_out[i], 'r', i, s->x + s->lo, s->hi - s->lo, result_over);
}

static void sum_done(struct job *j)
{
	struct step *s = container_of(j, struct step, job);
	s->summing = false;
	if (s->o->ended) {
		later(&s->o->later);
		return;
	}
	s->summed = true;
	send_results(s);
	one_less(s);
}

/* In a direct exchange my own vector must be with everybody before the sum overwrites it. */
static void try_sum(struct step *s)
{
	struct op *o = s->o;
	for (uint32_t i = 0; i < o->n; i++)
		if (i != o->me && s->hi > s->lo && (!s->in[i].done || (s->direct && !s->out[i].done)))
			return;
	if (!s->sums || s->summing || s->summed || o->ended)
		return;
	s->summing = true;
	size_t bytes = (s->hi - s->lo) * sizeof(float) * o->n;
	s->job = (struct job){ .name = "coll.sum", .lane = env_lane(o->c->env, "reduce"), .run = sum_run, .done = sum_done,
		.cost_us = bytes / 2000 };
	if (bytes > FEW) {
		env_work(o->c->env, &s->job);
		return;
	}
	sum_run(&s->job);
	sum_done(&s->job);
}

static void piece_over(void *arg, struct xfer *x, const struct err *e)
{
	struct piece *p = arg;
	struct step *s = p->s;
	p->x = NULL;
	p->done = !e;
	if (e) {
		end(s->o, e);
		return;
	}
	s->left++;                              /* so that the step outlives what follows */
	one_less(s);
	try_sum(s);
	one_less(s);
}

/* ---- steps ---- */

static struct step *step_new(struct op *o, float *x, size_t len)
{
	struct step *s = xcalloc(1, sizeof *s);
	*s = (struct step){ .o = o, .x = x, .len = len, .number = o->number++ };
	s->in = xcalloc(4 * (size_t)o->n, sizeof *s->in);
	s->out = s->in + o->n;
	s->result_in = s->out + o->n;
	s->result_out = s->result_in + o->n;
	for (uint32_t i = 0; i < 4 * o->n; i++)
		s->in[i].s = s;
	list_push(&o->steps, &s->link);
	s->left = 1;                            /* until it has begun whole */
	return s;
}

static void exchange(struct step *s)
{
	struct op *o = s->o;
	size_t n = s->hi - s->lo, lo = 0, hi = s->len;
	for (uint32_t k = 1; k < o->n; k++) {   /* everybody begins with another */
		uint32_t i = (o->me + k) % o->n;
		if (!s->direct)
			coll_part(o->n, i, s->len, &lo, &hi);
		if (n)
			receive(s, &s->in[i], 'x', i, s->raw + i * n, n, piece_over);
		if (hi > lo)
			give(s, &s->out[i], 'x', i, s->x + lo, hi - lo, piece_over);
		if (!s->direct && o->gather && hi > lo)         /* my own part of it has left long before that comes */
			receive(s, &s->result_in[i], 'r', i, s->x + lo, hi - lo, result_over);
	}
	s->sums = true;
	s->left++;
	try_sum(s);
}

static int reduce_step(struct op *o, float *x, size_t len, bool direct, struct err *e)
{
	struct step *s = step_new(o, x, len);
	s->direct = direct;
	s->hi = len;
	if (!direct)
		coll_part(o->n, o->me, len, &s->lo, &s->hi);
	s->raw_bytes = (s->hi - s->lo) * sizeof(float) * o->n;
	s->raw = s->raw_bytes ? raw_get(o->c, s->raw_bytes) : NULL;
	if (s->raw_bytes && !s->raw)
		return err_set(e, ERR_NOMEM, "a collective of %zu floats over %u members: no memory for %zu bytes", o->len,
			o->n, s->raw_bytes);
	exchange(s);
	one_less(s);
	return 0;
}

static void begin_steps(struct op *o)
{
	size_t most = (size_t)STEP * o->n;
	struct err e;
	while (!o->ended && o->at < o->len && list_len(&o->steps) < AHEAD) {
		/* The parts of a scattered vector are parts of the whole: it is one step. */
		size_t len = o->gather && o->len - o->at > most ? most : o->len - o->at;
		float *x = o->x + o->at;
		o->at += len;
		if (reduce_step(o, x, len, o->gather && o->len * sizeof(float) <= DIRECT, &e)) {
			end(o, &e);
			return;
		}
	}
}

/* ---- what callers ask for ---- */

static struct op *op_new(struct coll *c, const struct coll_group *g, uint64_t seq, float *x, size_t len,
	uint64_t deadline_us, coll_done_fn *done, void *arg)
{
	struct op *o = xcalloc(1, sizeof *o);
	*o = (struct op){ .c = c, .tag = g->tag, .n = g->n, .me = g->me, .seq = seq, .deadline_us = deadline_us, .x = x,
		.len = len, .done = done, .arg = arg };
	o->later = (struct timer){ .fire = later, .name = "coll.end" };
	o->members = xmemdup(g->members, g->n * sizeof *g->members);
	list_init(&o->steps);
	list_push(&c->open, &o->link);
	return o;
}

static void reduce(struct op *o, enum coll_op op, bool gather)
{
	o->op = op;
	o->gather = gather;
	if (o->n == 1 || !o->len)
		end(o, NULL);
	else
		begin_steps(o);
}

void coll_allreduce(struct coll *c, const struct coll_group *g, uint64_t seq, float *x, size_t len, enum coll_op op,
	uint64_t deadline_us, coll_done_fn *done, void *arg)
{
	reduce(op_new(c, g, seq, x, len, deadline_us, done, arg), op, true);
}

void coll_reduce_scatter(struct coll *c, const struct coll_group *g, uint64_t seq, float *x, size_t len,
	enum coll_op op, uint64_t deadline_us, coll_done_fn *done, void *arg)
{
	reduce(op_new(c, g, seq, x, len, deadline_us, done, arg), op, false);
}

/* The others have only transfers: one step, which ends with the last of them. */
static struct step *only_step(struct op *o)
{
	o->at = o->len;
	return step_new(o, o->x, o->len);
}

void coll_allgather(struct coll *c, const struct coll_group *g, uint64_t seq, float *x, size_t len,
	uint64_t deadline_us, coll_done_fn *done, void *arg)
{
	struct op *o = op_new(c, g, seq, x, len, deadline_us, done, arg);
	struct step *s = only_step(o);
	coll_part(o->n, o->me, len, &s->lo, &s->hi);
	for (uint32_t k = 1; k < o->n; k++) {
		uint32_t i = (o->me + k) % o->n;
		size_t lo, hi;
		coll_part(o->n, i, len, &lo, &hi);
		if (hi > lo)
			receive(s, &s->result_in[i], 'g', i, x + lo, hi - lo, result_over);
		if (s->hi > s->lo)
			give(s, &s->result_out[i], 'g', i, x + s->lo, s->hi - s->lo, result_over);
	}
	one_less(s);
}

void coll_broadcast(struct coll *c, const struct coll_group *g, uint64_t seq, uint32_t root, float *x, size_t len,
	uint64_t deadline_us, coll_done_fn *done, void *arg)
{
	struct op *o = op_new(c, g, seq, x, len, deadline_us, done, arg);
	struct step *s = only_step(o);
	for (uint32_t i = 0; i < o->n && o->me == root; i++)
		if (i != root)
			give(s, &s->out[i], 'b', i, x, len, result_over);
	if (o->me != root)
		receive(s, &s->in[root], 'b', root, x, len, result_over);
	one_less(s);
}

void coll_alltoall(struct coll *c, const struct coll_group *g, uint64_t seq, const float *x, size_t len, float *y,
	uint64_t deadline_us, coll_done_fn *done, void *arg)
{
	struct op *o = op_new(c, g, seq, y, len, deadline_us, done, arg);
	struct step *s = only_step(o);
	coll_part(o->n, o->me, len, &s->lo, &s->hi);
	size_t mine = s->hi - s->lo;
	if (mine)
		memcpy(y + o->me * mine, x + s->lo, mine * sizeof *x);
	for (uint32_t k = 1; k < o->n; k++) {
		uint32_t i = (o->me + k) % o->n;
		size_t lo, hi;
		coll_part(o->n, i, len, &lo, &hi);
		receive(s, &s->in[i], 'a', i, y + i * mine, mine, result_over);
		give(s, &s->out[i], 'a', i, x + lo, hi - lo, result_over);
	}
	one_less(s);
}

void coll_send(struct coll *c, const struct coll_group *g, uint64_t seq, uint32_t to, const float *x, size_t len,
	uint64_t deadline_us, coll_done_fn *done, void *arg)
{
	struct step *s = only_step(op_new(c, g, seq, NULL, len, deadline_us, done, arg));
	give(s, &s->out[to], 'p', to, x, len, result_over);
	one_less(s);
}

void coll_recv(struct coll *c, const struct coll_group *g, uint64_t seq, uint32_t from, float *x, size_t len,
	uint64_t deadline_us, coll_done_fn *done, void *arg)
{
	struct step *s = only_step(op_new(c, g, seq, x, len, deadline_us, done, arg));
	receive(s, &s->in[from], 'p', from, x, len, result_over);
	one_less(s);
}

void coll_barrier(struct coll *c, const struct coll_group *g, uint64_t seq, uint64_t deadline_us, coll_done_fn *done,
	void *arg)
{
	coll_alltoall(c, g, seq, NULL, 0, NULL, deadline_us, done, arg);
}
