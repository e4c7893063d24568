/* SUM, GATHER and SCATTER of strict groups, which are collectives of avg/coll.h. All members, or an error. */
#include "exec/carry_int.h"
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"

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
static void copy_in(struct job *j)
{
	struct haul *h = haul_of(j);
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

static void copied(struct job *j)
{
	struct haul *h = haul_of(j);

	if (haul_worked(h))
		collect(h);
}

int coll_begin(struct haul *h, struct err *e)
{
	const struct plan *p = h->n.plan;
	const struct plan_instr *i = h->n.instr;
	void (*then)(struct job *j);

	if (!i->nin || !i->nout || p->buf[i->in[0].buf].dtype != PLAN_F32 || p->buf[i->out[0].buf].dtype != PLAN_F32)
		return err_set(e, ERR_INVALID, "a collective takes one buffer of floats and makes one");
	if (haul_members(h, true, e) < 0 || fits(h, e) < 0)
		return -1;
	haul_care(h, 1);
	then = h->nmembers == 1 ? haul_done : copied;
	if (h->nmembers > 1 && (h->in.p == h->out.p || i->kind == PLAN_SCATTER)) {
		collect(h);
	} else {
		HAUL_WORK(h, h->in.bytes, copy_in, then);
	}
	return 0;
}
