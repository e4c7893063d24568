/* A round begins, with its BEGIN or the COMMIT that stands in for it, and ends as a tail, until its last transfer and
 * job end (reap.c); and whose death it must hear of meanwhile. */
#include <string.h>
#include "avg/grid_flow.h"
#include "avg/grow.h"
#include "avg/lead.h"
#include "avg/sent.h"

void round_weights(struct round *r, const uint64_t *samples)
{
	body_weights(&r->b, r->b.n, samples, r->w);
	r->total = 0;
	for (size_t i = 0; i < r->b.n; i++)
		r->total += samples[i];
}

/* What has been carried since it was counted last: results go on when a round is over. */
void round_count(struct round *r)
{
	r->a->bytes_in += r->bytes_in - r->counted_in;
	r->a->bytes_out += r->bytes_out - r->counted_out;
	r->counted_in = r->bytes_in;
	r->counted_out = r->bytes_out;
}

/* Whose death this peer must hear of at once: the leader's (always), those that it waits for, and those who wait for
 * it; as the leader, everybody's. */
void round_care(struct round *r)
{
	bool all = r->lead || id_eq(&r->b.leader, &r->a->me->id);
	for (size_t i = 0; i < r->b.n; i++) {
		bool next = r->me >= 0 && !r->cared[i] && (int)i != r->me && (all || (r->flow ? grid_flow_touches(r, i) :
			tree_touches(&r->tree, (size_t)r->me, i)));
		struct mate *m = next ? mate_find(r->a, &r->b.m[i].id) : NULL;
		if (!m)
			continue;
		r->cared[i] = true;
		roster_care(r->a, m, 1);
	}
}

static void care_no_more(struct round *r)
{
	for (size_t i = 0; i < r->b.n; i++) {
		struct mate *m = r->cared[i] ? mate_find(r->a, &r->b.m[i].id) : NULL;
		r->cared[i] = false;
		if (m)
			roster_care(r->a, m, -1);
	}
}

/* BEGIN tells of members that came since the last commit. */
static void know_all(struct avg *a, const struct body *b)
{
	for (size_t i = 0; i < b->n; i++) {
		const struct wire_member *w = &b->m[i];
		bool known = mate_find(a, &w->id) != NULL;
		struct mate *m = mate_make(a, &w->id);
		if (m)                          /* who leads next depends on it: all must think the same, each of itself, too */
			m->fresh = (w->flags & MATE_NEW) || !m->member;
		if (!m || m == a->me || (w->flags & MATE_GONE))
			continue;
		m->live = m->live || !known || (w->flags & MATE_NEW) || believed(a, m);
		if (!m->member) {
			m->member = true;
			m->flags = w->flags & (MATE_FOLLOWER | MATE_CLIENT | MATE_AUX | MATE_HOLD);
			m->at = w->at;
		}
		net_learn(a->net, &w->id, &w->at);
	}
}

/* What the round's hyperparameters say of the wire, or else the spec. */
static int read_coding(struct round *r, const struct body *b, struct err *e)
{
	const struct avg_conf *c = &r->a->conf;
	const json_t *codec = json_object_get(b->params, "codec"), *robust = json_object_get(b->params, "robust"),
		*feedback = json_object_get(b->params, "error_feedback");
	r->robust = c->robust;
	r->feedback = feedback ? json_is_true(feedback) : c->error_feedback;
	if (robust && robust_parse(json_string_value(robust), &r->robust, e))
		return -1;
	if ((r->tree.rows > 1 || b->grid.dims) && r->robust != ROBUST_NONE)
		return err_set(e, ERR_INVALID, "a mean that is %s needs every contribution at its owner; the round is in %s",
			robust_name(r->robust), b->grid.dims ? "a grid" : "rows");
	if (b->held && r->robust != ROBUST_NONE)
		return err_set(e, ERR_INVALID, "a mean that is %s is not made of units whose members hold parts of the vector",
			robust_name(r->robust));
	if (coding_make(&r->coding, codec ? codec : c->codec, c->tensors, c->ntensors, c->len, e))
		return -1;
	return b->grid.dims ? grid_allowed(r, b, e) : 0;
}

static void late_fire(struct timer *t)
{
	struct round *r = container_of(t, struct round, late);
	if (grow_fired(r))
		env_after(r->a->env, t, r->data_us / 4);
	else if (++r->lateness < flow_patience(r))
		env_after(r->a->env, t, r->data_us);
	flow_missing(r);
}

