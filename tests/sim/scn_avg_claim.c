/* A member that says of everybody's state that it is not the swarm's: another history is longer or has more samples, or
 * their parameters are others. Nobody gives up its state, epochs go on, and it is named. */
#include <stdlib.h>
#include <string.h>
#include "avg/int.h"
#include "avg_world.h"
#include "check.h"

#define PEERS 5

struct claim {
	struct world *w; struct sim *s; int evil; struct apeer *e; struct rng rng;
	unsigned said, shown, named; uint64_t epoch; uint8_t prev[DIGEST]; struct buf commit;
	bool shows;
};

static void ignored(void *arg, const struct frame *f, const struct err *e)
{
}

static void say(struct claim *x, struct apeer *to, enum kind k, json_t *j, struct buf *b)
{
	x->said++;
	net_call(x->e->net, net_self(to->net), k, j, blob_steal(b), CLASS_control, SEC, ignored, NULL);
}

static void random_bytes(struct claim *x, uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)rng_u64(&x->rng);
}

/* A COMMIT of that epoch of everybody, with its own signature and others that nobody has made. */
static void invent(struct claim *x, uint64_t epoch)
{
	const struct avg *a = x->e->avg;
	struct body c = { .what = BODY_COMMIT, .run = a->conf.run, .leader = a->me->id, .epoch = epoch, .len = a->conf.len,
		.rows = 1, .params = json_deep_copy(a->point.params), .params_version = a->point.params_version };
	uint8_t sig[SIG_BYTES];
	random_bytes(x, c.prev, DIGEST);
	random_bytes(x, c.round, DIGEST);
	c.n = PEERS;
	c.m = xcalloc(c.n, sizeof *c.m);
	for (size_t i = 0; i < c.n; i++) {
		c.m[i].id = *net_self(world_peer(x->w, (int)i)->net);
		c.m[i].flags = MATE_IN | MATE_READY;
		c.m[i].samples = 1000;
		ranges_add(&c.m[i].claimed, 1000 * i, 1000 * i + 1000);
	}
	c.weight = 1000 * PEERS;
	c.parts = 1;
	c.part = xcalloc(2, sizeof *c.part);
	c.part[0] = (struct wire_part){ .owner = 0, .len = c.len };
	buf_clear(&x->commit);
	body_sign(x->e->avg, &c, &x->commit);
	body_digest(x->commit.p, x->commit.len, x->prev);
	x->commit.len -= 2;
	for (uint16_t i = 0; i < PEERS; i++) {
		random_bytes(x, sig, sizeof sig);
		buf_u16(&x->commit, i);
		buf_put(&x->commit, sig, SIG_BYTES);
	}
	buf_u16(&x->commit, PEERS);
	x->epoch = epoch;
	body_free(&c);
}

/* SHOW: what it has invented, a COMMIT of something else, or none. */
static void shows(void *arg, struct request *req)
{
	struct claim *x = arg;
	struct buf b = { 0 };
	uint8_t params[16];
	bool full = false;
	json_get_bool(req->f.json, "commit", &full, NULL);
	random_bytes(x, params, sizeof params);
	x->shown++;
	json_t *j = json_pack("{s:I,s:o,s:I,s:o}", "epoch", (json_int_t)x->epoch, "prev", json_hex(x->prev, DIGEST),
		"samples", (json_int_t)1 << 40, "params", json_hex(params, 16));
	if (!full && rng_below(&x->rng, 2)) {
		json_object_set_new(j, "epoch", json_integer((json_int_t)x->e->avg->point.epoch));
		json_object_set_new(j, "prev", json_hex(x->e->avg->point.prev, DIGEST));
	}
	if (full && x->shows) {
		buf_u32(&b, (uint32_t)x->commit.len);
		buf_put(&b, x->commit.p, x->commit.len);
		buf_u32(&b, (uint32_t)x->commit.len);
		buf_put(&b, x->commit.p, x->commit.len);
		past_put(x->e->avg, &b);
	} else if (full) {
		buf_u32(&b, 0);
		buf_u32(&b, 0);
	}
	net_reply(req, j, blob_steal(&b));
}

/* JOIN of that history: on top of everybody's, or of another from the beginning. */
static void claim(struct claim *x, struct apeer *v, uint64_t epoch, uint64_t samples, bool on_theirs)
{
	struct buf b = { 0 };
	json_t *j = term_json(x->e->avg, hub_json(x->e->avg));
	if (!x->commit.len || rng_below(&x->rng, 4) == 0)
		invent(x, epoch);
	json_object_set_new(j, "epoch", json_integer((json_int_t)x->epoch));
	json_object_set_new(j, "prev", json_hex(x->prev, DIGEST));
	json_object_set_new(j, "samples", json_integer((json_int_t)samples));
	json_object_set_new(j, "flags", json_integer(0));
	json_object_set_new(j, "micro", json_integer(16));
	json_object_set_new(j, "in", json_true());
	json_object_set_new(j, "leading", json_true());
	json_object_set_new(j, "shows", json_true());
	json_object_set_new(j, "at", json_endpoint(net_endpoint(x->e->net)));
	door_put(x->e->avg, j);
	if (on_theirs) {
		past_put(x->e->avg, &b);
	} else {
		uint8_t mark[PAST_MARK];
		buf_u64(&b, x->epoch);
		buf_u16(&b, 10);
		for (int i = 0; i < 10; i++) {
			random_bytes(x, mark, sizeof mark);
			buf_put(&b, mark, sizeof mark);
		}
	}
	say(x, v, KIND_AVG_JOIN, j, &b);
}

