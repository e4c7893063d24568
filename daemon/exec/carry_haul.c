/* What all hauls have: how they end, work in the lane, the members of their group, the names of what they carry. It
 * calls none of those who carry. */
#include "exec/carry_int.h"
#include <stdlib.h>
#include "common/buf.h"
#include "common/mem.h"

void haul_settle(struct haul *h, const struct err *e)
{
	if (e && !h->over)
		h->error = *e;
	h->over = true;
	if (!h->working && !h->summing)         /* else the end of that comes back here */
		env_after(h->c->c.env, &h->ended, 1);
}

bool haul_works(struct haul *h, size_t bytes, void (*run)(struct job *j), void (*done)(struct job *j))
{
	h->working = true;
	h->job = (struct job){ .name = "carry", .lane = env_lane(h->c->c.env, "reduce"), .run = run, .done = done,
		.cost_us = bytes / 2000 };
	if (bytes > CARRY_FEW)
		env_work(h->c->c.env, &h->job);
	return bytes > CARRY_FEW;
}

bool haul_worked(struct haul *h)
{
	h->working = false;
	if (!h->over && !h->cancelled)
		return true;
	haul_settle(h, NULL);
	return false;
}

void haul_done(struct job *j)
{
	struct haul *h = haul_of(j);

	if (haul_worked(h))
		haul_settle(h, NULL);
}

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

void carry_tag(const struct haul *h, const struct tag_of *t, struct id *ret)
{
	struct buf b = { 0 };

	buf_put(&b, h->c->c.run.b, 32);
	buf_u64(&b, h->n.generation);
	buf_u8(&b, (uint8_t)t->what);
	buf_u8(&b, (uint8_t)t->kind);
	buf_str(&b, t->group);
	buf_str(&b, h->n.tag);
	buf_u32(&b, t->stream);
	buf_u64(&b, (uint64_t)t->index);
	if (t->from) {
		buf_put(&b, t->from->b, 32);
		buf_put(&b, t->to->b, 32);
	}
	id_of(ret, b.p, b.len);
	buf_free(&b);
}

enum net_class carry_class(const struct haul *h)
{
	const struct plan_instr *i = h->n.instr;

	switch (h->n.plan->buf[i->nin ? i->in[0].buf : i->out[0].buf].class) {
	case PLAN_WEIGHT: return CLASS_weight;
	case PLAN_WEIGHT_GRAD: return CLASS_weight_grad;
	case PLAN_ACTIVATION_GRAD: return CLASS_activation_grad;
	case PLAN_OPTIMIZER: return CLASS_optimizer;
	case PLAN_BATCH: return CLASS_batch;
	case PLAN_ACTIVATION: return CLASS_activation;
	default: return CLASS_control;
	}
}
