/* Lies that the matrix of scn_attack.c has no place for: a leader that brings hyperparameters that nobody may set, or
 * that somebody has set before; one that has slept and does not know it; and one that stands on another COMMIT. */
#include <stdlib.h>
#include <string.h>
#include "avg/int.h"
#include "avg_world.h"
#include "check.h"

#define PEERS 5

struct forge {
	struct world *w; struct sim *s; int evil; struct apeer *e;      /* of the evil node */
	struct rng rng; unsigned said; uint64_t pause_us, begins;
	struct id by;                           /* who has written the COMMIT behind begins, as the others took it */
};

static struct world *world(struct sim *s, struct forge *f, uint64_t start_us)
{
	struct world *w = world_new(s, 320, PEERS * 32, 16, 10 * MSEC);
	*f = (struct forge){ .w = w, .s = s, .evil = (int)rng_below(sim_rng(s), PEERS) };
	rng_seed(&f->rng, sim_seed(s) + 77);
	w->lawless = f->evil;
	w->user = f;
	w->start_us = start_us;
	return w;
}

static void begin(struct forge *f)
{
	world_add(f->w, PEERS);
	world_settle(f->w, 20 * SEC);
	world_run_to(f->w, 2, 20 * SEC);
	f->e = world_peer(f->w, f->evil);
}

/* Node 0 of those that are honest may, and only a rate. */
static int only_author(struct world *w, const struct id *author, const json_t *patch, struct err *e)
{
	const struct forge *f = w->user;
	const struct apeer *p = world_peer(w, f->evil ? 0 : 1);
	if (!p || !id_eq(author, net_self(p->net)))
		return err_set(e, ERR_AUTH, "only the author");
	return json_is_number(json_object_get(patch, "lr")) ? 0 : err_set(e, ERR_INVALID, "lr: a number");
}

static void agreed(void *arg, uint64_t epoch, uint64_t version, const struct err *e)
{
	*(uint64_t *)arg = epoch;
}

static bool is_agreed(struct sim *s, void *arg) { return *(const uint64_t *)arg > 0; }

/* It leads, and its BEGINs hold what nobody asked for, with a change that shall say so: in its own name; in the
 * author's; what the author has asked for once. */
static void scn_leads(struct sim *s)
{
	struct forge f;
	struct world *w = world(s, &f, 2 * SEC);
	struct apeer *author;
	struct wire_proposal old = { 0 };
	uint64_t at = 0, back = 0;
	w->may = only_author;
	w->alone = f.evil;                      /* nobody takes part in what it leads */
	begin(&f);
	author = world_peer(w, f.evil ? 0 : 1);
	avg_propose(author->avg, json_pack("{s:f}", "lr", 0.5), world_newest(w) + 5, agreed, &at);
	for (int k = 0; k < 4000 && !f.e->avg->props; k++)
		sim_run_for(s, 500);
	if (f.e->avg->props != 1) {
		sim_late(s, "node %d holds %zu changes, and is to have the author's to repeat it", f.evil, f.e->avg->props);
		world_free(w);
		return;
	}
	old = f.e->avg->prop[0];
	old.patch = json_deep_copy(old.patch);
	world_run_to(w, world_newest(w) + 8, 20 * SEC);
	sim_await(s, is_agreed, &at, 0);
	avg_propose(author->avg, json_pack("{s:f}", "lr", 0.1), 0, agreed, &back);
	world_run_to(w, world_newest(w) + 4, 20 * SEC);
	sim_await(s, is_agreed, &back, 0);
	for (unsigned k = 0; k < 400; k++) {
		struct avg *a = f.e->avg;
		sim_run_for(s, 1 + rng_below(&f.rng, 10 * MSEC));
		if (a->round)
			continue;
		json_object_set_new(a->point.params, "lr", json_real(is_leader(a) ? 9.0 : 0.1));
		if (a->props || !is_leader(a))
			continue;
		struct wire_proposal *p = a->prop = xrealloc(a->prop, sizeof *a->prop);
		*p = old;
		p->patch = json_deep_copy(old.patch);
		p->epoch = a->point.epoch + 1;
		unsigned which = (unsigned)rng_below(&f.rng, 3);
		if (which)
			p->nonce = rng_u64(&f.rng) >> 1;
		if (which == 1)
			p->author = *net_self(f.e->net);
		a->props = 1;
		f.said++;
	}
	json_decref(old.patch);
	world_go_on(w, 6);
	for (int i = 0; i < PEERS; i++) {
		struct apeer *p = world_peer(w, i);
		double lr = json_number_value(json_object_get(p->point.params, "lr"));
		if (i != f.evil && (lr != 0.1 || p->point.params_version != 2))
			sim_fail(s, "node %d has hyperparameters that nobody may set: lr %g, version %llu", i, lr,
				(unsigned long long)p->point.params_version);
	}
	world_free(w);
}

