/* How hauls end and work in the lane; SUM, GATHER and SCATTER of strict groups: SUM is the collective of avg/coll.h,
 * the others are transfers of parts. All members, or an error. */
#include "exec/carry_int.h"
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"

static void pieces_cancel(struct haul *h)
{
	for (uint32_t k = 0; k < h->npieces; k++) {
		if (h->piece[k].x)
			xfer_cancel(h->piece[k].x);
		h->piece[k].x = NULL;
		if (h->piece[k].peer)
			net_care(h->c->c.net, h->piece[k].peer, -1);
		h->piece[k].peer = NULL;
	}
}

/* Nothing comes or goes for it any more. */
void haul_let_go(struct haul *h)
{
	pieces_cancel(h);
	for (uint32_t k = 0; k < h->nvalues; k++)
		if (h->value[k].h)
			value_cancel(&h->value[k]);
	if (h->any)
		any_leave(h);
}

void haul_settle(struct haul *h, const struct err *e)
{
	if (e && !h->over)
		h->error = *e;
	h->over = true;
	haul_let_go(h);
	if (!h->working && !h->summing)         /* else the end of that comes back here */
		env_after(h->c->c.env, &h->ended, 1);
}

static void work_run(struct job *j)
{
	struct haul *h = container_of(j, struct haul, job);

	h->run(h);
}

static void work_done(struct job *j)
{
	struct haul *h = container_of(j, struct haul, job);

	h->working = false;
	if (h->over || h->cancelled)
		haul_settle(h, NULL);
	else
		h->after(h);
}

void haul_work(struct haul *h, size_t bytes, void (*run)(struct haul *h), void (*after)(struct haul *h))
{
	h->working = true;
	h->run = run;
	h->after = after;
	h->job = (struct job){ .name = "carry", .lane = env_lane(h->c->c.env, "reduce"), .run = work_run, .done = work_done,
		.cost_us = bytes / 2000 };
	if (bytes > CARRY_FEW) {
		env_work(h->c->c.env, &h->job);
		return;
	}
	work_run(&h->job);
	work_done(&h->job);
}

/* --- groups */

int haul_members(struct haul *h, bool within, struct err *e)
{
	const struct id *self = net_self(h->c->c.net);
	const struct plan_group *g = h->n.group;

	h->me = PLAN_NONE;
	h->member = xcalloc(g->n + 1, sizeof(*h->member));
	for (uint32_t k = 0; k < g->n; k++) {
		const struct id *id = &h->n.plan->member[g->member[k].peer];
		uint32_t j = 0;

		while (j < h->nmembers && !id_eq(h->member[j], id))
			j++;
		if (j < h->nmembers)
			continue;
		if (id_eq(id, self))
			h->me = h->nmembers;
		h->member[h->nmembers++] = id;
	}
	return h->me != PLAN_NONE || !within ? 0 : err_set(e, ERR_INVALID, "this peer is not in group %s", g->name);
}

void haul_care(struct haul *h, int delta)
{
	for (uint32_t k = 0; k < h->nmembers; k++)
		if (k != h->me)
			net_care(h->c->c.net, h->member[k], delta);
	h->cared = delta > 0;
}

static void one_less(struct haul *h);

static void piece_over(void *arg, struct xfer *x, const struct err *e)
{
	struct piece *p = arg;
	struct haul *h = p->h;
	struct err why;
	char who[9];

	p->x = NULL;
	if (e) {
		why = *e;
		(void)err_wrap(&why, "%s of %s (index %lld) with peer %s", plan_kind_name(h->n.instr->kind), h->n.tag,
			(long long)h->n.index, p->peer ? id_short(p->peer, who) : "?");
		haul_settle(h, &why);
		return;
	}
	net_care(h->c->c.net, p->peer, -1);
	p->peer = NULL;
	one_less(h);
}

static void move(struct haul *h, bool send, const struct id *peer, void *p, size_t len)
{
	const struct id *self = net_self(h->c->c.net);
	struct piece *q = &h->piece[h->npieces++];
	struct tag_of t = { .what = 'd', .kind = h->n.instr->kind, .group = h->n.group->name, .stream = h->n.stream,
		.index = h->n.index, .from = send ? self : peer, .to = send ? peer : self };
	struct id tag;

	carry_tag(h, &t, &tag);
	*q = (struct piece){ .h = h, .peer = peer };
	net_care(h->c->c.net, peer, 1);
	h->left++;
	q->x = send ? xfer_send(h->c->c.chunks, peer, &tag, p, len, carry_class(h), h->deadline_us, piece_over, q) :
		xfer_recv(h->c->c.chunks, peer, &tag, p, len, h->deadline_us, piece_over, q);
}

static size_t part_lo(const struct haul *h, size_t floats, uint32_t i)
{
	return floats / h->nmembers * i + (i < floats % h->nmembers ? i : floats % h->nmembers);
}

/* Whole and part of GATHER (out, in) and SCATTER (in, out) fit together? */
static int parts_fit(const struct haul *h, const struct exec_span *whole, const struct exec_span *part, struct err *e)
{
	size_t n = whole->bytes / sizeof(float), mine = part_lo(h, n, h->me + 1) - part_lo(h, n, h->me);

	if (whole->bytes % sizeof(float) == 0 && part->bytes == mine * sizeof(float))
		return 0;
	return err_set(e, ERR_INVALID, "%s has %zu bytes; part %u of %u of %s (%zu bytes) has %zu", part->buffer,
		part->bytes, h->me, h->nmembers, whole->buffer, whole->bytes, mine * sizeof(float));
}

/* --- the lane's work: copies and sums */

static void copy_all(struct haul *h)
{
	memcpy(h->out.p, h->in.p, h->in.bytes);
}

