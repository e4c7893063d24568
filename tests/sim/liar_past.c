/* Lies about the history: JOIN, SHOW and REDIRECT of a member, or of one who has left, to whom everybody's state is not
 * the swarm's: another history is longer or has more samples, or their parameters are others. */
#include <stdlib.h>
#include <string.h>
#include "avg/fork.h"
#include "liar.h"

/* A COMMIT of that epoch of everybody, with its own signature and others that nobody has made. */
static void invent(struct liar *l, uint64_t epoch)
{
	const struct avg *a = l->e->avg;
	struct body c = { .what = BODY_COMMIT, .run = a->conf.run, .leader = a->me->id, .epoch = epoch, .len = a->conf.len,
		.rows = 1, .params = json_deep_copy(a->point.params), .params_version = a->point.params_version };
	uint8_t sig[SIG_BYTES];
	lie_bytes(l, c.prev, DIGEST);
	lie_bytes(l, c.round, DIGEST);
	c.n = LIAR_PEERS;
	c.m = xcalloc(c.n, sizeof *c.m);
	for (size_t i = 0; i < c.n; i++) {
		c.m[i].id = *net_self(world_peer(l->w, (int)i)->net);
		c.m[i].flags = MATE_IN | MATE_READY;
		c.m[i].samples = 1000;
		ranges_add(&c.m[i].claimed, 1000 * i, 1000 * i + 1000);
	}
	c.weight = 1000 * LIAR_PEERS;
	c.parts = 1;
	c.part = xcalloc(2, sizeof *c.part);
	c.part[0] = (struct wire_part){ .owner = 0, .len = c.len };
	buf_clear(&l->commit);
	body_sign(l->e->avg, &c, &l->commit);
	body_digest(l->commit.p, l->commit.len, l->prev);
	l->commit.len -= 2;
	for (uint16_t i = 0; i < LIAR_PEERS; i++) {
		lie_bytes(l, sig, sizeof sig);
		buf_u16(&l->commit, i);
		buf_put(&l->commit, sig, SIG_BYTES);
	}
	buf_u16(&l->commit, LIAR_PEERS);
	l->epoch = epoch;
	body_free(&c);
}

/* SHOW: what it has invented, or none. */
static void shows(void *arg, struct request *req)
{
	struct liar *l = arg;
	struct buf b = { 0 };
	uint8_t params[16];
	bool full = false, has = sim_seed(l->s) / 2 % 2;
	json_get_bool(req->f.json, "commit", &full, NULL);
	lie_bytes(l, params, sizeof params);
	l->shown++;
	json_t *j = json_pack("{s:I,s:o,s:I,s:o}", "epoch", (json_int_t)l->epoch, "prev", json_hex(l->prev, DIGEST),
		"samples", (json_int_t)1 << 40, "params_tree", json_hex(params, 16));
	if (!full && lie_draw(l, 2)) {
		json_object_set_new(j, "epoch", json_integer((json_int_t)l->e->avg->point.epoch));
		json_object_set_new(j, "prev", json_hex(l->e->avg->point.prev, DIGEST));
	}
	for (int i = 0; i < 2 && full; i++) {
		buf_u32(&b, has ? (uint32_t)l->commit.len : 0);
		buf_put(&b, l->commit.p, has ? l->commit.len : 0);
	}
	if (full && has)
		past_put(l->e->avg, &b);
	net_reply(req, j, blob_steal(&b));
}

/* JOIN of that history: on top of everybody's, or of another from the beginning. */
static void claim(struct liar *l, struct apeer *v, uint64_t epoch, bool on_theirs)
{
	struct buf b = { 0 };
	json_t *j = term_json(l->e->avg, hub_json(l->e->avg));
	if (!l->commit.len || lie_draw(l, 4) == 0)
		invent(l, epoch);
	json_object_set_new(j, "epoch", json_integer((json_int_t)l->epoch));
	json_object_set_new(j, "prev", json_hex(l->prev, DIGEST));
	json_object_set_new(j, "samples", json_integer((json_int_t)1 << 40));
	json_object_set_new(j, "flags", json_integer(0));
	json_object_set_new(j, "micro", json_integer(16));
	json_object_set_new(j, "in", json_true());
	json_object_set_new(j, "leading", json_true());
	json_object_set_new(j, "shows", json_true());
	json_object_set_new(j, "at", json_endpoint(net_endpoint(l->e->net)));
	door_put(l->e->avg, j);
	if (on_theirs) {
		past_put(l->e->avg, &b);
	} else {
		uint8_t mark[PAST_MARK];
		buf_u64(&b, l->epoch);
		buf_u16(&b, 10);
		for (int i = 0; i < 10; i++) {
			lie_bytes(l, mark, sizeof mark);
			buf_put(&b, mark, sizeof mark);
		}
	}
	lie_call(l, v, KIND_AVG_JOIN, j, &b);
}

