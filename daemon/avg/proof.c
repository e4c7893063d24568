/* A leader that has signed two COMMITs of one epoch (hivemind-protocol(7), "Two COMMITs of one epoch"). A signature
 * covers a short head (signed.c), so that two heads with their signatures are a proof by themselves, for everybody:
 * who sees both bans the signer, and passes the proof on, once, and with every JOIN.
 *
 * An honest leader never does it. Whoever enters the run draws a new life; within one its epochs grow, and a COMMIT
 * that is sent is applied or the life is over (lost()). A restart that leads the same epoch again does so in another
 * life and another round; who claims that would have to lead members who know nothing of each other: the round is named
 * by its BEGIN, and members of two BEGINs share no part. */
#include <stdlib.h>
#include <string.h>
#include "avg/proof.h"
#include "avg/seen.h"
#include "common/jrpc.h"

#define PROOFS_MAX 64                           /* signers; who is banned is remembered by the net room anyway */
#define IN_A_JOIN 4                             /* the newest; all of them follow when somebody is taken in */
#define WAIT_OF_ONE PROOFS_MAX                  /* that wait for the lane, of one peer: a whole list; */
#define WAIT 1024                               /* of all */
#define VERIFY_US 200                           /* two signatures */
#define HEADS 256                               /* epochs */
#define HALF_BYTES (8 + 4 + 2 * DIGEST + SIG_BYTES)
#define PROOF_BYTES (32 + 8 + 2 * HALF_BYTES)
#define ASK_US (2 * SECOND)

static const struct id nobody = { { 0 } };      /* in the place of who has told it: found by this peer itself */

/* What somebody says, before anybody has looked at its signatures. a: NULL when the room has gone meanwhile. */
struct said { struct list link; struct job job; struct avg *a; struct id run, from;
	struct body_head v[2]; bool good; };
struct proof { struct body_head v[2]; bool done; struct id from; };
struct proofs {
	struct body_head head[HEADS];           /* of the COMMITs that this peer took, by epoch */
	struct proof v[PROOFS_MAX]; size_t n, todo;
	struct list said; struct said *looking; /* in line for the lane; the one that is in it */
	struct call *ask; uint64_t ask_epoch;
};

static struct proofs *proofs_of(struct avg *a)
{
	if (a->proofs)
		return a->proofs;
	a->proofs = xcalloc(1, sizeof *a->proofs);
	list_init(&a->proofs->said);
	return a->proofs;
}

static void said_free(struct said *s)
{
	list_del(&s->link);
	free(s);
}

void proofs_free(struct avg *a)
{
	struct proofs *p = a->proofs;
	if (!p)
		return;
	if (p->ask)
		net_cancel(a->net, p->ask);
	list_each_safe(it, &p->said)
		said_free(list_entry(it, struct said, link));
	if (p->looking)
		p->looking->a = NULL;
	free(p);
	a->proofs = NULL;
}

/* ---- what is one ---- */

/* One leader, one epoch, two decisions, in one life or of one round. Signatures are looked at elsewhere. */
static bool contradict(const struct body_head *x, const struct body_head *y)
{
	return id_eq(&x->leader, &y->leader) && x->epoch == y->epoch && x->what == BODY_COMMIT && y->what == BODY_COMMIT &&
		memcmp(x->digest, y->digest, DIGEST) && (x->life == y->life || !memcmp(x->round, y->round, DIGEST));
}

static struct proof *find(const struct avg *a, const struct id *by)
{
	for (size_t i = 0; a->proofs && i < a->proofs->n; i++)
		if (id_eq(&a->proofs->v[i].v[0].leader, by))
			return &a->proofs->v[i];
	return NULL;
}

/* Both are verified. What follows from it waits for the kick: this may be deep in a round. */
static void add(struct avg *a, const struct body_head *x, const struct body_head *y, const struct id *from)
{
	struct proofs *p = proofs_of(a);
	if (find(a, &x->leader) || p->n == PROOFS_MAX || id_eq(&x->leader, &a->me->id))
		return;
	struct proof *q = &p->v[p->n++];
	*q = (struct proof){ .v = { *x, *y }, .from = *from };
	p->todo++;
	kick(a);
}

/* ---- this peer's life, and COMMITs that come by ---- */

void life_begin(struct avg *a)
{
	do
		a->env->ops->secure(a->env, &a->life, sizeof a->life);
	while (!a->life);
	a->signed_epoch = 0;
}

void proof_look(struct avg *a, const struct body_head *h)
{
	const struct body_head *mine = a->proofs ? &a->proofs->head[h->epoch % HEADS] : NULL;
	if (mine && contradict(mine, h))
		add(a, mine, h, &nobody);
}

void proof_keep(struct avg *a, const struct body *c, const void *bytes, size_t n)
{
	body_head_of(c, bytes, n, &proofs_of(a)->head[c->epoch % HEADS]);
}

/* ---- on the wire: leader, epoch; of each life, term, round, digest, signature ---- */

static void put_half(struct buf *b, const struct body_head *h)
{
	buf_u64(b, h->life);
	buf_u32(b, h->term);
	buf_put(b, h->round, DIGEST);
	buf_put(b, h->digest, DIGEST);
	buf_put(b, h->sig, SIG_BYTES);
}

