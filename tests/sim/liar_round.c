/* Lies about what was done: what it brings into a round (READY, the vector), what it says of others (MISSING), what it
 * has processed and wants to (PROGRESS, GRANT). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "liar.h"

/* ---- READY ---- */

/* Positions of others, of nobody, of the far end of all numbers, one by one. */
static void claims(struct world *w, int node, struct ranges *c, uint64_t *samples)
{
	struct liar *l = w->user;
	struct apeer *p = world_peer(w, node), *o = world_peer(w, (node + 1) % LIAR_PEERS);
	if (node != l->node || !p->samples)
		return;
	uint64_t end = (1ull << 62) - 4096, from = p->avg->me->grant.n ? p->avg->me->grant.v[0].lo : 0;
	unsigned which = (unsigned)lie_draw(l, 5);
	ranges_clear(c);
	l->said++;
	if (which == 0 && o->grant.n)
		ranges_add(c, o->grant.v[0].lo, o->grant.v[0].lo + 8);
	else if (which == 1)
		ranges_add(c, end, end + 64);
	else if (which == 2)
		for (uint64_t k = 0; k < 3000; k++)
			ranges_add(c, from + 2 * k, from + 2 * k + 1);
	else if (which == 3)
		ranges_add(c, from, from + 3000);
	else
		ranges_add(c, p->avg->point.done.n ? p->avg->point.done.v[0].lo : 0, from + 1);
	*samples = ranges_count(c);
}

static void ready_claims(struct liar *l)
{
	l->w->claims = claims;
}

/* More samples than can be, of positions that go with them. */
static void ready_brags(struct liar *l)
{
	l->w->brags[l->node] = 1ull << 40;
	l->said++;
}

/* ---- the vector ---- */

static void large(struct world *w, int node, float *x)
{
	struct liar *l = w->user;
	for (size_t k = 0; k < w->conf.len && node == l->node; k++)
		x[k] = 1e6f * world_gradient(k, 1);
	l->said += node == l->node;
}

static void flipped(struct world *w, int node, float *x)
{
	struct liar *l = w->user;
	for (size_t k = 0; k < w->conf.len && node == l->node; k++)
		x[k] *= -50;
	l->said += node == l->node;
}

static void not_a_number(struct world *w, int node, float *x)
{
	struct liar *l = w->user;
	if (node == l->node)
		x[lie_draw(l, w->conf.len)] = lie_draw(l, 2) ? NAN : INFINITY;
	l->said += node == l->node;
}

static void mean_large(struct liar *l)
{
	l->w->twist = large;
}

static void mean_flipped(struct liar *l)
{
	l->w->twist = flipped;
}

static void mean_nan(struct liar *l)
{
	l->w->twist = not_a_number;
}

/* ---- MISSING ---- */

/* Some of the others of the round that v leads; how many. */
static size_t victims(struct liar *l, const struct round *r, struct buf *ret)
{
	size_t n = 0;
	for (size_t i = 0; i < r->b.n; i++)
		if (!id_eq(&r->b.m[i].id, net_self(l->e->net)) && lie_draw(l, 2)) {
			buf_put(ret, r->b.m[i].id.b, 32);
			n++;
		}
	return n;
}

static json_t *complaint(struct liar *l, const struct round *r, size_t nonfinite)
{
	json_t *j = hub_json(l->e->avg);
	json_object_set_new(j, "missing", json_true());
	json_object_set_new(j, "attempt", json_integer(r->attempt));
	json_object_set_new(j, "round", json_hex(r->id, DIGEST));
	json_object_set_new(j, "nonfinite", json_integer((json_int_t)nonfinite));
	json_object_set_new(j, "slow", json_integer(lie_draw(l, 2) ? 0 : 5));
	return j;
}

static void complain(struct liar *l, struct apeer *v, bool nonfinite)
{
	const struct round *r = v->avg->round;
	struct buf b = { 0 };
	if (!r || !r->lead || r->lead->phase != LEAD_DATA)
		return;
	size_t n = victims(l, r, &b);
	l->said++;
	net_post(l->e->net, net_self(v->net), KIND_AVG_MISSING, complaint(l, r, nonfinite ? n : 0), blob_steal(&b),
		CLASS_control);
}

