/* What a leader keeps of its round, until it is over: its calls, who has said what; and giving the round up, which the
 * members do as well. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "avg/lead.h"

void lead_free(struct round *r)
{
	struct lead *l = r->lead;
	if (!l)
		return;
	env_timer(r->a->env, &l->timer, 0);
	complaints_free(l);
	lead_calls_drop(l);
	for (size_t i = 0; i < r->b.n; i++) {
		ranges_free(&l->m[i].ready.claimed);
		free(l->m[i].hash);
	}
	free(l->m);
	free(l->samples);
	tree_free(&l->tree);
	free(l->near);
	free(l->stand);
	free(l);
	r->lead = NULL;
}

void lead_give_up(struct round *r, const char *why)
{
	struct avg *a = r->a;
	struct err e;
	struct attempt at = { .term = r->term, .no = r->lead->attempts, .give_up = true };
	struct buf b = { 0 };
	memcpy(at.round, r->id, DIGEST);
	snprintf(at.why, sizeof at.why, "%s", why);
	attempt_encode(&at, &b);
	for (size_t i = 0; i < r->b.n; i++)
		if ((int)i != r->me && !r->lead->m[i].gone)
			net_post(a->net, &r->b.m[i].id, KIND_AVG_ATTEMPT, hub_json(a), blob_copy(b.p, b.len), CLASS_control);
	buf_free(&b);
	a->fails = a->fails < 6 ? a->fails + 1 : 6;
	a->wait_us = now_of(a) + (20 * MS << a->fails);
	err_set(&e, ERR_STATE, "%s", why);
	r->lead->phase = LEAD_OVER;
	member_fail(r, &e);
}

static bool prompt_ready(const struct round *r)
{
	bool some = false;
	for (size_t i = 0; i < r->b.n; i++) {
		const struct lead_member *m = &r->lead->m[i];
		if (m->behind || !(m->awaited || (int)i == r->me))
			continue;
		if (!m->is_ready && !m->refused && !m->gone)
			return false;
		some = some || m->is_ready;
	}
	return some;
}

void lead_measure(struct round *r)
{
	struct lead *l = r->lead;
	uint64_t took = now_of(r->a) - l->phase_us;
	if (l->measured || !prompt_ready(r))
		return;
	l->measured = true;
	if (took < r->b.ready_us)
		times_add(&r->a->ready_times, took);
}

void lead_acked(struct round *r, size_t i, const uint8_t *ack, size_t n)
{
	struct lead_member *m = &r->lead->m[i];
	struct mate *mate = mate_find(r->a, &r->b.m[i].id);
	size_t hashes = r->b.parts * TREE256;
	struct err e;
	m->answered = true;
	m->is_signed = (int)i != r->me;         /* what this peer holds it says by the COMMIT */
	if (n == hashes + (m->is_signed ? SIG_BYTES : 0)) {
		free(m->hash);
		m->hash = xmemdup(ack, hashes);
		if (m->is_signed)
			memcpy(m->sig, ack + hashes, SIG_BYTES);
		m->acked = true;
		r->lead->acked_us = now_of(r->a);
		if (mate) {
			mate->unacked -= mate->unacked > 0;
			mate->alone = 0;
		}
	} else if (!m->acked) {                 /* it is in the round, and says nothing of it: who waits, waits in vain */
		err_set(&e, ERR_INVALID, "an ACK of %zu bytes; of %zu parts it has %zu", n, r->b.parts, hashes + SIG_BYTES);
		note_forged(r->a, &r->b.m[i].id, &e);
		m->gone = true;
		r->lead->again |= r->lead->phase == LEAD_DATA && lead_reduces(r, i);
	}
}

void lead_calls_drop(struct lead *l)
{
	list_each_safe(it, &l->calls) {
		struct lead_call *c = list_entry(it, struct lead_call, link);
		net_cancel(l->r->a->net, c->call);
		list_del(&c->link);
		free(c);
	}
}

void member_fail(struct round *r, const struct err *e)
{
	if (r->commit || r->fail || r->closed)
		return;
	r->fail = xmemdup(e, sizeof *e);
	kick(r->a);
}
