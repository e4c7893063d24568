/* One haul is one instruction under way: its values (carry_value.c), or a collective of avg/coll.h. All end well, or
 * the first that fails ends it, but where the plan goes on with fewer; the executor is told a moment later. Work over
 * 64 KiB is done in the reduce lane; a cancel waits for that alone. */
#include "exec/carry_int.h"
#include <stdlib.h>
#include "common/mem.h"

#define PATIENCE_US 60000000ull

struct carry *carry_new(const struct carry_conf *conf)
{
	struct carry *c = xcalloc(1, sizeof(*c));

	c->c = *conf;
	c->coll = coll_new(conf->env, conf->net, conf->chunks);
	list_init(&c->hauls);
	list_init(&c->ports);
	offer_open(c);
	return c;
}

size_t carry_open(const struct carry *c)
{
	return c->nhauls;
}

/* --- ending */

/* Nothing comes or goes for it any more. */
static void let_go(struct haul *h)
{
	values_cancel(h);
	if (h->any)
		any_leave(h);
}

static void haul_free(struct haul *h)
{
	let_go(h);
	env_timer(h->c->c.env, &h->ended, 0);
	if (h->cared)
		haul_care(h, -1);
	list_del(&h->link);
	h->c->nhauls--;
	if (h->any)
		any_free(h);
	if (h->rows)
		rows_free(h);
	free(h->value);
	free(h->from);
	free(h->member);
	free(h->rank);
	free(h);
}

/* It is over, and no lane works on its memory. */
static void ended(struct timer *t)
{
	struct haul *h = container_of(t, struct haul, ended);
	bool received = h->n.instr->nout && (h->n.instr->kind == PLAN_RECV || h->n.instr->kind == PLAN_ALLTOALL);
	struct token_news news = { .version = h->version, .nfrom = h->nfrom, .from = h->from };
	struct token_from *from = h->from;
	struct exec_wait *w = h->w;
	struct err why = h->error;

	h->from = NULL;
	haul_free(h);
	exec_done(w, received && !why.code ? &news : NULL, why.code ? &why : NULL);
	free(from);
}

/* --- the executor's calls */

static int begin(struct haul *h, struct err *e)
{
	const struct plan_instr *i = h->n.instr;

	if ((i->nin && !h->in.p) || (i->nout && !h->out.p))
		return err_set(e, ERR_INVALID, "%s is in no memory", i->nin && !h->in.p ? h->in.buffer : h->out.buffer);
	if (i->kind == PLAN_RECV && i->with == PLAN_ANY)
		return any_begin(h, e);
	if (i->kind == PLAN_SEND && i->with == PLAN_REPLY)
		return value_reply(h, e);
	if (i->kind == PLAN_ALLTOALL && i->with == PLAN_IN_GROUP)
		return rows_begin(h, e);
	if (i->with == PLAN_IN_GROUP && (i->kind == PLAN_SUM || i->kind == PLAN_GATHER || i->kind == PLAN_SCATTER))
		return coll_begin(h, e);
	if (i->with != PLAN_PEER || (i->kind != PLAN_SEND && i->kind != PLAN_RECV))
		return err_set(e, ERR_INVALID, "%s is not carried between peers", plan_kind_name(i->kind));
	value_send_recv(h);
	return 0;
}

static uint64_t deadline_of(const struct carry *c, const struct exec_net *n)
{
	if (n->deadline_us || n->instr->with == PLAN_ANY)
		return n->deadline_us;          /* a server waits for requests as long as there are none */
	return env_now(c->c.env) + (c->c.patience_us ? c->c.patience_us : PATIENCE_US);
}

static void carry_net(void *arg, struct exec_wait *w, const struct exec_net *n, const struct exec_span *in,
	uint32_t nin, const struct exec_span *out, uint32_t nout)
{
	struct carry *c = arg;
	struct haul *h = xcalloc(1, sizeof(*h));
	struct err e;

	h->c = c;
	h->w = w;
	h->ended = (struct timer){ .fire = ended, .name = "carry ended" };
	h->n = *n;
	h->in = nin ? in[0] : (struct exec_span){ 0 };
	h->out = nout ? out[0] : (struct exec_span){ 0 };
	for (uint32_t k = nin; k-- > 0; )
		if (n->instr->in[k].role == PLAN_AS_ROUTE)
			h->route = in[k];
	h->deadline_us = deadline_of(c, n);
	h->version = n->version;
	list_push(&c->hauls, &h->link);
	c->nhauls++;
	if (begin(h, &e) == 0)
		return;
	(void)err_wrap(&e, "plan %s: %s of %s", n->plan->strategy, plan_kind_name(n->instr->kind), n->tag);
	let_go(h);
	haul_settle(h, &e);
}

static struct haul *find(const struct carry *c, const struct exec_wait *w)
{
	list_each(it, &c->hauls)
		if (list_entry(it, struct haul, link)->w == w)
			return list_entry(it, struct haul, link);
	return NULL;
}

static void carry_cancel(void *arg, struct exec_wait *w)
{
	struct haul *h = find(arg, w);

	if (!h)
		return;
	h->cancelled = true;
	if (h->summing && coll_cancel(h->c->coll, h))
		h->summing = false;
	if (h->working || h->summing)
		let_go(h);
	else
		haul_free(h);
}

static bool carry_busy(void *arg, struct exec_wait *w)
{
	return find(arg, w) != NULL;
}

void carry_free(struct carry *c)
{
	if (!c)
		return;
	list_each_safe(it, &c->hauls)
		haul_free(list_entry(it, struct haul, link));
	any_close(c);
	offer_close(c);
	coll_free(c->coll);
	free(c);
}

const struct exec_ops carry_ops = { .net = carry_net, .cancel = carry_cancel, .busy = carry_busy };
