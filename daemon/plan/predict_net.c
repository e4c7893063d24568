/* What leaves a peer, as the predictor sees it: transfers over links, mail, collectives, deaths. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "plan/predict_int.h"

static const struct predict_link *link_of(const struct sim *s, uint32_t a, uint32_t b)
{
	if (!s->conf->links)
		return &s->conf->link;
	return &s->conf->links[(size_t)s->peer[a].plan->me * s->out->nmembers + s->peer[b].plan->me];
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static void count(struct sim *s, uint32_t src, uint32_t dst, enum plan_class class, uint64_t bytes)
{
	s->peer[src].out->sent[class] += bytes;
	s->peer[dst].out->received[class] += bytes;
	s->out->link_bytes[(size_t)s->peer[src].plan->me * s->out->nmembers + s->peer[dst].plan->me] += bytes;
}

/* Puts a message on the way; returns when its last byte has left. */
static uint64_t transmit(struct sim *s, const struct message *m)
{
	const struct predict_link *l = link_of(s, m->src, m->dst);
	struct peer *a = &s->peer[m->src], *b = &s->peer[m->dst];
	uint64_t took = (uint64_t)(l->us_per_byte * (double)m->bytes + 0.5);
	uint64_t start = later(s->now, a->egress_us), left = start + took;
	uint64_t arrives = later(start + l->latency_us, b->ingress_us) + took;
	a->egress_us = left;
	b->ingress_us = arrives;
	count(s, m->src, m->dst, m->class, m->bytes);
	predict_at(s, arrives, EVENT_ARRIVE, m->dst, xmemdup(m, sizeof *m));
	return left;
}

static struct message message_of(const struct sim *s, uint32_t k, const struct token_run *r, uint32_t buf)
{
	const struct plan_buf *b = &s->peer[k].plan->buf[buf];
	return (struct message){ .src = k, .stream = r->stream, .label = b->name, .index = r->index, .version = r->version,
		.bytes = b->bytes, .class = b->class };
}

void predict_send(struct sim *s, uint32_t k, struct token_run *r)
{
	struct peer *p = &s->peer[k];
	const struct plan_instr *i = r->instr;
	struct message m = message_of(s, k, r, i->in[0].buf);
	uint64_t left = s->now;
	if (i->with == PLAN_PEER) {
		m.dst = s->rank_at[i->peer];
		if (m.dst != PLAN_NONE && !s->peer[m.dst].dead)
			left = transmit(s, &m);
	} else {
		const struct token_bind *b = &r->in[i->nin - 1];
		const struct token_slot *slot = tokens_slot(p->tokens, b->stream, b->buf, b->slot);
		uint64_t part = slot->parts > 1 ? m.bytes / slot->parts : m.bytes;
		for (uint32_t n = 0; n < slot->nfrom; n++) {
			m.dst = s->rank_at[slot->from[n].peer];
			m.index = slot->from[n].index;
			m.stream = slot->from[n].stream;
			m.bytes = part;
			if (m.dst != PLAN_NONE && !s->peer[m.dst].dead)
				left = later(left, transmit(s, &m));
		}
	}
	predict_at(s, left, EVENT_END, k, r);
}

static void finish(struct sim *s, uint32_t k, struct wait *w, int64_t version)
{
	struct token_run *r = w->run;
	bool received = r->instr->kind == PLAN_RECV || r->instr->kind == PLAN_ALLTOALL;
	struct token_news news = { .version = version, .nfrom = w->nfrom, .from = w->from,
		.missing = w->nfrom == 0 && (r->instr->kind == PLAN_RECV || w->expected > 0) };
	list_del(&w->link);
	predict_end(s, k, r, received ? &news : NULL);
	/* a timer may still point at it */
	w->run = NULL;
	if (w->over) {
		free(w->from);
		free(w->want);
		free(w);
	}
}

