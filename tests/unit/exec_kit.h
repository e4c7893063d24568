/* Runs the paper plans of plan_kit.h with the executor of train/ in virtual time and holds it against the predictor:
 * the
 * programs test_exec_* are the sources of test_plan_* again, compiled with -DKIT_EXEC. The world here (clock, lanes,
 * links,
 * mail, collectives) is written anew from predict.h's words. */
#ifndef TESTS_EXEC_KIT_H
#define TESTS_EXEC_KIT_H
#include "common/heap.h"
#define shape kernels_shape             /* a paper plan has a shape of its own */
#include "train/exec.h"
#undef shape

#define X0 1                            /* the clock begins here: a timer at 0 is none */

struct xmail { struct list link; uint32_t src, stream; int64_t index, version; char tag[PLAN_NAME]; };
struct xwait { struct list link; struct exec_wait *w; struct exec_net n; uint32_t who; bool late, timed;
	struct timer limit;
	uint32_t nfrom, expected; struct token_from *from; bool *want; };
struct xpeer {
	struct env env; struct exec *x; struct kit *k; struct xworld *world; const struct plan *plan;
	uint32_t rank; uint64_t egress, ingress, finish, sent[PLAN_CLASSES_COUNT], received[PLAN_CLASSES_COUNT];
	uint64_t ran[PLAN_KINDS_COUNT]; struct list mail, waits; bool planned, dead, over;
	uint32_t nseen; struct { char tag[PLAN_NAME]; int64_t index; } *seen;
};
struct xworld { struct heap heap; uint64_t now; struct list limbo, ends; struct xpeer *peer; uint32_t n;
	char lanes[64][PLAN_NAME]; int nlanes;
	const struct predict_conf *conf; uint32_t nmembers; };
struct xdone { struct timer t; struct list link; struct job *job; struct exec_wait *w; struct xpeer *p; };
struct xarrive { struct timer t; struct xworld *world; uint32_t dst; struct xmail *m; };

static inline struct xpeer *xpeer_of(struct env *e) { return (struct xpeer *)((char *)e - offsetof(struct xpeer, env));
	}
static inline uint64_t x_now(struct env *e) { return xpeer_of(e)->world->now; }
static inline void x_timer(struct env *e, struct timer *t, uint64_t at)
{
	heap_set(&xpeer_of(e)->world->heap, t, at && at < x_now(e) ? x_now(e) : at);
}

/* Kicks are at once: the executor asks for 1 us later, which is not the plan's time. */
static inline void x_arm(struct env *e, struct timer *t, uint64_t at)
{
	x_timer(e, t, at == x_now(e) + 1 ? x_now(e) : at);
}

static inline void x_job_done(struct timer *t)
{
	struct xdone *d = container_of(t, struct xdone, t);
	struct job *j = d->job;

	if (d->p->dead) {
		list_push(&d->p->world->limbo, &d->link);       /* until the end of the world */
		return;
	}
	free(d);
	j->done(j);
}

static inline void x_work(struct env *e, struct job *j)
{
	struct xdone *d = xcalloc(1, sizeof(*d));

	j->run(j);
	*d = (struct xdone){ .t = { .fire = x_job_done }, .job = j, .p = xpeer_of(e) };
	heap_set(&xpeer_of(e)->world->heap, &d->t, x_now(e) + j->cost_us);
}

static inline int x_lane(struct env *e, const char *name)
{
	struct xworld *w = xpeer_of(e)->world;

	for (int i = 0; i < w->nlanes; i++)
		if (!strcmp(w->lanes[i], name))
			return i;
	memcpy(w->lanes[w->nlanes], name, strlen(name) + 1);
	return w->nlanes++;
}

static inline void x_ended(struct timer *t)
{
	struct xdone *d = container_of(t, struct xdone, t);
	struct exec_wait *w = d->p->dead ? NULL : d->w;

	list_del(&d->link);
	free(d);
	if (w)
		exec_done(w, NULL, NULL);
}

static inline void x_end_at(struct xpeer *p, struct exec_wait *w, uint64_t at)
{
	struct xdone *d = xcalloc(1, sizeof(*d));

	*d = (struct xdone){ .t = { .fire = x_ended }, .w = w, .p = p };
	list_push(&p->world->ends, &d->link);
	heap_set(&p->world->heap, &d->t, at);
}

static inline struct xpeer *x_at(struct xworld *w, uint32_t rank)
{
	for (uint32_t i = 0; i < w->n; i++)
		if (w->peer[i].rank == rank)
			return &w->peer[i];
	return NULL;
}

static inline const struct predict_link *x_link(struct xworld *w, uint32_t a, uint32_t b)
{
	return w->conf->links ? &w->conf->links[(size_t)a * w->nmembers + b] : &w->conf->link;
}

static inline bool x_try(struct xpeer *p, struct xwait *v);

