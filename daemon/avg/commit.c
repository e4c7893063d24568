/* The leader writes the COMMIT: who counted with which positions, what everybody is given next, the hashes of the
 * parts,
 * the hyperparameters. Its bytes are signed and sent to all; the leader applies them like everybody else, when one of
 * them has them (told.c). */
#include <stdlib.h>
#include <string.h>
#include "avg/claims.h"
#include "avg/grid_flow.h"
#include "avg/lead.h"
#include "avg/ledger.h"
#include "avg/near.h"

static bool in_round(const struct round *r, const struct mate *m)
{
	return round_member(r, &m->id) >= 0;
}

/* What remains promised to m, brought up to its share; `taken` grows with it. */
static void next_grant(struct avg *a, struct mate *m, const struct ranges *claimed, struct ranges *taken,
	size_t pieces, struct ranges *ret)
{
	ranges_copy(ret, &m->grant);
	ranges_sub_all(ret, claimed);
	if (a->conf.unordered || a->conf.dealt || (m->flags & (MATE_FOLLOWER | MATE_AUX))) {
		ranges_clear(ret);
		return;
	}
	uint64_t have = ranges_count(ret), want = ledger_want(share_of(a, m), m == a->me ? a->conf.micro_batch : m->micro);
	if (want > have)
		ledger_cut(taken, a->conf.data_limit, want - have, pieces > ret->n ? pieces - ret->n : 1, ret);
}

/* Was a member before this round, or is there: a leader may have named anybody in its BEGIN. */
static bool is_met(const struct avg *a, const struct mate *m)
{
	struct peer_info info;
	return m == a->me || !m->fresh || PLANTED(NOBODY_MET) || (net_peer(a->net, &m->id, &info) && info.last_seen_us);
}

static void member_of(struct round *r, struct body *c, struct mate *m, size_t i, bool listed)
{
	struct wire_member *w = &c->m[c->n++];
	struct lead *l = r->lead;
	if (m)
		body_put_member(r->a, m, w);
	else
		*w = r->b.m[i];
	w->grant = w->claimed = (struct ranges){ 0 };
	w->flags &= (uint8_t)~(MATE_IN | MATE_GONE | MATE_NEW | MATE_READY);
	if (!m || !m->live || !m->member || !is_met(r->a, m))
		w->flags |= MATE_GONE;
	if (listed && l->m[i].is_ready && !(w->flags & (MATE_FOLLOWER | MATE_AUX | MATE_HOLD | MATE_GONE)))
		w->flags |= MATE_READY;
	uint64_t samples = !listed ? 0 : PLANTED(LEFT_OUT_COUNTED) ? l->m[i].ready.samples : l->samples[i];
	if (!samples)
		return;
	w->flags |= MATE_IN;
	w->samples = samples;
	ranges_copy(&w->claimed, &l->m[i].ready.claimed);
	c->weight += w->samples;
}

/* Grants after claims: first what everybody keeps, then, from what nobody has, what each lacks, in member order. */
static void grants(struct avg *a, struct body *c, size_t pieces)
{
	struct ranges claimed = { 0 }, taken = { 0 };
	for (size_t i = 0; i < c->n; i++)
		ranges_add_all(&claimed, &c->m[i].claimed);
	ranges_copy(&taken, &a->point.done);
	ranges_add_all(&taken, &claimed);
	for (size_t i = 0; i < c->n; i++) {
		struct mate *m = c->m[i].flags & MATE_GONE ? NULL : mate_find(a, &c->m[i].id);
		if (m)
			ranges_add_all(&taken, &m->grant);
	}
	for (size_t i = 0; i < c->n; i++) {
		struct mate *m = c->m[i].flags & MATE_GONE ? NULL : mate_find(a, &c->m[i].id);
		if (m)
			next_grant(a, m, &claimed, &taken, pieces, &c->m[i].grant);
	}
	ranges_free(&claimed);
	ranges_free(&taken);
}