static void accept(struct wait *w, const struct sim *s, struct message *m)
{
	w->from = xrealloc(w->from, (w->nfrom + 1) * sizeof *w->from);
	w->from[w->nfrom++] = (struct token_from){ s->peer[m->src].plan->me, m->stream, m->index };
	list_del(&m->link);
	free(m);
}

static bool member(const struct plan_group *g, uint32_t rank)
{
	for (uint32_t n = 0; n < g->n; n++)
		if (g->member[n].peer == rank)
			return true;
	return false;
}

static bool seen_before(struct peer *p, const struct message *m)
{
	for (uint32_t n = 0; n < p->nseen; n++)
		if (p->seen[n].index == m->index && strcmp(p->seen[n].label, m->label) == 0)
			return true;
	p->seen = xrealloc(p->seen, (p->nseen + 1) * sizeof *p->seen);
	p->seen[p->nseen++] = (struct seen){ m->label, m->index };
	return false;
}

static bool try_any(struct sim *s, uint32_t k, struct wait *w)
{
	struct peer *p = &s->peer[k];
	const struct plan_instr *i = w->run->instr;
	const char *label = p->plan->buf[i->out[0].buf].name;
	int64_t version = -1;
	list_each_safe(it, &p->mail) {
		struct message *m = list_entry(it, struct message, link);
		if (w->nfrom >= i->most || strcmp(m->label, label) != 0 ||
			!member(&p->plan->group[i->group], s->peer[m->src].plan->me))
			continue;
		if (i->unique && seen_before(p, m)) {
			list_del(&m->link);
			free(m);
			continue;
		}
		version = m->version;
		if (w->nfrom == 0 && i->within_us > 0) {
			w->over = false;
			predict_at(s, s->now + i->within_us, EVENT_TIMER, k, w);
		}
		accept(w, s, m);
	}
	if (w->nfrom < i->most && (w->nfrom < i->quorum || (i->within_us > 0 && !w->late)))
		return false;
	finish(s, k, w, version);
	return true;
}

static bool try_peer(struct sim *s, uint32_t k, struct wait *w)
{
	struct peer *p = &s->peer[k];
	const struct plan_instr *i = w->run->instr;
	const char *label = p->plan->buf[i->out[0].buf].name;
	uint32_t src = s->rank_at[i->peer];
	list_each(it, &p->mail) {
		struct message *m = list_entry(it, struct message, link);
		if (m->src != src || m->index != w->run->index || m->stream != w->run->stream || strcmp(m->label, label) != 0)
			continue;
		int64_t version = m->version;
		accept(w, s, m);
		finish(s, k, w, version);
		return true;
	}
	if (i->on_missing != PLAN_FAIL && (w->late || src == PLAN_NONE || s->peer[src].dead)) {
		finish(s, k, w, -1);
		return true;
	}
	return false;
}

static bool try_alltoall(struct sim *s, uint32_t k, struct wait *w)
{
	struct peer *p = &s->peer[k];
	const struct plan_instr *i = w->run->instr;
	const char *label = i->nout > 0 ? p->plan->buf[i->out[0].buf].name : "";
	list_each_safe(it, &p->mail) {
		struct message *m = list_entry(it, struct message, link);
		if (w->expected == 0 || !w->want[m->src] || m->index != w->run->index || m->stream != w->run->stream ||
			strcmp(m->label, label) != 0)
			continue;
		w->want[m->src] = false;
		w->expected--;
		accept(w, s, m);
	}
	uint32_t alive = 0;
	for (uint32_t n = 0; n < s->n; n++)
		alive += w->want[n] && !s->peer[n].dead;
	if (w->expected > 0 && !(i->on_missing != PLAN_FAIL && (w->late || alive == 0)))
		return false;
	finish(s, k, w, w->run->version);
	return true;
}

/* Bytes that each member sends, and the buffer they belong to. */
static uint64_t coll_bytes(const struct plan *p, const struct plan_instr *i, uint32_t n)
{
	uint64_t whole = 0;
	bool out = i->kind == PLAN_GATHER && i->nout > 0;
	for (uint32_t k = 0; k < (out ? i->nout : i->nin); k++)
		whole += p->buf[out ? i->out[k].buf : i->in[k].buf].bytes;
	return (i->kind == PLAN_SUM ? 2 : 1) * (n - 1) * whole / n;
}

