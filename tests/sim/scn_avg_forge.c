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
	struct rng rng; unsigned said; uint64_t pause_us, begins;
};

typedef void lie_fn(struct forge *f, struct apeer *victim);
typedef int may_fn(struct world *w, const struct id *author, const json_t *patch, struct err *e);

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

static void scene(struct sim *s, lie_fn *lie, unsigned times, uint64_t pause_us, may_fn *may)
{
	struct forge f;
	world(s, &f, 2 * SEC)->may = may;
	begin(&f);
	f.pause_us = pause_us;
	tell(&f, lie, times);
	unmoved(&f);
}

/* What a leader says in its own rounds is its to say. */
static bool leads(const struct forge *f, const struct apeer *v)
{
	return led_by(v->avg, net_self(f->e->net), v->avg->term) ||
		(v->avg->round && id_eq(&v->avg->round->b.leader, net_self(f->e->net)));
}

/* ---- COMMIT ---- */

/* Of everything, on this peer's word: its own parts, its own hyperparameters; or the victim alone, whose mean would be
 * its own vector. */
static void forge_commit(struct forge *f, struct apeer *v)
{
	const struct avg *e = f->e->avg;
	struct body c = { .what = BODY_COMMIT, .run = e->conf.run, .leader = e->me->id, .epoch = v->avg->point.epoch + 1,
		.len = e->conf.len, .params_version = v->avg->point.params_version, .rows = 1 };
	struct buf b = { 0 };
	struct round *r = v->avg->round;
	if (leads(f, v))
		return;
	bool same = rng_below(&f->rng, 2);
	c.params_version += !same;
	c.params = same ? json_deep_copy(v->avg->point.params) : json_pack("{s:f}", "lr", 9.0);
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

static void scn_commit(struct sim *s) { scene(s, forge_commit, 400, 2 * MSEC, NULL); }

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

static void scn_recover(struct sim *s) { scene(s, forge_recover, 100, 0, NULL); }

static void scn_begin(struct sim *s) { scene(s, forge_begin, 100, 0, NULL); }

static void scn_attempt(struct sim *s) { scene(s, forge_attempt, 600, MSEC, NULL); }

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

/* ---- hyperparameters ---- */

/* Node 0 of those that are honest may, and only a rate. */
static int only_author(struct world *w, const struct id *author, const json_t *patch, struct err *e)
{
	const struct forge *f = w->user;
	const struct apeer *p = world_peer(w, f->evil ? 0 : 1);
	if (!p || !id_eq(author, net_self(p->net)))
		return err_set(e, ERR_AUTH, "only the author");
	return json_is_number(json_object_get(patch, "lr")) ? 0 : err_set(e, ERR_INVALID, "lr: a number");
}

/* To whoever leads: a change in its own name, signed well, or in the author's, signed by nobody. */
static void forge_propose(struct forge *f, struct apeer *v)
{
	struct buf none = { 0 }, b = { 0 };
	struct apeer *author = world_peer(f->w, f->evil ? 0 : 1);
	bool mine = rng_below(&f->rng, 2);
	uint64_t nonce = rng_u64(&f->rng) >> 1, asked = v->avg->point.epoch + 1;
	json_t *j = hub_json(f->e->avg), *patch = json_pack("{s:f}", "lr", 9.0);
	uint8_t sig[SIG_BYTES];
	buf_put(&b, f->e->avg->conf.run.b, 32);
	buf_u64(&b, nonce);
	buf_u64(&b, asked);
	wire_put_json(&b, patch);
	net_sign(f->e->net, b.p, b.len, sig);
	buf_free(&b);
	json_object_set_new(j, "author", json_hex(net_self((mine ? f->e : author)->net)->b, 32));
	json_object_set_new(j, "nonce", json_integer((json_int_t)nonce));
	json_object_set_new(j, "epoch", json_integer((json_int_t)asked));
	json_object_set_new(j, "sig", json_hex(sig, SIG_BYTES));
	json_object_set_new(j, "patch", patch);
	say(f, v, KIND_AVG_PROPOSE, j, &none);
}

static void scn_propose(struct sim *s) { scene(s, forge_propose, 100, 0, only_author); }

static void agreed(void *arg, uint64_t epoch, uint64_t version, const struct err *e)
{
	*(uint64_t *)arg = epoch;
}

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
	sim_check(s, f.e->avg->props == 1);
	old = f.e->avg->prop[0];
	old.patch = json_deep_copy(old.patch);
	world_run_to(w, world_newest(w) + 8, 20 * SEC);
	sim_check(s, at > 0);
	avg_propose(author->avg, json_pack("{s:f}", "lr", 0.1), 0, agreed, &back);
	world_run_to(w, world_newest(w) + 4, 20 * SEC);
	sim_check(s, back > 0);
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

/* It leads, answers everything, and never begins. */
static void scn_idle(struct sim *s)
{
	struct forge f;
	struct world *w = world(s, &f, 2 * SEC);
	begin(&f);
	uint64_t at = world_newest(w);
	for (unsigned k = 0; k < 60 * 1000; k++) {
		sim_run_for(s, MSEC);
		if (!is_leader(f.e->avg))
			continue;
		f.e->avg->wait_us = sim_now(s) + SEC;
		f.said++;
	}
	if (f.said && world_newest(w) < at + 4)
		sim_fail(s, "a leader that does not begin has held up epoch %llu for a minute",
			(unsigned long long)world_newest(w));
	f.said = 1;
	f.e->avg->wait_us = sim_now(s) + 1000 * SEC;
	unmoved(&f);
}

/* ---- what it brings ---- */

/* Positions of others, of nobody, of the far end of all numbers, one by one. */
static void claims(struct world *w, int node, struct ranges *c, uint64_t *samples)
{
	struct forge *f = w->user;
	struct apeer *p = world_peer(w, node), *o = world_peer(w, (node + 1) % PEERS);
	if (node != f->evil || !p->samples)
		return;
	uint64_t end = (1ull << 62) - 4096, from = p->avg->me->grant.n ? p->avg->me->grant.v[0].lo : 0;
	unsigned which = (unsigned)rng_below(&f->rng, 5);
	ranges_clear(c);
	f->said++;
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

static void only_granted(struct world *w, struct apeer *p, const struct avg_commit *c, const float *mean)
{
	struct forge *f = w->user;
	if (c->point->done.n > 64 || c->weight > 16 * PEERS * 32)
		sim_fail(w->s, "node %d: epoch %llu counts %llu samples, and %zu pieces are committed", p->node,
			(unsigned long long)c->epoch, (unsigned long long)c->weight, c->point->done.n);
	f->begins++;
}

static void scn_claim(struct sim *s)
{
	struct forge f;
	struct world *w = world(s, &f, 2 * SEC);
	w->saw = only_granted;
	begin(&f);
	w->claims = claims;
	world_run_to(w, world_newest(w) + 30, 60 * SEC);
	sim_check(s, f.said > 20);
	unmoved(&f);
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

static void scn_slept(struct sim *s)
{
	struct forge f;
	struct world *w = world(s, &f, 2 * SEC);
	w->conf.round_floor_us = 2 * SEC;
	begin(&f);
	for (int k = 0; k < 200000 && (f.evil = lacks_one(w)) < 0; k++)
		sim_run_for(s, 20);
	sim_check(s, f.evil >= 0);
	sim_pause(s, f.evil);
	f.begins = world_newest(w);
	sim_check(s, sim_run_until(s, succeeded, &f, 5 * SEC));
	sim_run_for(s, rng_below(&f.rng, 60 * MSEC));
	sim_resume(s, f.evil);
	world_go_on(w, 6);
	world_free(w);
}

static const struct scn list[] = { SCN(commit), SCN(recover), SCN(begin), SCN(attempt), SCN(answer), SCN(propose),
	SCN(leads), SCN(idle), SCN(claim), SCN(slept), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
