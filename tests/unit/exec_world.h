/* The world of exec_kit.h: virtual time, lanes without limit, links that carry one transfer at a time in each
 * direction. */
#ifndef TESTS_EXEC_WORLD_H
#define TESTS_EXEC_WORLD_H
#include "common/heap.h"
#define shape kernels_shape             /* a paper plan has a shape of its own */
#include "exec/exec.h"
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

#endif