static inline void x_deliver(struct xpeer *p)
{
	for (bool any = true; any; ) {
		any = false;
		list_each(it, &p->waits)
			if (x_try(p, list_entry(it, struct xwait, link))) {
				any = true;
				break;
			}
	}
}

static inline void x_arrived(struct timer *t)
{
	struct xarrive *a = container_of(t, struct xarrive, t);
	struct xpeer *p = &a->world->peer[a->dst];

	if (p->dead) {
		free(a->m);
	} else {
		list_push(&p->mail, &a->m->link);
		x_deliver(p);
	}
	free(a);
}

/* One transfer: out of a, into b, one at a time in each direction. When its last byte has left. */
static inline uint64_t x_transmit(struct xpeer *a, uint32_t to, const struct exec_net *n, const char *tag,
	enum plan_class class, uint64_t bytes, int64_t index, uint32_t stream)
{
	struct xpeer *b = x_at(a->world, to);
	const struct predict_link *l;
	uint64_t took, start, arrives;
	struct xarrive *x;

	if (!b || b->dead)
		return a->world->now;
	l = x_link(a->world, a->rank, to);
	took = (uint64_t)(l->us_per_byte * (double)bytes + 0.5);
	start = a->egress > a->world->now ? a->egress : a->world->now;
	a->egress = start + took;
	arrives = (start + l->latency_us > b->ingress ? start + l->latency_us : b->ingress) + took;
	b->ingress = arrives;
	a->sent[class] += bytes;
	b->received[class] += bytes;
	x = xcalloc(1, sizeof(*x));
	*x = (struct xarrive){ .t = { .fire = x_arrived }, .world = a->world, .dst = (uint32_t)(b - a->world->peer) };
	x->m = xcalloc(1, sizeof(*x->m));
	*x->m = (struct xmail){ .src = a->rank, .stream = stream, .index = index, .version = n->version };
	memcpy(x->m->tag, tag, strlen(tag) + 1);
	heap_set(&a->world->heap, &x->t, arrives);
	return a->egress;
}

static inline void x_send(struct xpeer *p, struct exec_wait *w, const struct exec_net *n, const struct exec_span *in)
{
	enum plan_class class = p->plan->buf[n->instr->in[0].buf].class;
	uint64_t left = p->world->now, l;

	if (n->instr->with == PLAN_PEER)
		left = x_transmit(p, n->instr->peer, n, n->tag, class, in[0].bytes, n->index, n->stream);
	for (uint32_t k = 0; n->instr->with != PLAN_PEER && k < n->nto; k++) {
		l = x_transmit(p, n->to[k].peer, n, n->tag, class, n->parts > 1 ? in[0].bytes / n->parts : in[0].bytes,
			n->to[k].index, n->to[k].stream);
		left = l > left ? l : left;
	}
	x_end_at(p, w, left);
}

/* --- waiting */

