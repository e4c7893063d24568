/* The network of exec_kit.h: mail that waits for its reader, collectives that wait for their members. */
#ifndef TESTS_EXEC_MAIL_H
#define TESTS_EXEC_MAIL_H
#include "exec_world.h"

static inline void x_finish(struct xpeer *p, struct xwait *v, int64_t version)
{
	struct token_news news = { .version = version, .nfrom = v->nfrom, .from = v->from };
	struct exec_wait *w = v->w;
	bool none = !v->nfrom && (v->n.instr->kind == PLAN_RECV || v->expected);
	struct err e;

	list_del(&v->link);
	heap_set(&p->world->heap, &v->limit, 0);
	if (none)
		(void)err_set(&e, ERR_TIMEOUT, "nothing has come");
	exec_done(w, &news, none ? &e : NULL);
	free(v->from);
	free(v->want);
	free(v);
}

static inline void x_accept(struct xwait *v, struct xmail *m)
{
	v->from = xrealloc(v->from, (v->nfrom + 1) * sizeof(*v->from));
	v->from[v->nfrom++] = (struct token_from){ m->src, m->stream, m->index };
	list_del(&m->link);
	free(m);
}

static inline bool x_in_group(const struct plan_group *g, uint32_t rank)
{
	for (uint32_t i = 0; i < g->n; i++)
		if (g->member[i].peer == rank)
			return true;
	return false;
}

static inline bool x_seen(struct xpeer *p, const struct xmail *m)
{
	for (uint32_t i = 0; i < p->nseen; i++)
		if (p->seen[i].index == m->index && !strcmp(p->seen[i].tag, m->tag))
			return true;
	p->seen = xrealloc(p->seen, (p->nseen + 1) * sizeof(*p->seen));
	memcpy(p->seen[p->nseen].tag, m->tag, PLAN_NAME);
	p->seen[p->nseen++].index = m->index;
	return false;
}

static inline bool x_try_any(struct xpeer *p, struct xwait *v)
{
	const struct plan_instr *i = v->n.instr;
	int64_t version = -1;

	list_each_safe(it, &p->mail) {
		struct xmail *m = list_entry(it, struct xmail, link);

		if (v->nfrom >= i->most || strcmp(m->tag, v->n.tag) || !x_in_group(v->n.group, m->src))
			continue;
		if (i->unique && x_seen(p, m)) {
			list_del(&m->link);
			free(m);
			continue;
		}
		version = m->version;
		if (!v->nfrom && i->within_us)
			heap_set(&p->world->heap, &v->limit, p->world->now + i->within_us);
		x_accept(v, m);
	}
	if (v->nfrom < i->most && (v->nfrom < i->quorum || (i->within_us && !v->late)))
		return false;
	x_finish(p, v, version);
	return true;
}

static inline bool x_try_peer(struct xpeer *p, struct xwait *v)
{
	struct xpeer *src = x_at(p->world, v->n.instr->peer);

	list_each(it, &p->mail) {
		struct xmail *m = list_entry(it, struct xmail, link);
		int64_t version = m->version;

		if (m->src != v->n.instr->peer || m->index != v->n.index || m->stream != v->n.stream || strcmp(m->tag,
			v->n.tag))
			continue;
		x_accept(v, m);
		x_finish(p, v, version);
		return true;
	}
	if (v->n.instr->on_missing == PLAN_FAIL || !(v->late || !src || src->dead))
		return false;
	x_finish(p, v, -1);
	return true;
}

static inline bool x_try_all(struct xpeer *p, struct xwait *v)
{
	uint32_t alive = 0;

	list_each_safe(it, &p->mail) {
		struct xmail *m = list_entry(it, struct xmail, link);

		if (!v->expected || !v->want[m->src] || m->index != v->n.index || m->stream != v->n.stream ||
		    strcmp(m->tag, v->n.tag))
			continue;
		v->want[m->src] = false;
		v->expected--;
		x_accept(v, m);
	}
	for (uint32_t i = 0; i < p->world->nmembers; i++)
		alive += v->want[i] && x_at(p->world, i) && !x_at(p->world, i)->dead;
	if (v->expected && !(v->n.instr->on_missing != PLAN_FAIL && (v->late || !alive)))
		return false;
	x_finish(p, v, v->n.version);
	return true;
}