static void put(struct buf *b, const struct proof *p)
{
	buf_put(b, p->v[0].leader.b, 32);
	buf_u64(b, p->v[0].epoch);
	put_half(b, &p->v[0]);
	put_half(b, &p->v[1]);
}

static void get_half(struct rd *r, const struct id *leader, uint64_t epoch, struct body_head *h)
{
	*h = (struct body_head){ .what = BODY_COMMIT, .leader = *leader, .epoch = epoch };
	h->life = rd_u64(r);
	h->term = rd_u32(r);
	memcpy(h->round, rd_bytes(r, DIGEST), DIGEST);
	memcpy(h->digest, rd_bytes(r, DIGEST), DIGEST);
	memcpy(h->sig, rd_bytes(r, SIG_BYTES), SIG_BYTES);
}

/* PROOF_BYTES of them. */
static void get(const uint8_t *bytes, struct body_head v[2])
{
	struct rd r = rd_of(bytes, PROOF_BYTES);
	struct id leader;
	memcpy(leader.b, rd_bytes(&r, 32), 32);
	uint64_t epoch = rd_u64(&r);
	get_half(&r, &leader, epoch, &v[0]);
	get_half(&r, &leader, epoch, &v[1]);
}

/* ---- what others say: its signatures are looked at on a lane, in the order in which it came ---- */

static void worthless(struct avg *a, const struct id *from)
{
	hub_event(a, LOG_WARN_, "forged", from, "it says that somebody has signed two COMMITs of one epoch, and shows "
		"something else");
	net_strike(a->net, from, "a proof that is none");
}

/* Nothing is left to look at when its signer is known already, or no more fit; or when it has never been a member: keys
 * cost nothing, and whose COMMITs nobody would take needs no ban. */
static bool settled(const struct avg *a, const struct id *leader)
{
	const struct mate *m = mate_find(a, leader);
	return find(a, leader) || (a->proofs && a->proofs->n == PROOFS_MAX) ||
		!((m && m->member) || seen_find(&a->point, leader));
}

static void look_next(struct avg *a);

static void look_run(struct job *j)
{
	struct said *s = container_of(j, struct said, job);
	s->good = PLANTED(PROOF_UNCHECKED) || (body_head_verify(&s->run, &s->v[0]) && body_head_verify(&s->run, &s->v[1]));
}

static void look_done(struct job *j)
{
	struct said *s = container_of(j, struct said, job);
	struct avg *a = s->a;
	if (a) {
		struct proofs *p = a->proofs;
		p->looking = NULL;
		if (s->good)
			add(a, &s->v[0], &s->v[1], &s->from);
		list_each_safe(it, &p->said) {  /* the rest of what a liar says is not worth the time */
			struct said *o = list_entry(it, struct said, link);
			if (!s->good && id_eq(&o->from, &s->from))
				said_free(o);
		}
		if (!s->good && !id_zero(&s->from))
			worthless(a, &s->from);
		look_next(a);
	}
	free(s);
}

static void look_next(struct avg *a)
{
	struct proofs *p = a->proofs;
	while (!p->looking && !list_empty(&p->said)) {
		struct said *s = list_entry(p->said.next, struct said, link);
		if (settled(a, &s->v[0].leader)) {
			said_free(s);
			continue;
		}
		list_del(&s->link);
		p->looking = s;
		s->job = (struct job){ .name = "avg.proof", .lane = env_lane(a->env, "verify"), .run = look_run,
			.done = look_done, .cost_us = VERIFY_US };
		env_work(a->env, &s->job);
	}
}

/* x and y contradict each other, if they are signed. What finds no room is not looked at: an honest peer's has it, as
 * one that lies fills no more than its own share. */
static void look(struct avg *a, const struct body_head *x, const struct body_head *y, const struct id *from)
{
	struct proofs *p = proofs_of(a);
	size_t n = 0, of_one = 0;
	list_each(it, &p->said) {
		n++;
		of_one += id_eq(&list_entry(it, struct said, link)->from, from);
	}
	if (settled(a, &x->leader) || n >= WAIT || (of_one >= WAIT_OF_ONE && !PLANTED(PROOFS_UNBOUNDED)))
		return;
	struct said *s = xcalloc(1, sizeof *s);
	*s = (struct said){ .a = a, .run = a->conf.run, .from = *from, .v = { *x, *y } };
	list_push(&p->said, &s->link);
	look_next(a);
}

/* False when it is seen at once that it is worth nothing. */
static bool take(struct avg *a, const uint8_t *bytes, const struct id *from)
{
	struct body_head v[2];
	get(bytes, v);
	if (!PLANTED(PROOF_UNCHECKED) && !contradict(&v[0], &v[1]))
		return false;
	look(a, &v[0], &v[1], from);
	return true;
}