static inline void x_finish(struct xpeer *p, struct xwait *v, int64_t version)
{
	struct token_news news = { .version = version, .nfrom = v->nfrom, .from = v->from };
	struct exec_wait *w = v->w;

	list_del(&v->link);
	heap_set(&p->world->heap, &v->limit, 0);
	exec_done(w, &news, NULL);
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

	if (i->kind == PLAN_SAVE) {
		uint64_t us = 0, bytes = 0;

		for (uint32_t k = 0; k < (nout ? nout : nin); k++)
			bytes += (nout ? out : in)[k].bytes;
		for (uint32_t f = 0; f < p->k->profile.nfns; f++)
			if (!strcmp(p->k->profile.fn[f].name, "SAVE"))
				us = p->k->profile.fn[f].us + (uint64_t)(p->k->profile.fn[f].us_per_byte * (double)bytes);
		x_end_at(p, w, p->world->now + us);
		return;
	}
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

static inline int x_plan(void *arg, const struct plan_results *r, uint64_t first, struct plan *ret, struct err *e)
{
	struct xpeer *p = arg;

	if (p->planned) {
		p->over = true;
		plan_init(ret, "none", p->rank, p->plan->nmembers, p->plan->member);
		return 0;
	}
	json_t *j = plan_to_json(p->plan);
	int rc = plan_from_json(ret, j, e);

	json_decref(j);
	p->planned = true;
	if (p->world->conf->iterations)
		ret->iterations = p->world->conf->iterations;
	return rc;
}

static inline void x_log(void *arg, const char *line, size_t len)
{
	struct xpeer *p = arg;
	const char *kind = strstr(line, "\"kind\":\"");

	if (!strstr(line, "\"ev\":\"end\"") || !kind)
		return;
	p->finish = p->world->now;
	for (int k = 0; k < PLAN_KINDS_COUNT; k++)
		if (!strncmp(kind + 8, plan_kind_name((enum plan_kind)k), strcspn(kind + 8, "\"")) &&
		    !plan_kind_name((enum plan_kind)k)[strcspn(kind + 8, "\"")])
			p->ran[k]++;
}

static inline void x_broken(void *arg, const struct err *e) { fail_msg("executor: %s", e->text); }

static inline void x_die(struct timer *t)
{
	struct xdone *d = container_of(t, struct xdone, t);
	struct xworld *w = d->p->world;

	d->p->dead = true;
	for (uint32_t i = 0; i < w->n; i++)
		if (!w->peer[i].dead)
			x_deliver(&w->peer[i]);
	free(d);
}

static inline void kit_compare(const struct kit *k, const struct xworld *w)
{
	for (uint32_t i = 0; i < k->n; i++) {
		const struct predict_peer *o = &k->out.peer[i];
		const struct xpeer *p = &w->peer[i];
		struct exec_view v;

		exec_view(p->x, &v);
		if (o->died)
			continue;
		if ((p->finish ? p->finish - X0 : 0) != o->finish_us)
			fail_msg("peer %u ends at %llu us, predicted %llu", i, (unsigned long long)p->finish,
				(unsigned long long)o->finish_us);
		assert_int_equal(v.arena_peak_bytes, o->peak[0]);       /* T5 */
		for (int c = 0; c < PLAN_CLASSES_COUNT; c++) {          /* T4 */
			assert_int_equal(p->sent[c], o->sent[c]);
			assert_int_equal(p->received[c], o->received[c]);
		}
		for (int c = 0; c < PLAN_KINDS_COUNT; c++)
			assert_int_equal(p->ran[c], o->ran[c]);
		assert_true(p->over == o->finished);
	}
}

static inline void x_close(struct xworld *w)
{
	for (uint32_t i = 0; i < w->n; i++) {
		struct xpeer *p = &w->peer[i];

		list_each_safe(it, &p->mail)
			free(list_entry(it, struct xmail, link));
		list_each_safe(it, &p->waits) {
			struct xwait *v = list_entry(it, struct xwait, link);

			heap_set(&w->heap, &v->limit, 0);
			free(v->from);
			free(v->want);
			free(v);
		}
		free(p->seen);
	}
	for (uint32_t i = 0; i < w->n; i++) {
		w->peer[i].dead = true;
		exec_free(w->peer[i].x, NULL, NULL);
	}
	for (struct timer *t; (t = heap_pop(&w->heap)); )
		t->fire(t);
	list_each_safe(it, &w->limbo) {         /* jobs end unheard */
		struct xdone *d = list_entry(it, struct xdone, link);

		d->job->done(d->job);
		free(d);
	}
	heap_done(&w->heap);
	free(w->peer);
}

static inline void kit_execute(struct kit *k)
{
	static const struct env_ops env_ops = { .now = x_now, .timer = x_arm, .work = x_work, .lane = x_lane };
	static const struct exec_ops ops = { .load = x_load, .net = x_net, .cancel = x_cancel };
	const struct exec_cb cb = { .plan = x_plan, .log = x_log, .broken = x_broken };
	struct xworld w = { .n = k->n, .conf = &k->conf, .nmembers = k->plan[0].nmembers, .now = X0 };

	heap_init(&w.heap);
	list_init(&w.limbo);
	list_init(&w.ends);
	w.peer = xcalloc(k->n, sizeof(*w.peer));
	for (uint32_t i = 0; i < k->n; i++) {
		struct xpeer *p = &w.peer[i];
		struct exec_conf conf = { .env = &p->env, .profile = &k->profile, .ops = &ops, .ops_arg = p,
			.speed = k->conf.speed ? k->conf.speed[k->plan[i].me] : 1 };

		*p = (struct xpeer){ .env = { .ops = &env_ops }, .k = k, .world = &w, .plan = &k->plan[i],
			.rank = k->plan[i].me };
		list_init(&p->mail);
		list_init(&p->waits);
		if (k->conf.hooks)
			conf.hooks = &k->conf.hooks[p->rank];
		p->x = exec_new(&conf, &cb, p);
		exec_wake(p->x);
		if (k->conf.dies_at_us && k->conf.dies_at_us[p->rank]) {
			struct xdone *d = xcalloc(1, sizeof(*d));

			*d = (struct xdone){ .t = { .fire = x_die }, .p = p };
			heap_set(&w.heap, &d->t, X0 + k->conf.dies_at_us[p->rank]);
		}
	}
	/* Everything that ends at one instant ends before anything starts, as in the predictor. */
	for (struct timer *t; (t = heap_peek(&w.heap)) && !(k->conf.horizon_us && t->at_us > X0 + k->conf.horizon_us); ) {
		w.now = t->at_us > w.now ? t->at_us : w.now;
		for (uint32_t i = 0; i < k->n; i++)
			exec_hold(w.peer[i].x, true);
		for (; t && t->at_us <= w.now; t = heap_peek(&w.heap)) {
			(void)heap_pop(&w.heap);
			t->fire(t);
		}
		for (uint32_t i = 0; i < k->n; i++)
			exec_hold(w.peer[i].x, w.peer[i].dead);
	}
	kit_compare(k, &w);
	x_close(&w);
}

#endif