static struct wait *coll_find(const struct peer *q, const struct peer *p, const struct token_run *r)
{
	list_each(it, &q->waits) {
		struct wait *w = list_entry(it, struct wait, link);
		const struct plan_instr *i = w->run->instr;
		if (i->with == PLAN_IN_GROUP && i->kind == r->instr->kind && w->run->index == r->index &&
			w->run->stream == r->stream &&
			strcmp(q->plan->group[i->group].name, p->plan->group[r->instr->group].name) == 0 &&
			strcmp(plan_label(q->plan, i), plan_label(p->plan, r->instr)) == 0)
			return w;
	}
	return NULL;
}

/* When the last member has come: the ends of all are set. */
static bool try_coll(struct sim *s, uint32_t k, struct wait *w)
{
	struct peer *p = &s->peer[k];
	struct token_run *run = w->run;         /* w is freed with the others */
	const struct plan_instr *i = run->instr;
	const struct plan_group *g = &p->plan->group[i->group];
	bool without = i->on_missing == PLAN_WITHOUT || g->elastic;
	uint32_t n = 0, at[PLAN_MEMBERS_MAX];
	uint64_t start = s->now, wire = 0, lat = 0;
	for (uint32_t m = 0; m < g->n; m++) {
		uint32_t q = s->rank_at[g->member[m].peer], twice = 0;
		while (twice < n && at[twice] != q)
			twice++;
		/* a peer with two replicas adds them by itself and takes part once */
		if (twice < n)
			continue;
		if (without && (q == PLAN_NONE || s->peer[q].dead))
			continue;
		if (q == PLAN_NONE || (s->peer[q].dead) || !coll_find(&s->peer[q], p, run))
			return false;
		at[n++] = q;
		start = later(start, later(s->peer[q].egress_us, s->peer[q].ingress_us));
	}
	if (n == 0 && g->elastic)       /* nobody is expected: the round is this peer's own */
		at[n++] = k;
	if (n == 0)
		return false;
	uint64_t bytes = coll_bytes(p->plan, i, n);
	for (uint32_t a = 0; a < n; a++) {
		const struct predict_link *l = link_of(s, at[a], at[(a + 1) % n]);
		wire = later(wire, (uint64_t)(l->us_per_byte * (double)bytes + 0.5));
		lat = later(lat, n > 1 ? l->latency_us : 0);
	}
	uint64_t end = start + wire + lat * (i->kind == PLAN_SUM ? 2 : 1);
	for (uint32_t a = 0; a < n; a++) {
		struct peer *q = &s->peer[at[a]];
		struct wait *x = coll_find(q, p, run);
		const struct plan_instr *xi = x->run->instr;
		enum plan_class class = q->plan->buf[xi->nin > 0 ? xi->in[0].buf : xi->out[0].buf].class;
		for (uint32_t b = 1; b < n; b++)
			count(s, at[a], at[(a + b) % n], class, coll_bytes(q->plan, xi, n) / (n - 1));
		q->egress_us = q->ingress_us = start + wire;
		list_del(&x->link);
		predict_at(s, end, EVENT_END, at[a], x->run);
		free(x);
	}
	return true;
}

static bool try_wait(struct sim *s, uint32_t k, struct wait *w)
{
	const struct plan_instr *i = w->run->instr;
	if (i->kind == PLAN_RECV)
		return i->with == PLAN_ANY ? try_any(s, k, w) : try_peer(s, k, w);
	return i->kind == PLAN_ALLTOALL ? try_alltoall(s, k, w) : try_coll(s, k, w);
}

