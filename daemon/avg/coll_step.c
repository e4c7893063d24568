/* Steps of a collective: transfers between pairs, perhaps a sum in between, and transfers of results. Small vectors are
 * exchanged directly (one message each way, latency first); larger ones go through a butterfly: member j sums part j in
 * member order and sends it to all, or to the one that asked: each byte crosses twice and whoever has a result has the
 * same bytes. Long vectors are cut into steps, a few of which are under way at once: while one is summed the next is on
 * its way, and the memory for what others send stays small. */
#include <stdlib.h>
#include <string.h>
#include "avg/coll_int.h"
#include "common/buf.h"
#include "common/mem.h"

#define FEW 65536                               /* bytes: below it the sum stays on the loop */
#define STEP (1u << 20)                         /* bytes of a part in one step */
#define AHEAD 4                                 /* steps under way at once */

/* ---- memory ---- */

static void *raw_get(struct coll *c, size_t bytes)
{
	for (int i = 0; i < COLL_SPARES; i++)
		if (c->spare[i].p && c->spare[i].bytes == bytes) {
			void *p = c->spare[i].p;
			c->spare[i].p = NULL;
			return p;
		}
	return big_alloc(bytes);
}

static void raw_put(struct coll *c, void *p, size_t bytes)
{
	int to = 0;
	while (to < COLL_SPARES - 1 && c->spare[to].p)
		to++;
	big_free(c->spare[to].p, c->spare[to].bytes);
	c->spare[to] = (struct spare){ p, bytes };
}

void coll_step_cancel(struct step *s)
{
	for (uint32_t i = 0; i < 4 * s->o->n; i++)
		if (s->in[i].x) {
			xfer_cancel(s->in[i].x);
			s->in[i].x = NULL;
		}
}

void coll_step_free(struct step *s)
{
	coll_step_cancel(s);
	list_del(&s->link);
	if (s->raw_bytes > (size_t)STEP * s->o->n)      /* a vector in one step: nobody knows whether there is another */
		big_free(s->raw, s->raw_bytes);
	else if (s->raw)
		raw_put(s->o->c, s->raw, s->raw_bytes);
	free(s->in);
	free(s);
}

void coll_step_less(struct step *s)
{
	struct op *o = s->o;
	if (--s->left || o->ended)
		return;
	coll_step_free(s);
	if (o->at < o->len)
		coll_begin_steps(o);
	else if (list_empty(&o->steps))
		coll_end(o, NULL);
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

static void receive(struct step *s, struct piece *p, char what, uint32_t from, void *to, size_t n, xfer_done_fn *over)
{
	struct op *o = s->o;
	struct id tag;
	tag_of(s, what, from, o->me, &tag);
	s->left++;
	p->x = xfer_recv(o->c->chunks, &o->members[from], &tag, to, n * o->size, o->deadline_us, over, p);
}

static void give(struct step *s, struct piece *p, char what, uint32_t to, const void *from, size_t n,
	xfer_done_fn *over)
{
	struct op *o = s->o;
	struct id tag;
	tag_of(s, what, o->me, to, &tag);
	s->left++;
	p->x = xfer_send(o->c->chunks, &o->members[to], &tag, from, n * o->size, o->cls, o->deadline_us, over, p);
}

static void failed(const struct piece *p, const struct err *e)
{
	const struct step *s = p->s;
	struct err why = *e;
	char who[9];
	(void)err_wrap(&why, "peer %s", id_short(&s->o->members[(size_t)(p - s->in) % s->o->n], who));
	coll_end(s->o, &why);
}

static void result_over(void *arg, struct xfer *x, const struct err *e)
{
	struct piece *p = arg;
	p->x = NULL;
	e ? failed(p, e) : coll_step_less(p->s);
}

void coll_receive(struct step *s, struct piece *p, char what, uint32_t from, void *to, size_t n)
{
	receive(s, p, what, from, to, n, result_over);
}

void coll_give(struct step *s, struct piece *p, char what, uint32_t to, const void *from, size_t n)
{
	give(s, p, what, to, from, n, result_over);
}

/* ---- the sum of my part ---- */

static const void *of_member(const void *arg, uint32_t i)
{
	const struct step *s = arg;
	const struct op *o = s->o;
	return i == o->me ? s->x + s->lo * o->size : s->raw + i * (s->hi - s->lo) * o->size;
}

static void sum_run(struct job *j)
{
	struct step *s = container_of(j, struct step, job);
	coll_sum(s->o->type, s->o->op, s->hi - s->lo, s->o->n, of_member, s, s->sum);
}

/* Does member i end with what others have summed? */
static bool collects(const struct op *o, uint32_t i)
{
	return o->whose == COLL_ALL || (o->whose == COLL_ROOT && i == o->root);
}

static void send_results(struct step *s)
{
	struct op *o = s->o;
	for (uint32_t i = 0; i < o->n && !s->direct; i++)
		if (i != o->me && s->hi > s->lo && collects(o, i))
			give(s, &s->result_out[i], 'r', i, s->sum, s->hi - s->lo, result_over);
}

static void sum_done(struct job *j)
{
	struct step *s = container_of(j, struct step, job);
	s->summing = false;
	if (s->o->ended) {
		coll_over(s->o);
		return;
	}
	s->summed = true;
	send_results(s);
	coll_step_less(s);
}

/* In a direct exchange my own vector must be with everybody before the sum overwrites it. */
static void try_sum(struct step *s)
{
	struct op *o = s->o;
	for (uint32_t i = 0; i < o->n; i++)
		if (i != o->me && s->hi > s->lo && (!s->in[i].done || (s->direct && collects(o, i) && !s->out[i].done)))
			return;
	if (!s->sums || s->summing || s->summed || o->ended)
		return;
	s->summing = true;
	size_t bytes = (s->hi - s->lo) * o->size * o->n;
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
		failed(p, e);
		return;
	}
	s->left++;                              /* so that the step outlives what follows */
	coll_step_less(s);
	try_sum(s);
	coll_step_less(s);
}