static void missing_silent(struct liar *l, struct apeer *v)
{
	complain(l, v, false);
}

static void missing_nonfinite(struct liar *l, struct apeer *v)
{
	complain(l, v, true);
}

static void answer_missing(struct liar *l, struct request *req, bool nonfinite)
{
	const struct round *r = NULL;
	struct buf b = { 0 };
	for (int i = 0; i < LIAR_PEERS && !r; i++)
		if (id_eq(net_self(world_peer(l->w, i)->net), &req->f.from))
			r = world_peer(l->w, i)->avg->round;
	if (!req->wants_reply)
		return;
	size_t n = r ? victims(l, r, &b) : 0;
	l->said++;
	net_reply(req, r ? complaint(l, r, nonfinite ? n : 0) : NULL, blob_steal(&b));
}

static void silent_answered(void *arg, struct request *req)
{
	answer_missing(arg, req, false);
}

static void nonfinite_answered(void *arg, struct request *req)
{
	answer_missing(arg, req, true);
}

static void missing_answers(struct liar *l)
{
	net_on(l->e->net, KIND_AVG_ATTEMPT, lie_draw(l, 2) ? silent_answered : nonfinite_answered, l);
}

/* ---- PROGRESS, GRANT ---- */

static json_t *at_point(struct liar *l, const struct apeer *v)
{
	json_t *j = hub_json(l->e->avg);
	json_object_set_new(j, "epoch", json_integer((json_int_t)v->avg->point.epoch));
	json_object_set_new(j, "prev", json_hex(v->avg->point.prev, DIGEST));
	return j;
}

/* It has done everything, and is faster than anybody. */
static void report_much(struct liar *l, struct apeer *v)
{
	json_t *j = at_point(l, v);
	json_object_set_new(j, "samples", json_integer((json_int_t)1 << (lie_draw(l, 2) ? 40 : 47)));
	json_object_set_new(j, "rate", json_real(1e300));
	json_object_set_new(j, "bw", json_integer(INT64_MAX));
	lie_call(l, v, KIND_AVG_PROGRESS, j, NULL);
}

/* Its parameters are others. */
static void report_digest(struct liar *l, struct apeer *v)
{
	json_t *j = at_point(l, v);
	uint8_t params[16];
	lie_bytes(l, params, sizeof params);
	json_object_set_new(j, "samples", json_integer(16));
	json_object_set_new(j, "params_tree", json_hex(params, 16));
	lie_call(l, v, KIND_AVG_PROGRESS, j, NULL);
}

/* All the positions that there are. */
static void grant_all(struct liar *l, struct apeer *v)
{
	json_t *j = at_point(l, v);
	json_object_set_new(j, "used", json_integer((json_int_t)(lie_draw(l, 2) ? grant_most(v->avg) : INT64_MAX)));
	lie_call(l, v, KIND_AVG_GRANT, j, NULL);
}

#define INSIDE (MEMBER | CLIENT)
const struct lie lies_round[] = {
	{ "ready", "claims", INSIDE, ready_claims, NULL, 0, "claimed too far" },
	{ "ready", "brags", INSIDE, ready_brags, NULL, 0, "claimed too far" },
	{ "mean", "large", INSIDE, mean_large, NULL, 0, "out of line", .apart = 0.6 },
	{ "mean", "flipped", INSIDE, mean_flipped, NULL, 0, "out of line", .apart = 0.6 },
	/* Of a client: who found it alone is left out now and then, while the piece is on its way to the next owner. */
	{ "mean", "nan", MEMBER, mean_nan, NULL, 0, "nonfinite", .slow = 4 },
	{ "missing", "silent", INSIDE, NULL, missing_silent, MSEC },
	{ "missing", "nonfinite", INSIDE, NULL, missing_nonfinite, MSEC },
	{ "missing", "answers", INSIDE, missing_answers, NULL, 0, "complains alone", .slow = 4 },
	{ "report", "much", STRANGER | INSIDE, NULL, report_much },
	{ "report", "digest", STRANGER | INSIDE, NULL, report_digest },
	{ "report", "grant", STRANGER | INSIDE, NULL, grant_all },
	{ 0 }
};
