/* A leader that tells members different COMMITs of one epoch, at the same time or later: whoever sees both bans it, and
 * so does everybody who hears of it; the run goes on without it, in one history. Nobody else is ever banned for that,
 * whatever is said. */
#include <stdlib.h>
#include <string.h>
#include "avg/lead.h"
#include "avg/proof.h"
#include "avg_world.h"
#include "check.h"
#include "net/crypt.h"

#define PEERS 7

struct faces {
	struct world *w; struct sim *s; int evil; struct apeer *e; struct id liar /* e may be dead */; struct rng rng;
	bool banned[PEERS]; unsigned named, said; uint64_t epoch; struct id flooder; bool caught; int victim;
};

static void ignored(void *arg, const struct frame *f, const struct err *e)
{
}

static void heard(struct world *w, int node, const char *code, const struct id *peer)
{
	struct faces *x = w->user;
	x->caught = x->caught || (peer && id_eq(peer, &x->flooder) && !strcmp(code, "forged"));
	if (node == x->evil || !x->e || !peer || !id_eq(peer, &x->liar))
		return;
	if (!strcmp(code, "equivocation"))
		x->banned[node] = true;
	x->named += !strcmp(code, "forged");
}

static struct faces *begin(struct sim *s, struct faces *x)
{
	struct world *w = world_new(s, 320, PEERS * 32, 16, 10 * MSEC);
	*x = (struct faces){ .w = w, .s = s, .evil = (int)rng_below(sim_rng(s), PEERS) };
	rng_seed(&x->rng, sim_seed(s) + 11);
	w->user = x;
	w->heard = heard;
	w->start_us = 2 * SEC;
	world_add(w, PEERS);
	world_settle(w, 20 * SEC);
	world_run_to(w, 3, 20 * SEC);
	w->liar[x->evil] = true;
	x->e = world_peer(w, x->evil);
	x->liar = *net_self(x->e->net);
	return x;
}

static bool all_banned(struct sim *s, void *arg)
{
	const struct faces *x = arg;
	for (int i = 0; i < PEERS; i++) {
		struct apeer *p = world_peer(x->w, i);
		struct peer_info info;
		if (i != x->evil && (!x->banned[i] || !net_peer(p->net, net_self(x->e->net), &info) || !info.banned_until_us))
			return false;
	}
	return true;
}

/* Epochs go on while it is there, and after. */
static void without_it(struct faces *x)
{
	sim_await_or(x->s, all_banned, x, 60 * SEC, "not everybody has banned node %d, which signed two COMMITs",
		x->evil);
	for (int i = 0; i < PEERS; i++)
		for (int k = 0; k < PEERS; k++) {
			struct peer_info info;
			if (i != x->evil && k != x->evil && net_peer(world_peer(x->w, i)->net, net_self(world_peer(x->w, k)->net),
					&info) && info.banned_until_us)
				sim_fail(x->s, "node %d has banned node %d, which is honest", i, k);
		}
	sim_run_for(x->s, 3 * SEC);
	sim_kill(x->s, x->evil);
	world_go_on(x->w, 6);
	world_free(x->w);
}

/* The COMMIT that it has just made, with the promises of one member gone: just as good, and another. */
static void other_face(struct faces *x, const struct buf *bytes, struct buf *ret)
{
	struct body c;
	struct err e;
	if (body_read(&c, bytes->p, bytes->len, &e)) {
		sim_fail(x->s, "its own COMMIT: %s", e.text);
		return;
	}
	ranges_clear(&c.m[rng_below(&x->rng, c.n)].grant);
	c.data_us = 1 + rng_below(&x->rng, 1000);
	body_sign(x->e->avg, &c, ret);
	body_free(&c);
}