static void copy_part(struct haul *h)
{
	memmove((float *)h->out.p + part_lo(h, h->out.bytes / sizeof(float), h->me), h->in.p, h->in.bytes);
}

static void sum_parts(struct haul *h)
{
	size_t n = h->in.bytes / sizeof(float), lo = part_lo(h, n, h->me), len = part_lo(h, n, h->me + 1) - lo;
	const float *mine = (const float *)h->in.p + lo;
	float *out = h->out.p;

	for (size_t k = 0; k < len; k++) {
		float v = h->me ? h->raw[k] : mine[k];

		for (uint32_t i = 1; i < h->nmembers; i++) {
			float x = i == h->me ? mine[k] : h->raw[i * len + k];

			v = h->n.group->op == PLAN_OP_MAX ? (v != v || v > x ? v : x) : v + x;
		}
		out[k] = h->n.group->op == PLAN_OP_MEAN ? v / (float)h->nmembers : v;
	}
}

static void over(struct haul *h)
{
	haul_settle(h, NULL);
}

/* The last transfer of a SCATTER is followed by the sum; anything else is then over. */
static void one_less(struct haul *h)
{
	if (--h->left)
		return;
	if (h->raw)
		haul_work(h, h->raw_bytes, sum_parts, over);
	else
		haul_settle(h, NULL);
}

/* --- kinds */

static void summed(void *arg, const struct err *e)
{
	struct haul *h = arg;
	struct err why;

	h->summing = false;
	if (e) {
		why = *e;
		(void)err_wrap(&why, "SUM of %s (index %lld) in group %s", h->n.tag, (long long)h->n.index, h->n.group->name);
	}
	haul_settle(h, e ? &why : NULL);
}

static void allreduce(struct haul *h)
{
	static const enum coll_op op[] = { [PLAN_OP_SUM] = COLL_SUM, [PLAN_OP_MAX] = COLL_MAX, [PLAN_OP_MEAN] = COLL_MEAN };
	struct id *ids = xcalloc(h->nmembers, sizeof(*ids));
	struct coll_group g = { .members = ids, .n = h->nmembers, .me = h->me };
	struct tag_of t = { .what = 's', .kind = PLAN_SUM, .group = h->n.group->name, .stream = h->n.stream,
		.index = h->n.index };

	for (uint32_t k = 0; k < h->nmembers; k++)
		ids[k] = *h->member[k];
	carry_tag(h, &t, &g.tag);
	h->summing = true;
	coll_allreduce(h->c->coll, &g, (uint64_t)h->n.index, COLL_F32, h->out.p, h->out.bytes / sizeof(float),
		op[h->n.group->op], h->deadline_us, summed, h);
	free(ids);
}

static void gather(struct haul *h)
{
	size_t n = h->out.bytes / sizeof(float);

	h->piece = xcalloc(2 * (size_t)h->nmembers, sizeof(*h->piece));
	h->left = 1;                            /* my own part */
	for (uint32_t k = 0; k < h->nmembers; k++) {
		size_t lo = part_lo(h, n, k), len = part_lo(h, n, k + 1) - lo;

		if (k != h->me && h->in.bytes)
			move(h, true, h->member[k], h->in.p, h->in.bytes);
		if (k != h->me && len)
			move(h, false, h->member[k], (float *)h->out.p + lo, len * sizeof(float));
	}
	haul_work(h, h->in.bytes, copy_part, one_less);
}

static int scatter(struct haul *h, struct err *e)
{
	size_t n = h->in.bytes / sizeof(float), mine = h->out.bytes;

	h->raw_bytes = mine * h->nmembers + 1;
	h->raw = big_alloc(h->raw_bytes);
	if (!h->raw)
		return err_set(e, ERR_NOMEM, "no memory for %zu bytes of other members' parts", h->raw_bytes);
	h->piece = xcalloc(2 * (size_t)h->nmembers, sizeof(*h->piece));
	h->left = 1;
	for (uint32_t k = 0; k < h->nmembers; k++) {
		size_t lo = part_lo(h, n, k), len = part_lo(h, n, k + 1) - lo;

		if (k != h->me && len)
			move(h, true, h->member[k], (float *)h->in.p + lo, len * sizeof(float));
		if (k != h->me && mine)
			move(h, false, h->member[k], (char *)h->raw + k * mine, mine);
	}
	one_less(h);
	return 0;
}

int coll_begin(struct haul *h, struct err *e)
{
	const struct plan *p = h->n.plan;
	const struct plan_instr *i = h->n.instr;

	if (!i->nin || !i->nout || p->buf[i->in[0].buf].dtype != PLAN_F32 || p->buf[i->out[0].buf].dtype != PLAN_F32)
		return err_set(e, ERR_INVALID, "a collective takes one buffer of floats and makes one");
	if (haul_members(h, true, e) < 0)
		return -1;
	if (i->kind == PLAN_GATHER && parts_fit(h, &h->out, &h->in, e) == 0) {
		gather(h);
		return 0;
	}
	if (i->kind == PLAN_SCATTER && parts_fit(h, &h->in, &h->out, e) == 0)
		return scatter(h, e);
	if (i->kind != PLAN_SUM)
		return -1;
	if (h->in.bytes != h->out.bytes || h->in.bytes % sizeof(float))
		return err_set(e, ERR_INVALID, "%s has %zu bytes and %s has %zu", h->in.buffer, h->in.bytes, h->out.buffer,
			h->out.bytes);
	haul_care(h, 1);
	if (h->in.p == h->out.p)
		allreduce(h);
	else
		haul_work(h, h->in.bytes, copy_all, allreduce);
	return 0;
}
