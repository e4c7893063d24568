/* A search that an operator watches: which nodes were asked, who named them, how long each took to answer. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "dht/int.h"

struct trace { struct list link; struct dht *d; struct trail trail; struct id key; uint64_t begun_us;
	dht_traced_fn *done; void *arg; };

size_t trail_add(struct trail *t, const struct dnode *to, uint8_t hop, uint64_t now_us)
{
	if (t->n == t->cap) {
		t->cap = t->cap ? 2 * t->cap : 16;
		t->v = xrealloc(t->v, t->cap * sizeof *t->v);
	}
	t->v[t->n] = (struct dht_hop){ .id = to->id, .at = to->at, .hop = hop, .asked_us = now_us };
	return t->n++;
}

static void trace_free(struct trace *t)
{
	list_del(&t->link);
	free(t->trail.v);
	free(t);
}

static void traced(void *arg, const struct look_end *l)
{
	struct trace *t = arg;
	struct dht *d = t->d;
	uint64_t now = env_now(d->env);
	struct entry *en = values_get(&d->values, &t->key, now);
	struct record *out = NULL;
	struct dht_trace told = { .hop = t->trail.v, .nhop = t->trail.n, .here = en ? en->n : 0, .key = t->key,
		.took_us = now - t->begun_us };
	for (size_t i = 0; i < t->trail.n; i++)
		t->trail.v[i].asked_us -= t->begun_us;
	told.nfound = records_out(l->recs, now, &out);
	told.found = out;
	t->done(t->arg, &told, NULL);
	records_free(out, told.nfound);
	trace_free(t);
}

void dht_trace(struct dht *d, const char *key, bool latest, dht_traced_fn *done, void *arg)
{
	struct trace *t = xcalloc(1, sizeof *t);
	*t = (struct trace){ .d = d, .begun_us = env_now(d->env), .done = done, .arg = arg };
	id_of(&t->key, key, strlen(key));
	list_push(&d->traces, &t->link);
	struct lookup *l = lookup_new(d, &t->key, latest ? LOOK_LATEST : LOOK_VALUE, traced, t);
	l->trail = &t->trail;
	lookup_begin(l);
}

void traces_free(struct dht *d)
{
	struct err e;
	err_set(&e, ERR_CANCELLED, "dht: this peer is stopping");
	list_each_safe(it, &d->traces) {
		struct trace *t = list_entry(it, struct trace, link);
		t->done(t->arg, NULL, &e);
		trace_free(t);
	}
}
