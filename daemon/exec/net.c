/* What the owner does for the executor: LOAD, and everything that leaves the peer. Answers (exec.c)
 * may come at once or later. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "exec/batch.h"
#include "exec/int.h"

void op_loaded(struct op *o, struct batch *b)
{
	if (b) {
		o->out[0]->batch = b;
		o->x->v.bytes[PLAN_BATCH] += o->prog->plan.buf[o->i->out[0].buf].bytes;
	}
	o->x->v.load_wait_us += env_now(o->x->c.env) - o->begin_us;
}

static void spans(const struct op *o, bool out, struct exec_span *ret)
{
	const struct plan *p = &o->prog->plan;
	uint32_t n = out ? o->i->nout : o->i->nin;

	for (uint32_t k = 0; k < n; k++) {
		const struct plan_ref *r = out ? &o->i->out[k] : &o->i->in[k];
		const struct token_bind *b = out ? &o->run->out[k] : &o->run->in[k];
		const struct block *m = out ? o->out[k] : o->in[k];

		ret[k] = (struct exec_span){ .buffer = p->buf[r->buf].name, .p = m ? m->p : NULL, .bytes = p->buf[r->buf].bytes,
			.key = b->key };
	}
}

/* Bytes by class of what is given to the network (instrument T4). */
static void count_bytes(struct op *o)
{
	const struct plan *p = &o->prog->plan;
	const struct plan_instr *i = o->i;
	bool in = i->nin > 0;

	for (uint32_t k = 0; k < (in ? i->nin : i->nout); k++) {
		const struct plan_buf *b = &p->buf[in ? i->in[k].buf : i->out[k].buf];

		o->x->v.bytes[b->class] += b->bytes;
	}
}

static void ask_net(struct op *o)
{
	const struct plan *p = &o->prog->plan;
	const struct plan_instr *i = o->i;
	struct exec_span *in = xcalloc(i->nin + i->nout + 1, sizeof(*in)), *out = in + i->nin;
	struct exec_net n = { .plan = p, .instr = i, .generation = p->generation, .stream = o->stream,
		.index = o->index, .version = o->run->version };
	struct exec *x = o->x;

	spans(o, false, in);
	spans(o, true, out);
	if (i->with == PLAN_PEER)
		n.peer = &p->member[i->peer];
	n.tag = plan_label(p, i) ? plan_label(p, i) : "";
	n.group = i->group != PLAN_NONE ? &p->group[i->group] : NULL;
	n.key = i->nin ? in[0].key : i->nout ? out[0].key : 0;
	if (i->with == PLAN_REPLY && i->nin) {
		const struct token_bind *from = &o->run->in[i->nin - 1];
		const struct token_slot *s = tokens_slot(o->prog->tokens, from->stream, from->buf, from->slot);

		n.to = s->from;
		n.nto = s->nfrom;
		n.parts = s->parts;
	}
	if (i->deadline_us)
		n.deadline_us = env_now(x->c.env) + i->deadline_us;
	count_bytes(o);
	x->c.ops->net(x->c.ops_arg, &o->wait, &n, in, i->nin, out, i->nout);
	free(in);
}

void op_ask(struct op *o)
{
	if (o->i->kind == PLAN_LOAD)
		o->x->c.ops->load(o->x->c.ops_arg, &o->wait, o->i, o->index);
	else
		ask_net(o);
}
