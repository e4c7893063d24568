/* Positions to process: what the leader promises to members, and how a member asks for more before it runs out. */
#include "avg/claims.h"
#include "avg/int.h"
#include "avg/ledger.h"
#include "common/jrpc.h"

#define GRANT_US (2 * SECOND)

/* Leader: brings m's promise up to what an epoch needs, beside `used` positions that it has processed already. */
void grant_top_up(struct avg *a, struct mate *m, uint64_t used)
{
	struct ranges taken = { 0 };
	uint64_t have = ranges_count(&m->grant), want = ledger_want(share_of(a, m), m->micro ? m->micro :
		a->conf.micro_batch) + used;
	if (a->conf.unordered || a->conf.dealt || have >= want || (m->flags & (MATE_AUX | MATE_FOLLOWER)))
		return;
	taken_all(a, &taken);
	ledger_cut(&taken, a->conf.data_limit, want - have, m->grant.n < CLAIMS_PIECES ? CLAIMS_PIECES - m->grant.n : 1,
		&m->grant);
	ranges_free(&taken);
}

void grant_tell(struct avg *a)
{
	struct ranges left = { 0 };
	ranges_copy(&left, &a->me->grant);
	ranges_sub_all(&left, &a->claimed);
	if (a->cb.grant && !(a->me->flags & (MATE_AUX | MATE_FOLLOWER)))
		a->cb.grant(a->arg, &left);
	ranges_free(&left);
}

static void given_by(struct avg *a, const struct id *who)
{
	a->granted_by = *who;
	a->granted_gen = a->gen;
}

/* What another leader gave since the last commit is not in that: who leads now hears it from those who have it. */
json_t *grant_held(const struct avg *a)
{
	bool other = a->granted_gen == a->gen && !id_eq(&a->granted_by, &a->leader->id) && !PLANTED(GRANTS_UNTOLD);
	return other ? ranges_json(&a->me->grant) : NULL;
}

/* What m has from a leader before: nobody else is given it, unless somebody has it already. */
void grant_told(struct avg *a, struct mate *m, const json_t *held)
{
	struct ranges taken = { 0 }, more = { 0 };
	if (!held || ranges_parse(&more, held, NULL)) {
		ranges_free(&more);
		return;
	}
	taken_all(a, &taken);
	ranges_sub_all(&more, &taken);
	if (more.n && more.n + m->grant.n <= CLAIMS_PIECES && more.v[more.n - 1].hi <= claims_end_of(a) &&
			ranges_count(&more) + ranges_count(&m->grant) <= grant_most(a))
		ranges_add_all(&m->grant, &more);
	ranges_free(&taken);
	ranges_free(&more);
}

static void granted(void *arg, const struct frame *f, const struct err *e)
{
	struct avg *a = arg;
	struct ranges g = { 0 };
	a->grant_call = NULL;
	a->grant_us = now_of(a) + 20 * MS;
	if (f && a->state == AVG_IN && !ranges_parse(&g, json_object_get(f->json, "grant"), NULL) &&
			ranges_count(&g) > ranges_count(&a->me->grant) && !ranges_overlap(&g, &a->point.done)) {
		ranges_copy(&a->me->grant, &g);
		given_by(a, &f->from);
		grant_tell(a);
	}
	ranges_free(&g);
}

/* It has not heard yet who holds what. */
static bool takes_over(const struct avg *a) { return a->recover && is_leader(a) && !PLANTED(GRANTS_UNTOLD); }

void grant_need(struct avg *a)
{
	uint64_t unit = a->conf.micro_batch ? a->conf.micro_batch : 1, have, used;
	if (a->conf.unordered || a->conf.dealt || a->state != AVG_IN || a->me->flags & (MATE_AUX | MATE_FOLLOWER) ||
			!a->leader || a->round || takes_over(a))
		return;
	used = ranges_count(&a->claimed);
	have = ranges_count(&a->me->grant);
	have = have > used ? have - used : 0;
	uint64_t low = ledger_want(share_of(a, a->me), a->conf.micro_batch) / 4;
	if (have >= low && have >= 2 * unit)
		return;
	if (is_leader(a)) {
		grant_top_up(a, a->me, used);
		if (ranges_count(&a->me->grant) > have + used) {
			given_by(a, &a->me->id);
			grant_tell(a);
		}
		return;
	}
	if (a->grant_call || now_of(a) < a->grant_us)
		return;
	json_t *j = hub_json(a);
	json_object_set_new(j, "epoch", json_integer((json_int_t)a->point.epoch));
	json_object_set_new(j, "prev", json_hex(a->point.prev, DIGEST));
	json_object_set_new(j, "used", json_integer((json_int_t)used));
	a->grant_call = net_call(a->net, &a->leader->id, KIND_AVG_GRANT, j, NO_BLOB, CLASS_control,
		net_deadline(a->net, &a->leader->id, GRANT_US), granted, a);
}

void grant_on(struct avg *a, struct request *req)
{
	uint64_t epoch, used;
	uint8_t prev[DIGEST];
	struct err e;
	struct mate *m = mate_find(a, &req->f.from);
	if (json_get_u64(req->f.json, "epoch", &epoch, &e) || json_get_hex(req->f.json, "prev", prev, DIGEST, &e) ||
		json_get_u64(req->f.json, "used", &used, &e)) {
		net_refuse(req, &e);
		return;
	}
	if (a->state != AVG_IN || !is_leader(a) || takes_over(a) || !m || !m->member || a->round ||
			!same_point(a, epoch, prev) || used > grant_most(a) + 16 * (uint64_t)m->micro) {
		err_set(&e, ERR_STATE, "positions come from the leader of this epoch, between rounds");
		net_refuse(req, &e);
		return;
	}
	grant_top_up(a, m, used);
	net_reply(req, json_pack("{s:o}", "grant", ranges_json(&m->grant)), NO_BLOB);
}
