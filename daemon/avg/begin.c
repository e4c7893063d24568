/* The leader opens a round: BEGIN names the members in order, who sums what (shape.c), and the
 * hyperparameters; READY brings what each has. Who was with us last time or has reported is waited for, others not. */
#include <stdlib.h>
#include <string.h>
#include "avg/int.h"
#include "avg/lead.h"
#include "avg/near.h"
#include "avg/share.h"
#include "avg/units.h"

#define ALL_AT_WORK_US (60 * SECOND)            /* for a first micro-batch that is given while it is made */

static int by_id(const void *x, const void *y)
{
	return id_cmp(&(*(struct mate *const *)x)->id, &(*(struct mate *const *)y)->id);
}

/* ---- BEGIN ---- */

static void gather(struct avg *a, struct body *b)
{
	struct mate **v = xcalloc(a->nmates, sizeof *v);
	size_t n = 0;
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		if (m->member && m->live && n < WIRE_MEMBERS_MAX)
			v[n++] = m;
	}
	qsort(v, n, sizeof *v, by_id);
	b->m = xcalloc(n, sizeof *b->m);
	b->n = n;
	b->hashes = a->conf.hashes;
	for (size_t i = 0; i < n; i++) {
		if (!PLANTED(HASHES_UNASKED))
			b->hashes = hashes_both(b->hashes, v[i]->hashes);
		body_put_member(a, v[i], &b->m[i]);
		b->m[i].grant = (struct ranges){ 0 };
		b->m[i].flags |= v[i]->fresh ? MATE_NEW : 0;
	}
	free(v);
}

/* What the longest micro-batch of a member may take, and a quarter. It may be in the middle of one, and a layer that
 * has begun ends before it answers; rounds at which all happened to be between two have measured nothing of that. Who
 * needs more than an epoch for one is not worth the wait. */
static uint64_t busiest_us(const struct avg *a, uint64_t most)
{
	uint64_t us = 0;
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		uint32_t micro = m == a->me ? a->conf.micro_batch : m->micro;
		double rate = m == a->me ? a->rate : m->rate;
		if (!m->member || !m->live || !m->awaited || (m->flags & (MATE_FOLLOWER | MATE_HOLD | MATE_AUX)) || !(rate > 0))
			continue;
		double step = (double)micro * 1e6 / rate;
		if (step > (double)us)
			us = step < (double)most ? (uint64_t)step : most;
	}
	return us * 5 / 4;
}

static uint64_t later_of(uint64_t x, uint64_t y) { return x > y ? x : y; }

static void begin_answered(void *arg, const struct frame *f, const struct err *e)
{
	struct lead_call *c = arg;
	struct round *r = c->r;
	struct ready ready;
	list_del(&c->link);
	if (f && !ready_decode(&ready, f->blob, f->blob_len, NULL)) {
		near_take(r, c->member, f->json);
		lead_ready(r, c->member, &ready);
		ranges_free(&ready.claimed);
	} else if (!r->lead->m[c->member].is_ready) {
		r->lead->m[c->member].refused = true;
		r->lead->m[c->member].elsewhere = e && lead_refused(e);
		lead_step(r);
	}
	free(c);
}

void lead_send_begin(struct round *r, size_t i)
{
	struct avg *a = r->a;
	struct lead_call *c = xcalloc(1, sizeof *c);
	*c = (struct lead_call){ .r = r, .member = i };
	list_push(&r->lead->calls, &c->link);
	json_t *j = term_json(a, hub_json(a));
	MARK(a, "avg.begin.before");
	c->call = net_call(a->net, &r->b.m[i].id, KIND_AVG_BEGIN, j, blob_copy(r->bytes.p, r->bytes.len), CLASS_control,
		r->b.ready_us + SECOND, begin_answered, c);
	MARK(a, "avg.begin.after");
}

