/* A member that complains of others who have done their part: that they are silent, that they bring what is no number.
 * It costs it its own part in the round, and them nothing. */
#include <stdlib.h>
#include <string.h>
#include "avg/int.h"
#include "avg_world.h"
#include "check.h"

#define PEERS 6

struct accuse {
	struct world *w; struct sim *s; int evil; bool nonfinite, answers; struct rng rng; unsigned said, out;
};

/* Some of the others of the round that the leader leads; how many. */
static size_t victims(struct accuse *x, const struct round *r, struct buf *ret)
{
	size_t n = 0;
	for (size_t i = 0; i < r->b.n; i++)
		if (!id_eq(&r->b.m[i].id, net_self(world_peer(x->w, x->evil)->net)) && rng_below(&x->rng, 2)) {
			buf_put(ret, r->b.m[i].id.b, 32);
			n++;
		}
	return n;
}

static json_t *words(struct accuse *x, const struct round *r, size_t n)
{
	json_t *j = hub_json(world_peer(x->w, x->evil)->avg);
	json_object_set_new(j, "missing", json_true());
	json_object_set_new(j, "attempt", json_integer(r->attempt));
	json_object_set_new(j, "round", json_hex(r->id, DIGEST));
	json_object_set_new(j, "nonfinite", json_integer(x->nonfinite ? (json_int_t)n : 0));
	json_object_set_new(j, "slow", json_integer(0));
	return j;
}

static void complain(struct accuse *x)
{
	struct apeer *e = world_peer(x->w, x->evil);
	for (int i = 0; i < PEERS; i++) {
		const struct round *r = world_peer(x->w, i)->avg->round;
		struct buf b = { 0 };
		if (i == x->evil || !r || !r->lead || r->lead->phase != LEAD_DATA)
			continue;
		size_t n = victims(x, r, &b);
		x->said++;
		net_post(e->net, net_self(world_peer(x->w, i)->net), KIND_AVG_MISSING, words(x, r, n), blob_steal(&b),
			CLASS_control);
	}
}

static void complain_in_answer(void *arg, struct request *req)
{
	struct accuse *x = arg;
	const struct round *r = NULL;
	struct buf b = { 0 };
	for (int i = 0; i < PEERS && !r; i++)
		if (id_eq(net_self(world_peer(x->w, i)->net), &req->f.from))
			r = world_peer(x->w, i)->avg->round;
	if (!req->wants_reply)
		return;
	size_t n = r ? victims(x, r, &b) : 0;
	x->said++;
	net_reply(req, r ? words(x, r, n) : NULL, blob_steal(&b));
}

static void count(struct world *w, struct apeer *p, const struct avg_commit *c, const float *mean)
{
	struct accuse *x = w->user;
	const struct id *e = net_self(world_peer(w, x->evil)->net);
	for (size_t i = 0; i < c->left_out_n && p->node == (x->evil ? 0 : 1); i++)
		x->out += !id_eq(&c->left_out[i], e);
}

static void scene(struct sim *s, bool nonfinite)
{
	struct world *w = world_new(s, 640, PEERS * 32, 16, 10 * MSEC);
	struct accuse x = { .w = w, .s = s, .evil = (int)rng_below(sim_rng(s), PEERS), .nonfinite = nonfinite,
		.answers = sim_seed(s) % 2 };
	rng_seed(&x.rng, sim_seed(s) + 5);
	w->user = &x;
	w->start_us = 2 * SEC;
	world_add(w, PEERS);
	world_settle(w, 20 * SEC);
	world_run_to(w, 6, 20 * SEC);
	w->saw = count;
	if (x.answers)
		net_on(world_peer(w, x.evil)->net, KIND_AVG_ATTEMPT, complain_in_answer, &x);
	uint64_t from = world_newest(w);
	for (unsigned k = 0; k < 4000; k++) {
		sim_run_for(s, 500);
		if (!x.answers)
			complain(&x);
	}
	sim_check(s, x.said > 10);
	if (x.out)
		sim_fail(s, "%u of %llu rounds were without somebody because node %d complained", x.out,
			(unsigned long long)(world_newest(w) - from), x.evil);
	sim_check(s, world_newest(w) >= from + 6);
	world_go_on(w, 6);
	world_free(w);
}

static void scn_silent(struct sim *s) { scene(s, false); }

static void scn_not_finite(struct sim *s) { scene(s, true); }

static const struct scn list[] = { SCN(silent), SCN(not_finite), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