static void tell(struct faces *x, int to, const struct buf *bytes)
{
	json_t *j = term_json(x->e->avg, hub_json(x->e->avg));
	x->said++;
	net_call(x->e->net, net_self(world_peer(x->w, to)->net), KIND_AVG_COMMIT, j, blob_copy(bytes->p, bytes->len),
		CLASS_control, SEC, ignored, NULL);
}

/* Those who would get the other one have all said that they hold the mean. */
static bool may_split(struct sim *s, void *arg)
{
	const struct faces *x = arg;
	const struct round *r = x->e->avg->round;
	if (!r || !r->lead || r->lead->phase != LEAD_DATA || r->commit)
		return false;
	for (size_t i = 0; i < r->b.n; i++)
		for (int k = 0; k < PEERS; k += 2)
			if (k != x->evil && id_eq(&r->b.m[i].id, net_self(world_peer(x->w, k)->net)) && !r->lead->m[i].acked)
				return false;
	return true;
}

static bool decided(struct sim *s, void *arg)
{
	const struct faces *x = arg;
	const struct avg *a = x->e->avg;
	return (a->round && a->round->commit) || a->point.epoch == x->epoch;
}

/* For one half of them the other half has gone, and the other way round; each gets its own COMMIT. */
static void for_half(struct faces *x, struct buf *ret)
{
	struct body c;
	struct err e;
	const struct avg *a = x->e->avg;
	const struct buf *bytes = a->round && a->round->commit ? &a->round->commit_bytes : &a->last_commit;
	if (body_read(&c, bytes->p, bytes->len, &e)) {
		sim_fail(x->s, "its own COMMIT: %s", e.text);
		return;
	}
	for (size_t i = 0; i < c.n; i++) {
		bool other = !id_eq(&c.m[i].id, &a->me->id);
		for (int k = 0; k < PEERS; k += 2)
			if (k != x->evil && id_eq(&c.m[i].id, net_self(world_peer(x->w, k)->net))) {
				c.m[i].flags &= (uint8_t)~MATE_GONE;
				other = false;
			}
		if (other)
			c.m[i].flags |= MATE_GONE;
	}
	body_sign(x->e->avg, &c, ret);
	body_free(&c);
}

/* Each half goes its own way for a while; when they meet they find out who has parted them. */
static void scn_two_faced(struct sim *s)
{
	struct faces x;
	struct buf other = { 0 };
	int side[PEERS];
	begin(s, &x);
	x.w->forks_allowed = true;
	x.w->alone = x.evil;
	bool split = sim_run_until(s, may_split, &x, 120 * SEC);
	if (split) {
		struct avg *a = x.e->avg;
		x.epoch = a->round->b.epoch + 1;
		for (int k = 0; k < PEERS; k++) {
			side[k] = k % 2 == 0 && k != x.evil;
			if (side[k])
				mate_find(a, net_self(world_peer(x.w, k)->net))->live = false;
		}
		split = sim_run_until(s, decided, &x, 20 * SEC);
		if (split)
			for_half(&x, &other);
		for (int k = 0; split && k < PEERS; k++)
			if (side[k])
				tell(&x, k, &other);
		sim_run_for(s, 2 * MSEC);
		sim_partition(s, side, PEERS);
		sim_run_for(s, 100 * MSEC + rng_below(&x.rng, 3 * SEC));
		sim_heal(s);
	}
	if (!split || !x.said) {
		sim_late(s, "node %d has not come to tell two COMMITs", x.evil);
		world_free(x.w);
		buf_free(&other);
		return;
	}
	without_it(&x);
	buf_free(&other);
}

static bool has_led(struct sim *s, void *arg)
{
	const struct faces *x = arg;
	struct body c;
	const struct avg *a = x->e->avg;
	if (!a->last_commit.len || body_read(&c, a->last_commit.p, a->last_commit.len, NULL))
		return false;
	bool own = id_eq(&c.leader, &a->me->id);
	body_free(&c);
	return own;
}