struct round *round_new(struct avg *a, struct body *b, const void *bytes, size_t n, struct err *e)
{
	struct round *r = xcalloc(1, sizeof *r);
	r->a = a;
	r->b = *b;
	r->me = round_member(r, &a->me->id);
	r->mean_is_x = b->n == 1 && r->me == 0;
	r->hi = a->conf.len;
	if (b->held && r->me >= 0) {
		r->lo = b->held[r->me].keep_lo;
		r->hi = b->held[r->me].keep_hi;
	}
	size_t len = (r->hi - r->lo + (r->hi == r->lo)) * sizeof(float);
	r->mean_in = r->mean_is_x || r->me < 0 ? NULL : round_room(a, len);
	r->mean = r->mean_in ? round_base(r->mean_in->p, r->lo) : NULL;
	bool ready = r->me >= 0 && (r->mean_in || r->mean_is_x);
	if (!ready)
		err_set(e, r->me < 0 ? ERR_STATE : ERR_NOMEM, r->me < 0 ? "this peer is not in the round" :
			"no memory for a mean of %zu bytes", len);
	body_tree(b, b->n, &r->tree);
	if (!ready || read_coding(r, b, e)) {
		lease_put(r->mean_in);
		tree_free(&r->tree);
		free(r);
		return NULL;
	}
	buf_put(&r->bytes, bytes, n);
	if (b->what == BODY_BEGIN)
		body_digest(bytes, n, r->id);
	else
		memcpy(r->id, b->round, DIGEST);
	*b = (struct body){ 0 };
	r->term = r->b.term;
	r->w = xcalloc(r->b.n, sizeof *r->w);
	r->bad = xcalloc(r->b.n, sizeof *r->bad);
	r->broken = xcalloc(r->b.n, sizeof *r->broken);
	r->odd = xcalloc(r->b.n, sizeof *r->odd);
	r->part = xcalloc(r->b.parts + 1, sizeof *r->part);
	for (size_t p = 0; p < r->b.parts; p++) {
		r->part[p].off = r->b.part[p].off;
		r->part[p].len = r->b.part[p].len;
		flow_place(r, p);
		r->part[p].plain = coding_plain(&r->coding, r->part[p].off, r->part[p].len);
		r->part[p].bytes = coding_bytes(&r->coding, r->part[p].off, r->part[p].len);
	}
	if (r->b.grid.dims)
		grid_flow_new(r);
	sents_open(r);
	r->begun_us = now_of(a);
	r->late = (struct timer){ .fire = late_fire, .name = "avg.late" };
	r->silent = (struct timer){ .fire = a->silent, .name = "avg.silent" };
	a->round = r;
	know_all(a, &r->b);
	r->cared = xcalloc(r->b.n, sizeof *r->cared);
	round_care(r);
	round_touch(r);
	return r;
}

/* The leader has been heard: it may be silent for this long again. Those further down the order wait longer. */
void round_touch(struct round *r)
{
	struct avg *a = r->a;
	uint64_t us = 2 * r->b.ready_us + (flow_patience(r) + 3) * r->b.data_us + a->conf.round_floor_us, rank = 0;
	if (!us || r->from_commit)
		us = unmeasured_us(a);
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		rank += m->member && m->live && memcmp(m->order, a->me->order, 32) < 0;
	}
	env_after(a->env, &r->silent, us + (rank > 8 ? 8 : rank) * a->conf.round_floor_us);
}

void round_refuse(struct request **req, const char *why)
{
	struct err e;
	if (!*req)
		return;
	err_set(&e, ERR_STATE, "%s", why);
	net_refuse(*req, &e);
	*req = NULL;
}

/* May the reducers of that round hold another contribution of this peer than the one it would bring now? They may when
 * it has left the round once, and when it entered at this point of the history: perhaps it was here in an earlier
 * life. Raw contributions are kept until COMMIT, so the old bytes would be summed under the new claim. */
bool round_spent(const struct avg *a, const uint8_t id[DIGEST])
{
	for (unsigned i = 0; i < SPENT && i < a->nspent; i++)
		if (!memcmp(a->spent[i], id, DIGEST))
			return true;
	return !a->last_commit.len;
}

/* It came to nothing, and this peer was as late as all: should it lead the next one, that leaves more time. */
static void learn(struct round *r)
{
	if (r->own_late && !r->commit && !r->lead)
		times_short(&r->a->data_times, 2, r->b.data_us, unmeasured_us(r->a));
}

/* Those that stand on a round which is not applied (early.c). */
void early_drop(struct avg *a)
{
	while (!list_empty(&a->early))
		round_close(list_entry(a->early.next, struct round, link));
}

/* No more of this round: cancels, unlinks; the memory goes when jobs and results on their way are over (reap). */
void round_close(struct round *r)
{
	struct avg *a = r->a;
	if (r->closed)
		return;
	r->closed = true;
	learn(r);
	if (r->told_x && !r->from_commit)
		memcpy(a->spent[a->nspent++ % SPENT], r->id, DIGEST);
	care_no_more(r);
	env_timer(a->env, &r->late, 0);
	env_timer(a->env, &r->silent, 0);
	round_refuse(&r->ready_req, "the round is over");
	round_refuse(&r->ack_req, "the round is over");
	flow_stop(r, false);
	if (!a->x_jobs && !r->mean_is_x)
		sum_settle(r, r->applied);
	if (r->lead) {
		lead_calls_drop(r->lead);
		env_timer(a->env, &r->lead->timer, 0);
	}
	if (r->early)
		list_del(&r->link);
	r->early = false;
	if (a->round == r) {
		a->round = NULL;
		if (!r->applied)                /* nothing stands on it */
			early_drop(a);
	}
	list_push(&a->tails, &r->link);
	kick(a);
}

void tell_begin(struct round *r)
{
	struct avg *a = r->a;
	struct avg_begin b = { .epoch = r->b.epoch, .term = r->term, .members = (uint32_t)r->b.n,
		.deadline_us = now_of(a) + r->b.ready_us };
	r->told_begin = true;
	a->cb.begin(a->arg, &b);
}

/* The owner has contributed to a round that another one replaces: the same contribution goes into that. */
void round_inherit(struct round *r, const struct round *old)
{
	if (r->b.generation != old->b.generation || !r->b.held != !old->b.held)
		return;                         /* other elements: they are asked for */
	r->told_begin = old->told_begin;
	r->behind = old->behind;
	r->contributed = old->contributed;
	r->x = old->x;
	r->samples = old->samples;
	ranges_copy(&r->claimed, &old->claimed);
	grow_inherit(r, old);
}