/* ---- steps ---- */

static struct step *step_new(struct op *o, char *x, size_t len)
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

struct step *coll_only_step(struct op *o)
{
	o->at = o->len;
	return step_new(o, o->x, o->len);
}

/* What member i sums of the step. */
static void part_of(const struct step *s, uint32_t i, size_t *ret_lo, size_t *ret_hi)
{
	*ret_lo = *ret_hi = 0;
	if (!s->direct)
		coll_part(s->o->n, i, s->len, ret_lo, ret_hi);
	else if (collects(s->o, i))
		*ret_hi = s->len;
}

static void exchange(struct step *s)
{
	struct op *o = s->o;
	size_t n = s->hi - s->lo, lo, hi;
	for (uint32_t k = 1; k < o->n; k++) {   /* everybody begins with another */
		uint32_t i = (o->me + k) % o->n;
		part_of(s, i, &lo, &hi);
		if (n)
			receive(s, &s->in[i], 'x', i, s->raw + i * n * o->size, n, piece_over);
		if (hi > lo)
			give(s, &s->out[i], 'x', i, s->x + lo * o->size, hi - lo, piece_over);
		if (!s->direct && collects(o, o->me) && hi > lo)        /* my own part of it has left long before that comes */
			receive(s, &s->result_in[i], 'r', i, s->x + lo * o->size, hi - lo, result_over);
	}
	s->sums = true;
	s->left++;
	try_sum(s);
}

static int reduce_step(struct op *o, char *x, size_t len, bool direct, struct err *e)
{
	struct step *s = step_new(o, x, len);
	s->direct = direct;
	part_of(s, o->me, &s->lo, &s->hi);
	s->raw_bytes = (s->hi - s->lo) * o->size * o->n;
	s->raw = s->raw_bytes ? raw_get(o->c, s->raw_bytes) : NULL;
	if (s->raw_bytes && !s->raw)
		return err_set(e, ERR_NOMEM, "a collective of %zu elements over %u members: no memory for %zu bytes", o->len,
			o->n, s->raw_bytes);
	bool keeps = o->whose == COLL_ROOT && o->me != o->root; /* the place of mine among what the others sent is free */
	s->sum = keeps && s->raw ? s->raw + o->me * (s->hi - s->lo) * o->size : s->x + s->lo * o->size;
	if (o->whose == COLL_PART)
		s->sum = o->out;
	exchange(s);
	coll_step_less(s);
	return 0;
}

void coll_begin_steps(struct op *o)
{
	size_t most = STEP / o->size * o->n;
	struct err e;
	while (!o->ended && o->at < o->len && list_len(&o->steps) < AHEAD) {
		/* The parts of a scattered vector are parts of the whole: it is one step. */
		size_t len = o->whose != COLL_PART && o->len - o->at > most ? most : o->len - o->at;
		char *x = o->x + o->at * o->size;
		o->at += len;
		if (reduce_step(o, x, len, o->whose != COLL_PART && o->len * o->size <= COLL_DIRECT, &e)) {
			coll_end(o, &e);
			return;
		}
	}
}