static uint64_t routed(const struct sim *s, uint32_t a, uint32_t b, const struct token_run *r, uint32_t buf, uint32_t n)
{
	const struct plan_buf *x = &s->peer[a].plan->buf[buf];
	if (s->conf->route)
		return s->conf->route(s->conf->arg, s->peer[a].plan->me, s->peer[b].plan->me, r->index, x->name, x->bytes);
	return x->bytes / n;
}

/* Sends rows to every member that the route names, then expects as many answers as plan.h says. */
static void alltoall(struct sim *s, uint32_t k, struct wait *w)
{
	struct peer *p = &s->peer[k];
	struct token_run *r = w->run;
	const struct plan_instr *i = r->instr;
	const struct plan_group *g = &p->plan->group[i->group];
	uint32_t route = 0;
	while (route < i->nin && i->in[route].role != PLAN_AS_ROUTE)
		route++;
	bool sends = i->nin > 0 && route > 0, receives = i->nout > 0;
	w->want = xcalloc(s->n, sizeof *w->want);
	for (uint32_t m = 0; m < g->n; m++) {
		uint32_t q = s->rank_at[g->member[m].peer];
		if (q == PLAN_NONE || q == k)
			continue;
		struct message x = message_of(s, k, r, sends ? i->in[0].buf : i->out[0].buf);
		x.bytes = routed(s, k, q, r, sends ? i->in[0].buf : i->out[0].buf, g->n);
		if (receives)
			x.label = p->plan->buf[i->out[0].buf].name;
		x.dst = q;
		if (sends && x.bytes > 0 && !s->peer[q].dead)
			transmit(s, &x);
		w->want[q] = receives && (sends ? routed(s, q, k, r, i->in[0].buf, g->n) : x.bytes) > 0;
		w->expected += w->want[q];
	}
}

void predict_wait(struct sim *s, uint32_t k, struct token_run *r)
{
	struct wait *w = xcalloc(1, sizeof *w);
	w->run = r;
	list_push(&s->peer[k].waits, &w->link);
	uint64_t limit = r->instr->deadline_us;
	bool timed = limit > 0 && r->instr->with != PLAN_ANY && (r->instr->kind == PLAN_RECV ||
		r->instr->kind == PLAN_ALLTOALL);
	w->over = !timed;
	if (timed)
		predict_at(s, s->now + limit, EVENT_TIMER, k, w);
	if (r->instr->kind == PLAN_ALLTOALL)
		alltoall(s, k, w);
	try_wait(s, k, w);
}

void predict_arrive(struct sim *s, struct message *m)
{
	struct peer *p = &s->peer[m->dst];
	if (p->dead) {
		free(m);
		return;
	}
	uint32_t dst = m->dst;
	list_push(&p->mail, &m->link);
	list_each(it, &p->waits)
		if (try_wait(s, dst, list_entry(it, struct wait, link)))
			return;
}

void predict_timer(struct sim *s, uint32_t k, struct wait *w)
{
	w->over = w->late = true;
	if (!w->run) {
		free(w->from);
		free(w->want);
		free(w);
	} else if (!s->peer[k].dead) {
		try_wait(s, k, w);
	}
}

void predict_death(struct sim *s, uint32_t k)
{
	s->peer[k].dead = true;
	for (uint32_t q = 0; q < s->n; q++) {
		if (q == k || s->peer[q].dead)
			continue;
		tokens_lost(s->peer[q].tokens, s->peer[k].plan->me);
		for (bool any = true; any;) {
			any = false;
			list_each(it, &s->peer[q].waits)
				if (try_wait(s, q, list_entry(it, struct wait, link))) {
					any = true;
					break;
				}
		}
	}
}

void predict_net_free(struct sim *s)
{
	for (uint32_t k = 0; k < s->n; k++) {
		list_each_safe(it, &s->peer[k].mail)
			free(list_entry(it, struct message, link));
		list_each_safe(it, &s->peer[k].waits) {
			struct wait *w = list_entry(it, struct wait, link);
			free(w->from);
			free(w->want);
			free(w);
		}
		free(s->peer[k].seen);
	}
}