/* The hash that most members have of each part; the others find at COMMIT that theirs is another. */
static void put_hashes(struct round *r, struct wire_part *part)
{
	struct lead *l = r->lead;
	for (size_t p = 0; p < r->b.parts; p++) {
		size_t best = 0;
		for (size_t i = 0; i < r->b.n; i++) {
			size_t votes = 0;
			if (!l->m[i].acked || !tree_holds(&r->tree, p, i))
				continue;
			for (size_t k = 0; k < r->b.n; k++)
				votes += l->m[k].acked && tree_holds(&r->tree, p, k) &&
					!memcmp(l->m[k].hash + TREE256 * p, l->m[i].hash + TREE256 * p, TREE256);
			if (votes > best || (votes == best && (int)i == r->me)) {
				best = votes;
				memcpy(part[p].hash, l->m[i].hash + TREE256 * p, TREE256);
			}
			if (votes * 2 > r->b.n)
				break;
		}
	}
}

/* The rows of this round, and those of the next. */
static void put_rows(struct round *r, struct body *c)
{
	c->rows = r->tree.rows;
	if (c->rows == 1)
		return;
	c->row = xcalloc(c->n, sizeof *c->row);
	c->next = xcalloc(c->n, sizeof *c->next);
	c->sub = xmemdup(r->tree.sub, c->parts * c->rows * sizeof *c->sub);
	memcpy(c->row, r->tree.row, r->b.n * sizeof *c->row);
	near_rows(r, c->next);
	for (size_t i = r->b.n; i < c->n; i++)
		c->next[i] = NO_ROW;
}

/* Those that are in the COMMIT only hold nothing. */
static void put_units(const struct round *r, struct body *c)
{
	if (!r->b.held)
		return;
	c->generation = r->b.generation;
	c->units = r->b.units;
	c->held = xcalloc(c->n, sizeof *c->held);
	memcpy(c->held, r->b.held, r->b.n * sizeof *c->held);
	for (size_t i = r->b.n; i < c->n; i++)
		c->held[i].unit = NO_UNIT;
}

static void build(struct round *r, struct body *c)
{
	struct avg *a = r->a;
	*c = (struct body){ .what = BODY_COMMIT, .run = a->conf.run, .leader = a->me->id, .epoch = r->b.epoch + 1,
		.term = r->term, .attempt = r->attempt, .life = a->life, .minority = r->lead->minority, .hashes = r->b.hashes,
		.len = r->b.len, .params_version = r->b.params_version, .params = json_incref(r->b.params) };
	memcpy(c->prev, r->b.prev, DIGEST);
	memcpy(c->round, r->id, DIGEST);
	c->m = xcalloc(r->b.n + a->nmates, sizeof *c->m);
	for (size_t i = 0; i < r->b.n; i++)
		member_of(r, c, mate_find(a, &r->b.m[i].id), i, true);
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		if (m->member && m->live && !in_round(r, m) && c->n < WIRE_MEMBERS_MAX)
			member_of(r, c, m, 0, false);
	}
	c->part = xcalloc(r->b.parts + 1, sizeof *c->part);
	c->parts = r->b.parts;
	for (size_t p = 0; p < c->parts; p++)
		c->part[p] = (struct wire_part){ .owner = r->part[p].owner, .off = r->part[p].off, .len = r->part[p].len };
	if (r->flow)
		grid_lead_commit(r, c);
	else if (!r->mean_is_x)
		put_hashes(r, c->part);
	put_rows(r, c);
	put_units(r, c);
	grants(a, c, claims_pieces(r, c->n));
	propose_into_commit(r, c);
}

void lead_commit(struct round *r)
{
	struct avg *a = r->a;
	struct body c;
	struct buf bytes = { 0 };
	struct err e;
	if (r->b.epoch + 1 <= a->signed_epoch)
		life_begin(a);
	build(r, &c);
	body_sign(a, &c, &bytes);
	if (bytes.len > NET_BLOB_MAX) {         /* choose() sees to it that this does not come */
		hub_event(a, LOG_ERROR_, "round", NULL, "epoch %llu: its COMMIT has %zu bytes, at most %d can be sent",
			(unsigned long long)r->b.epoch, bytes.len, NET_BLOB_MAX);
		body_free(&c);
		buf_free(&bytes);
		lead_give_up(r, "its COMMIT is too large to be sent");
		return;
	}
	acks_put(r, &c, &bytes);
	a->signed_epoch = c.epoch;
	commit_send(a, &c, &bytes);
	if (member_commit(a, &c, bytes.p, bytes.len, &e)) {
		hub_event(a, LOG_ERROR_, "round", NULL, "own COMMIT refused: %s", e.text);
		body_free(&c);
		lost(a, AVG_MISSED, &a->me->id, a->point.epoch + 1);
	} else {
		told_wait(a->round);
	}
	buf_free(&bytes);
}