static void ahead(struct claim *x, struct apeer *v)
{
	claim(x, v, v->avg->point.epoch + (rng_below(&x->rng, 2) ? 1000000 : 3), (uint64_t)1 << 40, true);
}

static void fork_(struct claim *x, struct apeer *v)
{
	claim(x, v, v->avg->point.epoch + rng_below(&x->rng, 6), (uint64_t)1 << 40, false);
}

/* "Ask me", and then: you are behind, in a fork, or have other parameters. */
static void redirect(struct claim *x, struct apeer *v, const char *why, uint64_t epoch)
{
	struct buf none = { 0 };
	json_t *j = hub_json(x->e->avg);
	json_object_set_new(j, "why", json_string(why));
	json_object_set_new(j, "id", json_hex(net_self(x->e->net)->b, 32));
	json_object_set_new(j, "at", json_endpoint(net_endpoint(x->e->net)));
	json_object_set_new(j, "epoch", json_integer((json_int_t)epoch));
	say(x, v, KIND_AVG_REDIRECT, j, &none);
}

static void asks(struct claim *x, struct apeer *v)
{
	if (!x->commit.len || rng_below(&x->rng, 4) == 0)
		invent(x, v->avg->point.epoch + 5);
	redirect(x, v, "redirect", v->avg->point.epoch + 1);
}

static void answers(void *arg, struct request *req)
{
	struct claim *x = arg;
	static const char *const what[] = { "behind", "fork", "diverged" };
	struct buf b = { 0 };
	if (rng_below(&x->rng, 2))
		buf_put(&b, x->commit.p, x->commit.len);
	net_reply(req, json_pack("{s:s,s:I,s:o}", "answer", what[rng_below(&x->rng, 3)], "epoch", (json_int_t)x->epoch,
		"donor", json_hex(net_self(x->e->net)->b, 32)), blob_steal(&b));
}

/* Where it leads, it may say so of its own. */
static void diverged(struct claim *x, struct apeer *v)
{
	const struct mate *leader = v->avg->leader;
	if (leader && id_eq(&leader->id, net_self(x->e->net)) && v->avg->digest_epoch == v->avg->point.epoch)
		redirect(x, v, "diverged", v->avg->point.epoch);
}

static void heard(struct world *w, int node, const char *code, const struct id *peer)
{
	struct claim *x = w->user;
	if (!strcmp(code, "doubt") && node != x->evil && peer && id_eq(peer, net_self(x->e->net)))
		x->named++;
}

static void scene(struct sim *s, void (*lie)(struct claim *x, struct apeer *v), bool answered)
{
	struct world *w = world_new(s, 320, PEERS * 32, 16, 10 * MSEC);
	struct claim x = { .w = w, .s = s, .evil = (int)rng_below(sim_rng(s), PEERS), .shows = sim_seed(s) % 2 };
	rng_seed(&x.rng, sim_seed(s) + 7);
	w->user = &x;
	w->start_us = 2 * SEC;
	world_add(w, PEERS);
	world_settle(w, 20 * SEC);
	world_run_to(w, 6, 20 * SEC);
	x.e = world_peer(w, x.evil);
	w->heard = heard;
	net_on(x.e->net, KIND_AVG_SHOW, shows, &x);
	if (answered)
		net_on(x.e->net, KIND_AVG_JOIN, answers, &x);
	uint64_t from = world_newest(w);
	for (unsigned k = 0; k < 400; k++) {
		sim_run_for(s, 1 + rng_below(&x.rng, 20 * MSEC));
		for (int i = 0; i < PEERS; i++)
			if (i != x.evil)
				lie(&x, world_peer(w, i));
	}
	for (int i = 0; i < PEERS; i++)
		for (int why = 0; why < 4; why++)
			if (i != x.evil && world_peer(w, i)->resyncs[why])
				sim_fail(s, "node %d has given up its state (%d): node %d said so", i, why, x.evil);
	sim_check(s, x.said > 10 && x.shown > 0 && x.named > 0);
	sim_check(s, world_newest(w) >= from + 6);
	world_go_on(w, 6);
	world_free(w);
	buf_free(&x.commit);
}

static void scn_ahead(struct sim *s) { scene(s, ahead, false); }

static void scn_fork(struct sim *s) { scene(s, fork_, false); }

static void scn_asks(struct sim *s) { scene(s, asks, true); }

static void scn_diverged(struct sim *s) { scene(s, diverged, false); }

static const struct scn list[] = { SCN(ahead), SCN(fork), SCN(asks), SCN(diverged), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
