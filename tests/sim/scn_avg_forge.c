/* A member that forges: it holds the swarm's key, is in the roster, averages honestly, and beside that says what is not
 * its to say. Nobody's history, term or hyperparameters change by it, nobody gives up its state, and epochs go on. */
#include <stdlib.h>
#include <string.h>
#include "avg/int.h"
#include "avg_world.h"
#include "check.h"

#define PEERS 5

struct forge {
	struct world *w; struct sim *s; int evil; struct apeer *e;      /* of the evil node */
	struct rng rng; unsigned said; uint64_t pause_us;
};

typedef void lie_fn(struct forge *f, struct apeer *victim);

static void ignored(void *arg, const struct frame *f, const struct err *e)
{
}

static void say(struct forge *f, struct apeer *to, enum kind k, json_t *j, struct buf *b)
{
	f->said++;
	net_call(f->e->net, net_self(to->net), k, j, blob_steal(b), CLASS_control, SEC, ignored, NULL);
}

static void random_round(struct forge *f, uint8_t round[DIGEST])
{
	for (int i = 0; i < DIGEST; i++)
		round[i] = (uint8_t)rng_u64(&f->rng);
}

static json_t *head(struct forge *f, uint64_t term)
{
	json_t *j = hub_json(f->e->avg);
	json_object_set_new(j, "term", json_integer((json_int_t)term));
	return j;
}