void proof_on(struct avg *a, struct request *req)
{
	size_t n = req->f.blob_len;
	bool good = n && n % PROOF_BYTES == 0 && n / PROOF_BYTES <= PROOFS_MAX;
	if (!good) {
		net_strike(a->net, &req->f.from, "a proof that is none");
		return;
	}
	if (!mate_find(a, &req->f.from))
		return;
	for (size_t at = 0; at < n && good; at += PROOF_BYTES)
		good = take(a, (const uint8_t *)req->f.blob + at, &req->f.from);
	if (!good)
		worthless(a, &req->f.from);
}

static void tell(struct avg *a, const struct id *to, const struct proof *p, size_t n)
{
	struct buf b = { 0 };
	for (size_t i = 0; i < n; i++)
		put(&b, &p[i]);
	if (n)
		net_post(a->net, to, KIND_AVG_PROOF, hub_json(a), blob_steal(&b), CLASS_control);
}

void proofs_tell(struct avg *a, const struct mate *m)
{
	if (a->proofs && a->proofs->n > IN_A_JOIN)
		tell(a, &m->id, a->proofs->v, a->proofs->n);
}

void proofs_put(const struct avg *a, json_t *j)
{
	if (!a->proofs || !a->proofs->n)
		return;
	json_t *list = json_array();
	size_t n = a->proofs->n;
	for (size_t i = n > IN_A_JOIN ? n - IN_A_JOIN : 0; i < n; i++) {
		struct buf b = { 0 };
		put(&b, &a->proofs->v[i]);
		json_array_append_new(list, json_hex(b.p, b.len));
		buf_free(&b);
	}
	json_object_set_new(j, "proofs", list);
}

void proofs_take(struct avg *a, const json_t *j, const struct id *from)
{
	const json_t *list = json_object_get(j, "proofs");
	uint8_t bytes[PROOF_BYTES];
	for (size_t i = 0; i < json_array_size(list) && i < IN_A_JOIN; i++) {
		json_t *one = json_pack("{s:O}", "p", json_array_get(list, i));
		bool good = one && !json_get_hex(one, "p", bytes, sizeof bytes, NULL) && take(a, bytes, from);
		json_decref(one);
		if (!good) {
			worthless(a, from);
			return;
		}
	}
}

/* ---- what follows ---- */

static void tell_all(struct avg *a, const struct proof *p)
{
	const struct id by = p->v[0].leader;
	const struct mate *m = mate_find(a, &by);
	hub_event(a, LOG_ERROR_, "equivocation", &by, "it has signed two COMMITs of epoch %llu (terms %u and %u): banned "
		"here, and by everybody who sees both", (unsigned long long)p->v[0].epoch, p->v[0].term, p->v[1].term);
	list_each(it, &a->mates) {
		struct mate *o = list_entry(it, struct mate, link);
		if (o != a->me && o != m && o->member && o->live && !id_eq(&o->id, &p->from))
			tell(a, &o->id, p, 1);
	}
}

bool proofs_next(struct avg *a, struct id *ret_by)
{
	struct proofs *p = a->proofs;
	size_t i = 0;
	if (!p || !p->todo)
		return false;
	while (i < p->n && p->v[i].done)
		i++;
	if (i == p->n)
		return false;
	p->v[i].done = true;
	p->todo--;
	*ret_by = p->v[i].v[0].leader;
	tell_all(a, &p->v[i]);
	return true;
}

/* ---- two histories have met: who decided what came after their last common point? ---- */

/* Of the COMMIT of that epoch which this peer took: for SHOW. */
void proof_show(const struct avg *a, uint64_t epoch, json_t *j)
{
	const struct body_head *h = a->proofs ? &a->proofs->head[epoch % HEADS] : NULL;
	struct buf b = { 0 };
	if (!h || h->epoch != epoch || h->what != BODY_COMMIT)
		return;
	buf_put(&b, h->leader.b, 32);
	put_half(&b, h);
	json_object_set_new(j, "decided", json_hex(b.p, b.len));
	buf_free(&b);
}

static void shown(void *arg, const struct frame *f, const struct err *e)
{
	struct avg *a = arg;
	uint64_t epoch = a->proofs->ask_epoch;
	uint8_t bytes[32 + HALF_BYTES];
	struct body_head h;
	a->proofs->ask = NULL;
	if (!f || json_get_hex(f->json, "decided", bytes, sizeof bytes, NULL))
		return;
	struct rd r = rd_of(bytes, sizeof bytes);
	struct id leader;
	memcpy(leader.b, rd_bytes(&r, 32), 32);
	get_half(&r, &leader, epoch, &h);
	const struct body_head *mine = &a->proofs->head[epoch % HEADS];
	if (contradict(mine, &h))
		look(a, mine, &h, &nobody);
}

void proof_ask(struct avg *a, const struct id *who, uint64_t epoch)
{
	struct proofs *p = proofs_of(a);
	if (p->ask || p->head[epoch % HEADS].epoch != epoch || p->head[epoch % HEADS].what != BODY_COMMIT)
		return;
	p->ask_epoch = epoch;
	json_t *j = hub_json(a);
	json_object_set_new(j, "decided", json_integer((json_int_t)epoch));
	p->ask = net_call(a->net, who, KIND_AVG_SHOW, j, NO_BLOB, CLASS_control, net_deadline(a->net, who, ASK_US), shown,
		a);
}