/* Everybody has the same one; then one of them, epochs later, gets another. */
static void scn_told_later(struct sim *s)
{
	struct faces x;
	struct buf other = { 0 };
	begin(s, &x);
	x.w->alone = x.evil;
	sim_await(s, has_led, &x, 120 * SEC);
	other_face(&x, &x.e->avg->last_commit, &other);
	world_run_to(x.w, world_newest(x.w) + 1 + rng_below(&x.rng, 6), 60 * SEC);
	int to = (x.evil + 1 + (int)rng_below(&x.rng, PEERS - 1)) % PEERS;
	tell(&x, to, &other);
	without_it(&x);
	buf_free(&other);
}

/* ---- made-up proofs ---- */

static void head_bytes(struct buf *b, const struct body_head *h)
{
	buf_u64(b, h->life);
	buf_u32(b, h->term);
	buf_put(b, h->round, DIGEST);
	buf_put(b, h->digest, DIGEST);
	buf_put(b, h->sig, SIG_BYTES);
}

/* About an honest one: nobody's signatures, one COMMIT twice, COMMITs of two epochs as if they were of one, the liar's
 * own under its name, or cut short. */
static void invent(struct faces *x, struct apeer *about, struct buf *b)
{
	struct body_head v[2] = { 0 };
	const struct avg *a = about->avg;
	struct body c;
	unsigned how = (unsigned)rng_below(&x->rng, 5);
	buf_put(b, net_self(about->net)->b, 32);
	if (a->last_commit.len && !body_read(&c, a->last_commit.p, a->last_commit.len, NULL)) {
		body_head_of(&c, a->last_commit.p, a->last_commit.len, &v[0]);
		v[1] = v[0];
		body_free(&c);
	}
	for (int i = 0; how == 0 && i < 64; i++)
		v[1].digest[i % DIGEST] = v[1].sig[i] = (uint8_t)rng_u64(&x->rng);
	if (how == 1)
		v[1].digest[0] ^= 1;
	if (how == 2) {
		const struct kept_commit *k = &a->kept.v[(a->point.epoch - 1) % KEPT_COMMITS];
		if (k->bytes.len && !body_read(&c, k->bytes.p, k->bytes.len, NULL)) {
			body_head_of(&c, k->bytes.p, k->bytes.len, &v[1]);
			v[1].life = v[0].life;
			body_free(&c);
		}
	}
	buf_u64(b, v[0].epoch);
	head_bytes(b, &v[0]);
	head_bytes(b, &v[1]);
	if (how == 4)
		b->len -= 1 + rng_below(&x->rng, 300);
}

static void frame(struct faces *x, struct apeer *v)
{
	struct buf b = { 0 };
	int who;
	do
		who = (int)rng_below(&x->rng, PEERS);
	while (who == x->evil);
	invent(x, world_peer(x->w, who), &b);
	x->said++;
	if (rng_below(&x->rng, 2)) {
		net_post(x->e->net, net_self(v->net), KIND_AVG_PROOF, hub_json(x->e->avg), blob_steal(&b), CLASS_control);
		return;
	}
	json_t *j = term_json(x->e->avg, hub_json(x->e->avg)), *list = json_array();
	json_array_append_new(list, json_hex(b.p, b.len));
	json_object_set_new(j, "proofs", list);
	json_object_set_new(j, "epoch", json_integer((json_int_t)v->avg->point.epoch));
	json_object_set_new(j, "prev", json_hex(v->avg->point.prev, DIGEST));
	json_object_set_new(j, "samples", json_integer((json_int_t)v->avg->point.samples));
	json_object_set_new(j, "flags", json_integer(0));
	json_object_set_new(j, "micro", json_integer(16));
	json_object_set_new(j, "in", json_true());
	door_put(x->e->avg, j);
	net_call(x->e->net, net_self(v->net), KIND_AVG_JOIN, j, NO_BLOB, CLASS_control, SEC, ignored, NULL);
	buf_free(&b);
}