static inline uint64_t x_coll_bytes(const struct plan *p, const struct plan_instr *i, uint32_t n)
{
	bool out = i->kind == PLAN_GATHER && i->nout;
	uint64_t whole = 0;

	for (uint32_t k = 0; k < (out ? i->nout : i->nin); k++)
		whole += p->buf[out ? i->out[k].buf : i->in[k].buf].bytes;
	return (i->kind == PLAN_SUM ? 2 : 1) * (n - 1) * whole / n;
}

static inline struct xwait *x_partner(struct xpeer *q, const struct xwait *v)
{
	list_each(it, &q->waits) {
		struct xwait *o = list_entry(it, struct xwait, link);

		if (o->n.instr->with == PLAN_IN_GROUP && o->n.instr->kind == v->n.instr->kind && o->n.index == v->n.index &&
		    o->n.stream == v->n.stream && !strcmp(o->n.group->name, v->n.group->name) && !strcmp(o->n.tag, v->n.tag))
			return o;
	}
	return NULL;
}

static inline bool x_try_coll(struct xpeer *p, struct xwait *v)
{
	struct xworld *w = p->world;
	const struct plan_group *g = v->n.group;
	bool without = v->n.instr->on_missing == PLAN_WITHOUT || g->elastic;
	struct xpeer *at[64];
	struct xwait key = *v;
	uint64_t begin = w->now, wire = 0, lat = 0, end, bytes;
	uint32_t n = 0;

	for (uint32_t m = 0; m < g->n; m++) {
		struct xpeer *q = x_at(w, g->member[m].peer);
		uint32_t twice = 0;

		while (twice < n && at[twice] != q)
			twice++;
		if (twice < n || (without && (!q || q->dead)))
			continue;
		if (!q || q->dead || !x_partner(q, v))
			return false;
		at[n++] = q;
		begin = q->egress > begin ? q->egress : begin;
		begin = q->ingress > begin ? q->ingress : begin;
	}
	if (!n)
		return false;
	bytes = x_coll_bytes(p->plan, v->n.instr, n);
	for (uint32_t a = 0; a < n; a++) {
		const struct predict_link *l = x_link(w, at[a]->rank, at[(a + 1) % n]->rank);
		uint64_t took = (uint64_t)(l->us_per_byte * (double)bytes + 0.5);

		wire = took > wire ? took : wire;
		lat = n > 1 && l->latency_us > lat ? l->latency_us : lat;
	}
	end = begin + wire + lat * (v->n.instr->kind == PLAN_SUM ? 2 : 1);
	for (uint32_t a = 0; a < n; a++) {
		struct xwait *o = x_partner(at[a], &key);
		const struct plan_instr *i = o->n.instr;
		enum plan_class class = at[a]->plan->buf[i->nin ? i->in[0].buf : i->out[0].buf].class;

		for (uint32_t b = 1; b < n; b++) {
			at[a]->sent[class] += x_coll_bytes(at[a]->plan, i, n) / (n - 1);
			at[(a + b) % n]->received[class] += x_coll_bytes(at[a]->plan, i, n) / (n - 1);
		}
		at[a]->egress = at[a]->ingress = begin + wire;
		list_del(&o->link);
		x_end_at(at[a], o->w, end);
		free(o->want);
		free(o);
	}
	return true;
}

static inline bool x_try(struct xpeer *p, struct xwait *v)
{
	if (v->n.instr->kind == PLAN_RECV)
		return v->n.instr->with == PLAN_ANY ? x_try_any(p, v) : x_try_peer(p, v);
	return v->n.instr->kind == PLAN_ALLTOALL ? x_try_all(p, v) : x_try_coll(p, v);
}

