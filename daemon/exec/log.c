/* The run log (instrument T10): one JSON object a line for every program, start and end, with the keys of the values
 * that were consumed and made, so that traces, emulators and the replay need nothing else. And what a plan may
 * contain here. */
#include <string.h>
#include "exec/batch.h"
#include "exec/int.h"

static void log_refs(struct buf *b, const struct plan *p, const char *what, const struct plan_ref *r,
	const struct token_bind *bind, uint32_t n)
{
	buf_printf(b, ",\"%s\":[", what);
	for (uint32_t k = 0; k < n; k++)
		buf_printf(b, "%s[\"%s\",%lld]", k ? "," : "", p->buf[r[k].buf].name, (long long)bind[k].key);
	buf_printf(b, "]");
}

static void log_positions(struct buf *b, const struct batch *t)
{
	buf_printf(b, ",\"n\":%u,\"positions\":[", t->n);
	for (uint32_t i = 0; i < t->n; ) {
		uint32_t k = i + 1;

		while (k < t->n && t->position[k] == t->position[k - 1] + 1)
			k++;
		buf_printf(b, "%s[%llu,%llu]", i ? "," : "", (unsigned long long)t->position[i],
			(unsigned long long)t->position[k - 1] + 1);
		i = k;
	}
	buf_printf(b, "]");
}

static void flush(struct exec *x, struct buf *b)
{
	x->cb.log(x->arg, (const char *)b->p, b->len);
	buf_free(b);
}

void log_program(struct exec *x, const struct program *p)
{
	struct buf b = { 0 };

	if (!x->cb.log)
		return;
	buf_printf(&b,
		"{\"t\":%llu,\"ev\":\"program\",\"number\":%llu,\"strategy\":\"%s\",\"generation\":%llu,\"first\":%llu,"
		"\"iterations\":%llu,\"instructions\":%u}", (unsigned long long)env_now(x->c.env),
		(unsigned long long)p->number,
		p->plan.strategy, (unsigned long long)p->plan.generation, (unsigned long long)p->plan.first,
		(unsigned long long)p->plan.iterations, p->plan.ninstrs);
	flush(x, &b);
}

/* Whose values have come, in the order in which they lie: [rank, stream, index] of each. */
static void log_senders(struct buf *b, const struct token_news *news)
{
	buf_printf(b, ",\"from\":[");
	for (uint32_t k = 0; k < news->nfrom; k++)
		buf_printf(b, "%s[%u,%u,%lld]", k ? "," : "", news->from[k].peer, news->from[k].stream,
			(long long)news->from[k].index);
	buf_printf(b, "]");
}

void log_op(struct exec *x, const struct op *o, const char *how)
{
	bool end = !strcmp(how, "end");
	const struct plan *p = &o->prog->plan;
	struct buf b = { 0 };

	if (!x->cb.log)
		return;
	buf_printf(&b, "{\"t\":%llu,\"ev\":\"%s\",\"program\":%llu,\"i\":%u,\"kind\":\"%s\",\"fn\":\"%s\",\"stream\":%u,"
		"\"index\":%lld", (unsigned long long)env_now(x->c.env), how,
		(unsigned long long)o->prog->number, o->run->number, plan_kind_name(o->i->kind), o->i->fn, o->stream,
		(long long)o->index);
	if (!strcmp(how, "start"))
		log_refs(&b, p, "in", o->i->in, o->run->in, o->i->nin);
	else
		log_refs(&b, p, "out", o->i->out, o->run->out, o->i->nout);
	for (uint32_t k = 0; end && o->out && k < o->i->nout; k++) {
		if (o->out[k] && o->out[k]->batch)
			log_positions(&b, o->out[k]->batch);
		if (o->out[k] && p->buf[o->i->out[k].buf].class == PLAN_SCALAR && o->out[k]->bytes == sizeof(double) &&
		    o->i->kind == PLAN_VEC)
			buf_printf(&b, ",\"%s\":\"%a\"", p->buf[o->i->out[k].buf].name, *(const double *)o->out[k]->p);
	}
	if (end && o->news && o->i->with != PLAN_PEER)
		log_senders(&b, o->news);
	buf_printf(&b, "}");
	flush(x, &b);
}

static int move_fits(const struct exec *x, const struct plan *p, uint32_t n, struct err *e)
{
	const struct plan_instr *i = &p->instr[n];
	const char *wrong = plan_place_wrong(p, i);
	bool moves = i->kind == PLAN_MOVE || i->kind == PLAN_SAVE;

	if (wrong)
		return err_set(e, ERR_INVALID, "plan %s: %s (instruction %u): %s", p->strategy, plan_kind_name(i->kind), n,
			wrong);
	if (i->kind == PLAN_SAVE && x->c.model && !x->spill)
		return err_set(e, ERR_INVALID, "plan %s: SAVE %s (instruction %u), and there is no folder for it", p->strategy,
			i->fn, n);
	for (uint32_t k = 0; k < i->nin && moves && x->c.model; k++)
		if (p->buf[i->in[k].buf].class == PLAN_BATCH || (i->nout && p->buf[i->out[k].buf].class == PLAN_BATCH))
			return err_set(e, ERR_INVALID, "plan %s: %s (instruction %u) of a batch, which is its owner's and no bytes",
				p->strategy, plan_kind_name(i->kind), n);
	return 0;
}

/* Tiers, and what is moved between them. */
static bool places_fit(const struct exec *x, const struct plan *p, struct err *e)
{
	for (uint32_t n = 0; n < p->nbufs && x->c.model; n++) {
		enum plan_place at = plan_place(p, &p->buf[n]);

		if (at == PLAN_ELSEWHERE || (at == PLAN_FILE && !x->spill)) {
			(void)err_set(e, ERR_INVALID, "plan %s: buffer %s lies in tier %s, %s", p->strategy, p->buf[n].name,
				p->tier[p->buf[n].tier].name, at == PLAN_FILE ? "and there is no folder for it" : "which is not there");
			return false;
		}
	}
	for (uint32_t n = 0; n < p->ninstrs; n++)
		if (move_fits(x, p, n, e) < 0)
			return false;
	return true;
}

/* What this executor cannot do is said before anything starts. */
bool plan_runnable(struct exec *x, const struct plan *p, const struct program *before, struct err *e)
{
	for (uint32_t n = 0; n < p->ninstrs; n++) {
		const struct plan_instr *i = &p->instr[n];

		if (plan_leaves(i->kind) && (!x->c.ops || !x->c.ops->net)) {
			(void)err_set(e, ERR_INVALID, "plan %s: %s (instruction %u) leaves this peer, and nobody carries it",
				p->strategy, plan_kind_name(i->kind), n);
			return false;
		}
		if (i->kind == PLAN_VEC && x->c.model && !vec_find(i->fn)) {
			(void)err_set(e, ERR_INVALID, "plan %s: unknown function of VEC \"%s\" (instruction %u)", p->strategy,
				i->fn, n);
			return false;
		}
		if (i->kind == PLAN_VEC && i->on_missing == PLAN_WITHOUT && x->c.model && !vec_find(i->fn)->without) {
			(void)err_set(e, ERR_INVALID, "plan %s: VEC %s (instruction %u) can do without none of its inputs",
				p->strategy, i->fn, n);
			return false;
		}
	}
	return places_fit(x, p, e) && binds_fit(x, p, e) && (!x->c.check || program_checked(x, p, before, e));
}