static struct world *world(struct sim *s, struct forge *f, uint64_t start_us)
{
	struct world *w = world_new(s, 320, PEERS * 32, 16, 10 * MSEC);
	*f = (struct forge){ .w = w, .s = s, .evil = (int)rng_below(sim_rng(s), PEERS) };
	rng_seed(&f->rng, sim_seed(s) + 77);
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

/* Every few milliseconds, to everybody, for some epochs: whatever a round is at. */
static void tell(struct forge *f, lie_fn *lie, unsigned times)
{
	for (unsigned k = 0; k < times; k++) {
		sim_run_for(f->s, 1 + rng_below(&f->rng, f->pause_us ? f->pause_us : 20 * MSEC));
		for (int i = 0; i < PEERS; i++)
			if (i != f->evil)
				lie(f, world_peer(f->w, i));
	}
}

/* Honest peers have lost nothing. */
static void unmoved(struct forge *f)
{
	uint64_t newest = world_newest(f->w);
	sim_check(f->s, f->said > 0);
	world_go_on(f->w, 6);
	sim_check(f->s, world_newest(f->w) >= newest + 6);
	for (int i = 0; i < PEERS; i++) {
		struct apeer *p = world_peer(f->w, i);
		if (i == f->evil)
			continue;
		for (int why = 0; why < 4; why++)
			if (p->resyncs[why])
				sim_fail(f->s, "node %d has given up its state (%d): node %d said so", i, why, f->evil);
		double lr = json_number_value(json_object_get(p->point.params, "lr"));
		if (lr != 0.1 || p->point.params_version)
			sim_fail(f->s, "node %d has hyperparameters that nobody may set: lr %g", i, lr);
	}
	world_free(f->w);
}

/* What a leader says in its own rounds is its to say. */
static bool leads(const struct forge *f, const struct apeer *v)
{
	return (v->avg->leader && id_eq(&v->avg->leader->id, net_self(f->e->net))) ||
		(v->avg->round && id_eq(&v->avg->round->b.leader, net_self(f->e->net)));
}

/* ---- COMMIT ---- */

/* Of everything, on this peer's word: its own parts, its own hyperparameters; or the victim alone, whose mean would be
 * its own vector. */
static void forge_commit(struct forge *f, struct apeer *v)
{
	const struct avg *e = f->e->avg;
	struct body c = { .what = BODY_COMMIT, .run = e->conf.run, .leader = e->me->id, .epoch = v->avg->point.epoch + 1,
		.len = e->conf.len, .params_version = 7, .params = json_pack("{s:f}", "lr", 9.0), .rows = 1 };
	struct buf b = { 0 };
	struct round *r = v->avg->round;
	if (leads(f, v))
		return;
	bool alone = rng_below(&f->rng, 3) == 0, mine = rng_below(&f->rng, 2), held = r && rng_below(&f->rng, 2);
	uint32_t terms[] = { 0, 1, v->avg->term, v->avg->term + 1, 1000, UINT32_MAX };
	c.term = terms[rng_below(&f->rng, 6)];
	memcpy(c.prev, v->avg->point.prev, DIGEST);
	random_round(f, c.round);
	if (held)
		memcpy(c.round, r->id, DIGEST);
	c.n = held ? r->b.n : alone ? 1 : 2;
	c.m = xcalloc(c.n, sizeof *c.m);
	for (size_t i = 0; i < c.n; i++)
		c.m[i].id = held ? r->b.m[i].id : i ? *net_self(f->e->net) : *net_self(v->net);
	size_t who = mine ? c.n - 1 : 0;
	c.m[who].flags = MATE_IN;
	c.m[who].samples = c.weight = 16;
	ranges_add(&c.m[who].claimed, 5000000, 5000016);
	c.parts = held ? r->b.parts : 1;
	c.part = xcalloc(c.parts + 1, sizeof *c.part);
	c.part[0] = (struct wire_part){ .owner = (uint16_t)(c.n - 1), .len = c.len };
	for (size_t p = 0; held && p < c.parts; p++)
		c.part[p] = r->b.part[p];
	body_sign(f->e->avg, &c, &b);
	body_free(&c);
	say(f, v, KIND_AVG_COMMIT, head(f, c.term), &b);
}

static void scn_commit(struct sim *s)
{
	struct forge f;
	world(s, &f, 2 * SEC);
	begin(&f);
	f.pause_us = 2 * MSEC;
	tell(&f, forge_commit, 400);
	unmoved(&f);
}

/* ---- terms ---- */

static uint64_t much(struct forge *f)
{
	uint64_t v[] = { 1000, UINT32_MAX, (1ull << 32) + 1, INT64_MAX, UINT32_MAX - 1ull };
	return v[rng_below(&f->rng, 5)];
}

static void forge_recover(struct forge *f, struct apeer *v)
{
	json_t *j = head(f, much(f));
	struct buf none = { 0 };
	json_object_set_new(j, "epoch", json_integer((json_int_t)v->avg->point.epoch));
	json_object_set_new(j, "prev", json_hex(v->avg->point.prev, DIGEST));
	say(f, v, KIND_AVG_RECOVER, j, &none);
}

/* A BEGIN by one who does not lead: in its term, and in one that nobody reaches. */
static void forge_begin(struct forge *f, struct apeer *v)
{
	struct avg *a = f->e->avg;
	struct body b = { .what = BODY_BEGIN, .run = a->conf.run, .leader = a->me->id, .epoch = v->avg->point.epoch,
		.term = rng_below(&f->rng, 2) ? UINT32_MAX : 1000, .len = a->conf.len, .params = json_pack("{s:f}", "lr", 9.0),
		.rows = 1, .ready_us = SEC, .data_us = SEC };
	struct buf bytes = { 0 };
	uint64_t term = rng_below(&f->rng, 2) ? b.term : much(f);
	memcpy(b.prev, v->avg->point.prev, DIGEST);
	random_round(f, b.round);
	b.n = 2;
	b.m = xcalloc(b.n, sizeof *b.m);
	b.m[0].id = *net_self(v->net);
	b.m[1].id = *net_self(f->e->net);
	b.part = xcalloc(2, sizeof *b.part);
	b.parts = 1;
	b.part[0] = (struct wire_part){ .owner = (uint16_t)rng_below(&f->rng, 2), .len = b.len };
	body_sign(a, &b, &bytes);
	body_free(&b);
	say(f, v, KIND_AVG_BEGIN, head(f, term), &bytes);
}

/* Of the round that is under way: its end, another C, a term that nobody has. */
static void forge_attempt(struct forge *f, struct apeer *v)
{
	struct round *r = v->avg->round;
	struct buf b = { 0 };
	if (!r || r->lead || leads(f, v))
		return;
	struct attempt at = { .term = rng_below(&f->rng, 2) ? r->term : (uint32_t)much(f), .no = r->attempt + 1 +
		(uint32_t)rng_below(&f->rng, 3), .give_up = rng_below(&f->rng, 2), .n = r->b.n, .parts = r->b.parts, .rows = 1,
		.data_us = SEC };
	memcpy(at.round, r->id, DIGEST);
	at.samples = xcalloc(at.n, sizeof *at.samples);
	at.owner = xcalloc(at.parts + 1, sizeof *at.owner);
	at.samples[rng_below(&f->rng, at.n)] = 5;
	attempt_encode(&at, &b);
	attempt_free(&at);
	say(f, v, KIND_AVG_ATTEMPT, head(f, 0), &b);
}

/* Beside the averager's own handler: that one would be answered first. */
static void answer_term(void *arg, struct request *req)
{
	struct forge *f = arg;
	f->said++;
	if (req->wants_reply)
		net_reply(req, json_pack("{s:I}", "term", (json_int_t)much(f)), NO_BLOB);
}

static void scn_recover(struct sim *s)
{
	struct forge f;
	world(s, &f, 2 * SEC);
	begin(&f);
	tell(&f, forge_recover, 100);
	unmoved(&f);
}

static void scn_begin(struct sim *s)
{
	struct forge f;
	world(s, &f, 2 * SEC);
	begin(&f);
	tell(&f, forge_begin, 100);
	unmoved(&f);
}

static void scn_attempt(struct sim *s)
{
	struct forge f;
	world(s, &f, 2 * SEC);
	begin(&f);
	f.pause_us = MSEC;                      /* a round is over in a few */
	tell(&f, forge_attempt, 600);
	unmoved(&f);
}

/* It answers every ATTEMPT with a term that nobody has. */
static void scn_answer(struct sim *s)
{
	struct forge f;
	world(s, &f, 2 * SEC);
	begin(&f);
	net_on(f.e->net, KIND_AVG_ATTEMPT, answer_term, &f);
	sim_run_for(s, 3 * SEC);
	unmoved(&f);
}

static const struct scn list[] = { SCN(commit), SCN(recover), SCN(begin), SCN(attempt), SCN(answer), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