/* Units that were late are not waited for; but somebody must be. */
static void await_units(const struct round *r)
{
	struct lead *l = r->lead;
	bool some = !r->b.held;
	for (size_t i = 0; i < r->b.n; i++)
		some = some || l->m[i].awaited;
	for (size_t i = 0; i < r->b.n && !some; i++)
		l->m[i].awaited = r->b.held[i].unit != NO_UNIT && !(r->b.m[i].flags & MATE_FOLLOWER);
}

struct lead *lead_new(struct round *r)
{
	struct lead *l = xcalloc(1, sizeof *l);
	l->r = r;
	l->m = xcalloc(r->b.n, sizeof *l->m);
	l->samples = xcalloc(r->b.n, sizeof *l->samples);
	body_tree(&r->b, r->b.n, &l->tree);
	l->timer = (struct timer){ .fire = lead_fire, .name = "avg.lead" };
	l->phase_us = now_of(r->a);
	list_init(&l->calls);
	bool shares = r->b.held && share_each(r->a) && !PLANTED(BEHIND_MEASURED);
	for (size_t i = 0; i < r->b.n; i++) {
		const struct mate *m = mate_find(r->a, &r->b.m[i].id);
		size_t head = body_head(&r->b, i);      /* a unit is waited for as a whole */
		const struct mate *h = head < r->b.n ? mate_find(r->a, &r->b.m[head].id) : NULL;
		l->m[i].gone = !m || !m->live;
		bool needed = r->b.held && !PLANTED(KEEPER_UNAWAITED) && units_needs(r->a, &r->b.m[i].id);
		l->m[i].behind = shares && !units_made(r->a, &r->b.m[i].id);
		l->m[i].awaited = ((h && h->awaited) || needed) && !(r->b.m[i].flags & MATE_FOLLOWER);
	}
	r->lead = l;
	await_units(r);
	return l;
}

void lead_begin(struct avg *a)
{
	struct body b = { .what = BODY_BEGIN, .run = a->conf.run, .leader = a->me->id, .epoch = a->point.epoch,
		.term = a->term, .life = a->life, .len = a->conf.len };
	struct buf bytes = { 0 };
	struct err e;
	uint64_t far = farthest_us(a);
	memcpy(b.prev, a->point.prev, DIGEST);
	a->env->ops->secure(a->env, b.round, DIGEST);
	b.ready_us = later_of(times_deadline(&a->ready_times, a->conf.round_floor_us, unmeasured_us(a)), 3 * far);
	b.ready_us = later_of(b.ready_us, busiest_us(a, a->epoch_us));
	b.data_us = later_of(times_deadline(&a->data_times, a->conf.round_floor_us, unmeasured_us(a)), 6 * far);
	if (a->grows)                           /* they bring what they are in the middle of */
		b.data_us = later_of(b.data_us, 2 * busiest_us(a, a->epoch_us ? a->epoch_us : ALL_AT_WORK_US));
	gather(a, &b);
	if (!units_put(a, &b)) {
		body_free(&b);
		a->wait_us = now_of(a) + SECOND;
		if (a->units->told != a->gen)
			hub_event(a, LOG_WARN_, "no whole unit", NULL, "epoch %llu: of no unit all members are here (%s): together "
				"they hold what no one of them does", (unsigned long long)a->point.epoch,
				units_missing(a, (char[64]){ 0 }, 64));
		a->units->told = a->gen;
		return;
	}
	propose_into_begin(a, &b);
	shape_make(a, &b);
	body_sign(a, &b, &bytes);
	struct round *r = round_new(a, &b, bytes.p, bytes.len, &e);
	buf_free(&bytes);
	if (!r) {
		body_free(&b);
		a->wait_us = now_of(a) + SECOND;
		hub_event(a, LOG_ERROR_, "round", NULL, "cannot begin: %s", e.text);
		return;
	}
	struct lead *l = lead_new(r);
	if (!PLANTED(NO_TIMER))
		env_after(a->env, &l->timer, r->b.ready_us);
	for (size_t i = 0; i < r->b.n; i++)
		if ((int)i != r->me)
			lead_send_begin(r, i);
	flow_open(r);
	tell_begin(r);
}
