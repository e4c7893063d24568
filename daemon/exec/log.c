/* The run log (instrument T10): one JSON object a line for every program, start and end, with the keys of the values
 * that were consumed and made, so that traces, emulators and the replay need nothing else. */
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