static bool is_named(struct sim *s, void *arg)
{
	return ((const struct faces *)arg)->named > 0;
}

static void scn_framed(struct sim *s)
{
	struct faces x;
	begin(s, &x);
	for (unsigned k = 0; k < 40; k++) {
		sim_run_for(s, 1 + rng_below(&x.rng, 300 * MSEC));
		for (int i = 0; i < PEERS; i++)
			if (i != x.evil)
				frame(&x, world_peer(x.w, i));
	}
	for (int i = 0; i < PEERS; i++)
		for (int k = 0; k < PEERS; k++) {
			struct peer_info info;
			if (k != x.evil && net_peer(world_peer(x.w, i)->net, net_self(world_peer(x.w, k)->net), &info) &&
					info.banned_until_us)
				sim_fail(s, "node %d has banned node %d: node %d said so", i, k, x.evil);
		}
	sim_check(s, x.said > 10);
	sim_await(s, is_named, &x, 0);
	sim_kill(s, x.evil);
	world_go_on(x.w, 6);
	world_free(x.w);
}

/* ---- proofs without end ---- */

#define FLOOD 40
#define A_FRAME 64                              /* the most that one has */
#define SLOW 5000                               /* a second for one */

/* About members, as far as anybody can see who does not look at the signatures. */
static void send_many(struct faces *x, int from, int to)
{
	struct buf b = { 0 };
	for (unsigned i = 0; i < A_FRAME; i++) {
		struct body_head v = { 0 };
		v.leader = *net_self(world_peer(x->w, from)->net);
		buf_put(&b, v.leader.b, 32);
		buf_u64(&b, 1);
		head_bytes(&b, &v);
		v.digest[0] = 1;
		head_bytes(&b, &v);
	}
	net_post(world_peer(x->w, from)->net, net_self(world_peer(x->w, to)->net), KIND_AVG_PROOF,
		hub_json(world_peer(x->w, from)->avg), blob_steal(&b), CLASS_control);
}

static bool victim_knows(struct sim *s, void *arg)
{
	const struct faces *x = arg;
	return x->banned[x->victim];
}

static bool is_caught(struct sim *s, void *arg)
{
	return ((const struct faces *)arg)->caught;
}

/* One of them sends another, which is slow to verify, more than it may look at: that takes no others' room, and the
 * first that is looked at ends it. */
static void scn_flooded(struct sim *s)
{
	struct faces x;
	struct buf other = { 0 };
	int who[PEERS], n = 0;
	begin(s, &x);
	x.w->alone = x.evil;
	for (int i = (int)rng_below(&x.rng, PEERS), k = 0; k < PEERS; k++, i = (i + 1) % PEERS)
		if (i != x.evil)
			who[n++] = i;
	int flooder = who[0], victim = who[1], to = who[2];
	x.victim = victim;
	x.flooder = *net_self(world_peer(x.w, flooder)->net);
	x.w->liar[flooder] = true;
	x.w->forks_allowed = true;              /* for seconds the victim alone does not know whom all others have left */
	sim_await(s, has_led, &x, 120 * SEC);
	other_face(&x, &x.e->avg->last_commit, &other);
	sim_lane_slow(s, victim, "verify", SLOW);
	for (int k = 0; k < FLOOD; k++)
		send_many(&x, flooder, victim);
	sim_run_for(s, 100 * MSEC);
	tell(&x, to, &other);
	sim_run_for(s, 5 * SEC);
	sim_await_or(s, victim_knows, &x, 0, "node %d has no room for a proof: node %d has filled it", victim, flooder);
	sim_await(s, is_caught, &x, 0);
	without_it(&x);
	buf_free(&other);
}

/* ---- proofs of whom nobody knows ---- */