static inline uint64_t x_routed(struct xworld *w, uint32_t a, uint32_t b, int64_t index, uint32_t buf,
	const struct plan *p,
	uint32_t n)
{
	if (w->conf->route)
		return w->conf->route(w->conf->arg, a, b, index, p->buf[buf].name, p->buf[buf].bytes);
	return p->buf[buf].bytes / n;
}

static inline void x_alltoall(struct xpeer *p, struct xwait *v)
{
	const struct plan_instr *i = v->n.instr;
	const struct plan_group *g = v->n.group;
	uint32_t route = 0, from;
	bool sends, receives = i->nout > 0;

	while (route < i->nin && i->in[route].role != PLAN_AS_ROUTE)
		route++;
	sends = i->nin && route > 0;
	from = sends ? i->in[0].buf : i->out[0].buf;
	for (uint32_t m = 0; m < g->n; m++) {
		uint32_t to = g->member[m].peer;
		struct xpeer *q = x_at(p->world, to);
		uint64_t bytes;

		if (!q || q == p)
			continue;
		bytes = x_routed(p->world, p->rank, to, v->n.index, from, p->plan, g->n);
		if (sends && bytes)
			(void)x_transmit(p, to, &v->n, v->n.tag, p->plan->buf[from].class, bytes, v->n.index, v->n.stream);
		v->want[to] = receives &&
			(sends ? x_routed(p->world, to, p->rank, v->n.index, i->in[0].buf, p->plan, g->n) : bytes) > 0;
		v->expected += v->want[to];
	}
}

static inline void x_late(struct timer *t)
{
	struct xwait *v = container_of(t, struct xwait, limit);
	struct xpeer *p = (struct xpeer *)v->n.to;      /* waits have no use for `to`: it keeps the peer */

	v->late = true;
	if (!p->dead)
		(void)x_try(p, v);
}

static inline void x_net(void *arg, struct exec_wait *w, const struct exec_net *n, const struct exec_span *in,
	uint32_t nin,
	const struct exec_span *out, uint32_t nout)
{
	struct xpeer *p = arg;
	const struct plan_instr *i = n->instr;
	struct xwait *v;

	if (i->kind == PLAN_SEND) {
		x_send(p, w, n, in);
		return;
	}
	v = xcalloc(1, sizeof(*v));
	*v = (struct xwait){ .w = w, .n = *n, .limit = { .fire = x_late }, .want = xcalloc(p->world->nmembers,
		sizeof(bool)) };
	v->n.to = (const struct token_from *)p;
	list_push(&p->waits, &v->link);
	if (i->deadline_us && i->with != PLAN_ANY && (i->kind == PLAN_RECV || i->kind == PLAN_ALLTOALL))
		heap_set(&p->world->heap, &v->limit, p->world->now + i->deadline_us);
	if (i->kind == PLAN_ALLTOALL)
		x_alltoall(p, v);
	(void)x_try(p, v);
}

static inline void x_loaded(struct timer *t)
{
	struct xdone *d = container_of(t, struct xdone, t);
	struct exec_wait *w = d->p->dead ? NULL : d->w;

	list_del(&d->link);
	free(d);
	if (w)
		exec_loaded(w, NULL, NULL);
}

static inline void x_load(void *arg, struct exec_wait *w, const struct plan_instr *i, int64_t index)
{
	struct xpeer *p = arg;
	struct xdone *d = xcalloc(1, sizeof(*d));
	double speed = p->world->conf->speed ? p->world->conf->speed[p->rank] : 1;

	*d = (struct xdone){ .t = { .fire = x_loaded }, .w = w, .p = p };
	list_push(&p->world->ends, &d->link);
	heap_set(&p->world->heap, &d->t, p->world->now + (uint64_t)((double)p->k->profile.load_us / speed + 0.5));
}

static inline void x_cancel(void *arg, struct exec_wait *w)
{
	list_each(it, &((struct xpeer *)arg)->world->ends) {
		struct xdone *d = list_entry(it, struct xdone, link);

		if (d->w == w)
			d->w = NULL;
	}
}

#endif
