/* How hauls end and work in the lane; SUM, GATHER and SCATTER of strict groups, which are collectives of avg/coll.h.
 * All members, or an error. */
#include "exec/carry_int.h"
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"

/* Nothing comes or goes for it any more. */
void haul_let_go(struct haul *h)
{
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
	if (h->over || h->cancelled || !h->after)
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
	bool *has = xcalloc(h->n.plan->nmembers + 1, sizeof(*has));

	h->me = PLAN_NONE;
	h->member = xcalloc(g->n + 1, sizeof(*h->member));
	h->rank = xcalloc(g->n + 1, sizeof(*h->rank));
	for (uint32_t k = 0; k < g->n; k++) {
		uint32_t rank = g->member[k].peer;
		const struct id *id = &h->n.plan->member[rank];

		if (has[rank])
			continue;
		has[rank] = true;
		if (id_eq(id, self))
			h->me = h->nmembers;
		h->rank[h->nmembers] = rank;
		h->member[h->nmembers++] = id;
	}
	free(has);
	return h->me != PLAN_NONE || !within ? 0 : err_set(e, ERR_INVALID, "this peer is not in group %s", g->name);
}

void haul_care(struct haul *h, int delta)
{
	for (uint32_t k = 0; k < h->nmembers; k++)
		if (k != h->me)
			net_care(h->c->c.net, h->member[k], delta);
	h->cared = delta > 0;
}

/* --- collectives */

static int fits(const struct haul *h, struct err *e)
{
	bool gathers = h->n.instr->kind == PLAN_GATHER;
	const struct exec_span *whole = gathers ? &h->out : &h->in, *part = gathers ? &h->in : &h->out;
	size_t lo = 0, hi = whole->bytes / sizeof(float);

	if (h->n.instr->kind != PLAN_SUM)
		coll_part(h->nmembers, h->me, hi, &lo, &hi);
	if (whole->bytes % sizeof(float) == 0 && part->bytes == (hi - lo) * sizeof(float))
		return 0;
	if (h->n.instr->kind == PLAN_SUM)
		return err_set(e, ERR_INVALID, "%s has %zu bytes and %s has %zu", h->in.buffer, h->in.bytes, h->out.buffer,
			h->out.bytes);
	return err_set(e, ERR_INVALID, "%s has %zu bytes; part %u of %u of %s (%zu bytes) has %zu", part->buffer,
		part->bytes, h->me, h->nmembers, whole->buffer, whole->bytes, (hi - lo) * sizeof(float));
}

/* To where the collective works: all of SUM, my part of GATHER. */
static void copy_in(struct haul *h)
{
	size_t lo = 0, hi;

	if (h->n.instr->kind == PLAN_GATHER)
		coll_part(h->nmembers, h->me, h->out.bytes / sizeof(float), &lo, &hi);
	memmove((float *)h->out.p + lo, h->in.p, h->in.bytes);
}

static void ended(void *arg, const struct err *e)
{
	struct haul *h = arg;
	struct err why;

	h->summing = false;
	if (e) {
		why = *e;
		(void)err_wrap(&why, "%s of %s (index %lld) in group %s", plan_kind_name(h->n.instr->kind), h->n.tag,
			(long long)h->n.index, h->n.group->name);
	}
	haul_settle(h, e ? &why : NULL);
}

static void collect(struct haul *h)
{
	static const enum coll_op ops[] = { [PLAN_OP_SUM] = COLL_SUM, [PLAN_OP_MAX] = COLL_MAX,
		[PLAN_OP_MEAN] = COLL_MEAN };
	enum plan_kind kind = h->n.instr->kind;
	enum coll_op op = ops[h->n.group->op];
	size_t in = h->in.bytes / sizeof(float), out = h->out.bytes / sizeof(float);
	uint64_t seq = (uint64_t)h->n.index;
	struct id *ids = xcalloc(h->nmembers, sizeof(*ids));
	struct coll_group g = { .members = ids, .n = h->nmembers, .me = h->me, .cls = carry_class(h) };
	struct tag_of t = { .what = 's', .kind = kind, .group = h->n.group->name, .stream = h->n.stream,
		.index = h->n.index };

	for (uint32_t k = 0; k < h->nmembers; k++)
		ids[k] = *h->member[k];
	carry_tag(h, &t, &g.tag);
	h->summing = true;
	if (kind == PLAN_GATHER)
		coll_allgather(h->c->coll, &g, seq, COLL_F32, h->out.p, out, h->deadline_us, ended, h);
	else if (kind == PLAN_SCATTER)
		coll_reduce_scatter(h->c->coll, &g, seq, COLL_F32, h->in.p, in, op, h->out.p, h->deadline_us, ended, h);
	else
		coll_allreduce(h->c->coll, &g, seq, COLL_F32, h->out.p, out, op, h->deadline_us, ended, h);
	free(ids);
}

int coll_begin(struct haul *h, struct err *e)
{
	const struct plan *p = h->n.plan;
	const struct plan_instr *i = h->n.instr;

	if (!i->nin || !i->nout || p->buf[i->in[0].buf].dtype != PLAN_F32 || p->buf[i->out[0].buf].dtype != PLAN_F32)
		return err_set(e, ERR_INVALID, "a collective takes one buffer of floats and makes one");
	if (haul_members(h, true, e) < 0 || fits(h, e) < 0)
		return -1;
	haul_care(h, 1);
	if (h->nmembers == 1)
		haul_work(h, h->in.bytes, copy_in, NULL);
	else if (h->in.p == h->out.p || i->kind == PLAN_SCATTER)
		collect(h);
	else
		haul_work(h, h->in.bytes, copy_in, collect);
	return 0;
}