/* As hivemind-protocol(7) says that a body is signed. */
static void sign(const struct avg *a, const struct signer *by, struct body_head *h)
{
	static const char label[] = "hivemind-body-1";
	struct buf b = { 0 };
	buf_put(&b, label, sizeof label);
	buf_put(&b, a->conf.run.b, 32);
	buf_u8(&b, BODY_COMMIT);
	buf_put(&b, by->id.b, 32);
	buf_u64(&b, 1);
	buf_u64(&b, h->life);
	buf_u32(&b, h->term);
	buf_put(&b, h->round, DIGEST);
	buf_put(&b, h->digest, DIGEST);
	signer_sign(by, b.p, b.len, h->sig);
	buf_free(&b);
}

/* Keys cost nothing: more of them than are remembered have signed two COMMITs, as it says rightly. */
static void scn_invented(struct sim *s)
{
	struct faces x;
	struct buf other = { 0 };
	begin(s, &x);
	x.w->alone = x.evil;
	x.w->forks_allowed = true;              /* as in flooded */
	for (unsigned k = 0; k < 4; k++) {
		struct buf b = { 0 };
		for (unsigned i = 0; i < A_FRAME / 2; i++) {
			uint8_t seed[32] = { (uint8_t)k, (uint8_t)i, 0x5a };
			struct body_head v[2] = { { .digest = { 0 } }, { .digest = { 1 } } };
			struct signer by;
			sim_check(s, !signer_init(&by, seed));
			buf_put(&b, by.id.b, 32);
			buf_u64(&b, 1);
			for (int h = 0; h < 2; h++) {
				sign(x.e->avg, &by, &v[h]);
				head_bytes(&b, &v[h]);
			}
			signer_done(&by);
		}
		for (int i = 0; i < PEERS; i++)
			if (i != x.evil)
				net_post(x.e->net, net_self(world_peer(x.w, i)->net), KIND_AVG_PROOF, hub_json(x.e->avg),
					blob_copy(b.p, b.len), CLASS_control);
		sim_run_for(s, SEC);
		buf_free(&b);
	}
	sim_await(s, has_led, &x, 120 * SEC);
	other_face(&x, &x.e->avg->last_commit, &other);
	for (int i = 0; i < PEERS; i++)
		if (i != x.evil)
			tell(&x, i, &other);
	without_it(&x);
	buf_free(&other);
}

/* Who dies while it decides and comes back leads again, and again what it has led before it died. */
static void scn_comes_back(struct sim *s)
{
	struct world *w = world_new(s, 320, 3 * 32, 16, 10 * MSEC);
	int dead[3] = { 0 };
	w->keep_state = true;
	w->forks_allowed = true;
	world_add(w, 3);
	world_settle(w, 20 * SEC);
	world_run_to(w, 2, 20 * SEC);
	for (int k = 0; k < 12; k++) {
		int who = (int)rng_below(sim_rng(s), 3);
		sim_run_for(s, rng_below(sim_rng(s), 400 * MSEC));
		if (rng_below(sim_rng(s), 2) && !dead[who])
			sim_failpoint(s, who, rng_below(sim_rng(s), 2) ? "avg.commit.before" : "avg.commit.after", SIM_KILL,
				1 + (int)rng_below(sim_rng(s), 4));
		else if (!dead[who])
			sim_kill(s, who);
		sim_run_for(s, rng_below(sim_rng(s), 800 * MSEC));
		for (int i = 0; i < 3; i++) {
			dead[i] = !world_peer(w, i);
			if (dead[i] && rng_below(sim_rng(s), 3)) {
				sim_restart(s, i);
				dead[i] = 0;
			}
		}
	}
	for (int i = 0; i < 3; i++)
		if (!world_peer(w, i))
			sim_restart(s, i);
	world_settle(w, 60 * SEC);
	world_go_on(w, 4);
	world_free(w);
}

static const struct scn list[] = { SCN(two_faced), SCN(told_later), SCN(framed), SCN(flooded), SCN(invented),
	SCN(comes_back), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}