/* A leader sleeps with the last ACK on its way to it, and another has the promise of the others when it wakes, before
 * any deadline of its own: it does not decide. */
static bool succeeded(struct sim *s, void *arg)
{
	struct forge *f = arg;
	struct apeer *p = world_peer(f->w, (f->evil + 1) % PEERS);
	return p->avg->term > 0 || p->point.epoch > f->begins;
}

/* Who leads a round and waits for one more ACK; -1. */
static int lacks_one(struct world *w)
{
	for (int i = 0; i < PEERS; i++) {
		const struct round *r = world_peer(w, i)->avg->round;
		size_t acks = 0;
		for (size_t k = 0; r && r->lead && k < r->b.n; k++)
			acks += r->lead->m[k].acked;
		if (r && r->lead && r->b.n == PEERS && acks == PEERS - 1 && r->lead->m[r->me].acked)
			return i;
	}
	return -1;
}

static void saw(struct world *w, struct apeer *p, const struct avg_commit *c, const float *mean)
{
	struct forge *f = w->user;
	if (p->node != f->evil && c->epoch == f->begins + 1)
		f->by = c->leader;
}

/* It has written one, and the others have another's: that nobody takes it is the others' merit. */
static void wrote_none(struct forge *f, uint64_t us)
{
	bool wrote = false;
	f->e = world_peer(f->w, f->evil);
	for (uint64_t k = 0; k < us; k += 500) {
		sim_run_for(f->s, 500);
		wrote |= f->e->avg->signed_epoch == f->begins + 1;
	}
	if (wrote && !id_zero(&f->by) && !id_eq(&f->by, net_self(f->e->net)))
		sim_fail(f->s, "node %d: it has slept, and decides epoch %llu, which another leads", f->evil,
			(unsigned long long)f->begins + 1);
}

static void scn_slept(struct sim *s)
{
	struct forge f;
	struct world *w = world(s, &f, 2 * SEC);
	w->conf.round_floor_us = 2 * SEC;
	w->saw = saw;
	begin(&f);
	for (int k = 0; k < 200000 && (f.evil = lacks_one(w)) < 0; k++)
		sim_run_for(s, 20);
	if (f.evil < 0) {
		sim_late(s, "no leader has lacked one ACK");
		world_free(w);
		return;
	}
	sim_pause(s, f.evil);
	f.begins = world_newest(w);
	f.by = (struct id){ { 0 } };
	sim_await(s, succeeded, &f, 5 * SEC);
	sim_run_for(s, rng_below(&f.rng, 60 * MSEC));
	sim_resume(s, f.evil);
	wrote_none(&f, 500 * MSEC);
	world_go_on(w, 6);
	world_free(w);
}

/* Who leads, and nobody is in a round; -1. */
static int idle_leader(struct world *w)
{
	int leads = -1;
	for (int i = 0; i < PEERS; i++) {
		const struct avg *a = world_peer(w, i)->avg;
		if (a->round || a->point.epoch != world_newest(w))
			return -1;
		leads = is_leader(a) ? i : leads;
	}
	return leads;
}

/* It has applied another COMMIT of the last epoch than the others have, as a leader can that was cut off, and is their
 * leader all the same: nobody follows it from there. */
static void scn_elsewhere(struct sim *s)
{
	struct forge f;
	struct world *w = world(s, &f, 2 * SEC);
	w->forks_allowed = true;
	begin(&f);
	for (int k = 0; k < 200000 && (f.evil = idle_leader(w)) < 0; k++)
		sim_run_for(s, 20);
	if (f.evil < 0) {
		sim_late(s, "nobody has led while nobody was in a round");
		world_free(w);
		return;
	}
	f.e = world_peer(w, f.evil);
	f.e->point.prev[5] ^= 1;
	f.e->avg->point.prev[5] ^= 1;
	f.e->avg->target = 16;                  /* it does not wait for the others, whose samples are of another point */
	for (int k = 0; k < 2000 && !f.e->avg->round; k++)
		sim_run_for(s, 500);
	sim_in_time(s, f.e->avg->round != NULL);
	f.e->avg->target = PEERS * 32;
	sim_run_for(s, SEC);
	world_go_on(w, 6);
	world_free(w);
}

static const struct scn list[] = { SCN(leads), SCN(slept), SCN(elsewhere), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