static void join_ahead(struct liar *l, struct apeer *v)
{
	claim(l, v, v->avg->point.epoch + (lie_draw(l, 2) ? 1000000 : 3), true);
}

static void join_fork(struct liar *l, struct apeer *v)
{
	claim(l, v, v->avg->point.epoch + lie_draw(l, 6), false);
}

/* As one who comes anew, again and again, with a micro-batch of any size and flags that nobody has. */
static void join_anew(struct liar *l, struct apeer *v)
{
	json_t *j = term_json(l->e->avg, hub_json(l->e->avg));
	struct buf b = { 0 };
	json_object_set_new(j, "epoch", json_integer((json_int_t)(lie_draw(l, 2) ? 0 : v->avg->point.epoch)));
	json_object_set_new(j, "prev", json_hex(v->avg->point.prev, DIGEST));
	json_object_set_new(j, "samples", json_integer(0));
	json_object_set_new(j, "flags", json_integer((json_int_t)lie_draw(l, 256)));
	json_object_set_new(j, "micro", json_integer(UINT32_MAX));
	json_object_set_new(j, "in", json_boolean(lie_draw(l, 2)));
	json_object_set_new(j, "leading", json_boolean(lie_draw(l, 2)));
	door_put(l->e->avg, j);
	lie_call(l, v, KIND_AVG_JOIN, j, &b);
}

/* "Ask me", and then: you are behind, in a fork, or have other parameters. */
static void redirect(struct liar *l, struct apeer *v, const char *why, const struct apeer *to, uint64_t epoch)
{
	json_t *j = hub_json(l->e->avg);
	json_object_set_new(j, "why", json_string(why));
	json_object_set_new(j, "id", json_hex(net_self(to->net)->b, 32));
	json_object_set_new(j, "at", json_endpoint(net_endpoint(to->net)));
	json_object_set_new(j, "epoch", json_integer((json_int_t)epoch));
	lie_call(l, v, KIND_AVG_REDIRECT, j, NULL);
}

static void redirect_me(struct liar *l, struct apeer *v)
{
	if (!l->commit.len || lie_draw(l, 4) == 0)
		invent(l, v->avg->point.epoch + 5);
	redirect(l, v, "redirect", l->e, v->avg->point.epoch + 1);
}

/* To any other: all of them are where it is. */
static void redirect_round(struct liar *l, struct apeer *v)
{
	redirect(l, v, "redirect", world_peer(l->w, (int)lie_draw(l, LIAR_PEERS)), v->avg->point.epoch + lie_draw(l, 3));
}

/* Where it leads, it may say so of its own. */
static void redirect_diverged(struct liar *l, struct apeer *v)
{
	if (v->avg->digest_epoch == v->avg->point.epoch)
		redirect(l, v, "diverged", l->e, v->avg->point.epoch);
}

static void answers(void *arg, struct request *req)
{
	struct liar *l = arg;
	static const char *const what[] = { "behind", "fork", "diverged" };
	struct buf b = { 0 };
	if (lie_draw(l, 2))
		buf_put(&b, l->commit.p, l->commit.len);
	net_reply(req, json_pack("{s:s,s:I,s:o}", "answer", what[lie_draw(l, 3)], "epoch", (json_int_t)l->epoch,
		"donor", json_hex(net_self(l->e->net)->b, 32)), blob_steal(&b));
}

static void with_shows(struct liar *l)
{
	net_on(l->e->net, KIND_AVG_SHOW, shows, l);
}

static void with_answers(struct liar *l)
{
	with_shows(l);
	net_on(l->e->net, KIND_AVG_JOIN, answers, l);
}

const struct lie lies_past[] = {
	{ "join", "ahead", STRANGER | MEMBER | CLIENT, with_shows, join_ahead, 0, "doubt" },
	{ "join", "fork", STRANGER | MEMBER | CLIENT, with_shows, join_fork, 0, "doubt" },
	{ "join", "anew", STRANGER | MEMBER | CLIENT, NULL, join_anew },
	{ "redirect", "me", MEMBER, with_answers, redirect_me, 0, "doubt" },
	{ "redirect", "heedless", STRANGER, with_answers, redirect_me },        /* nobody asks one who has left */
	{ "redirect", "round", STRANGER | MEMBER, NULL, redirect_round },
	{ "redirect", "diverged", LEADER, with_shows, redirect_diverged, 0, "doubt" },
	{ 0 }
};
