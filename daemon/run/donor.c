/* The donor's side of a state download (fetch.c is the other): a copy of the state between two micro-batches, cut
 * into pieces and hashed, is held while anybody takes pieces of it. So newcomers who come together share one copy, and
 * several donors give one newcomer the same bytes. give.c gives the pieces. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "run/give.h"

#define IDLE_US 20000000                /* a copy of which nobody takes pieces is let go after this ... */
#define STAY_US 30000000                /* a finished run waits so long for who follows and takes nothing */
#define GIVING_US 100000000             /* and for pieces of which nothing has moved for so long */
#define SPARE_US 300000                 /* ... or after this, when another epoch is asked for and there is no room */
#define SWEEP_US 1000000
#define HELD_MAX 2                      /* copies of one run at one time */
#define PIECE_UNIT 16384u
#define PIECE_MAX (1u << 20)
#define PIECES 64                       /* so many of a state that is not too large for it */
#define PIECES_MAX 4096                 /* their hashes and the point fit in a frame */
#define WAITERS_MAX 1024                /* for lists that are being made, of all runs */
#define WAITERS_OF_ONE 8

struct waiter { struct list link; struct request *req; struct id who; uint64_t from; };

size_t state_piece(size_t bytes)
{
	size_t piece = (bytes / PIECES + PIECE_UNIT) / PIECE_UNIT * PIECE_UNIT;
	if (piece > PIECE_MAX)
		piece = PIECE_MAX;
	if (bytes / piece >= PIECES_MAX)
		piece = (bytes / PIECES_MAX / PIECE_UNIT + 1) * PIECE_UNIT;
	return piece;
}

/* ---- copies ---- */

static void held_free(struct held *h)
{
	snapshot_unref(h->snap);
	buf_free(&h->answer);
	free(h);
}

static void waiter_free(struct held *h, struct waiter *w)
{
	h->d->nwaiters--;
	free(w);
}

static void refuse_all(struct held *h, const struct err *e)
{
	struct list *it;
	while ((it = list_pop(&h->waiters))) {
		struct waiter *w = list_entry(it, struct waiter, link);
		net_refuse(w->req, e);
		waiter_free(h, w);
	}
}

static void let_go(struct held *h, const struct err *e)
{
	give_stop(h->d, h, NULL);
	refuse_all(h, e);
	list_del(&h->link);
	if (h->snap && !h->ready)
		h->gone = true;                 /* the job that hashes it frees it */
	else
		held_free(h);
}

/* ---- answering with the list ---- */

/* Nobody keeps a copy by asking for its list again and again: the first question does, until it takes some. */
static void asked(struct held *h, const struct id *who)
{
	uint64_t now = donors_now(h->d);
	struct asker *a = NULL;
	for (size_t i = 0; i < h->asked && i < ASKERS && !a; i++)
		if (id_eq(&h->asker[i].id, who))
			a = &h->asker[i];
	if (a && now - a->us < IDLE_US)
		return;
	if (!a)
		a = &h->asker[h->asked++ % ASKERS];
	*a = (struct asker){ *who, now };
	h->used_us = now;
}

static void answer(struct held *h, struct request *req)
{
	json_t *j = json_pack("{s:I,s:I,s:I,s:o}", "epoch", (json_int_t)h->snap->epoch, "bytes",
		(json_int_t)h->snap->bytes, "piece", (json_int_t)h->piece, "list", json_hex(h->list, sizeof h->list));
	asked(h, &req->f.from);
	json_put_hashes(j, h->hashes);
	net_reply(req, j, blob_copy(h->answer.p, h->answer.len));
}

static void hash_run(struct job *j)
{
	struct held *h = container_of(j, struct held, job);
	const char *at = h->snap->data;
	for (size_t i = 0; i < h->n; i++) {
		size_t off = i * h->piece, left = h->snap->bytes - off;
		uint8_t hash[TREE256];
		tree256_of(h->hashes, at + off, left < h->piece ? left : h->piece, hash);
		buf_put(&h->answer, hash, sizeof hash);
	}
	sha256_of(h->answer.p, h->answer.len, h->list);
}

static void hash_done(struct job *j)
{
	struct held *h = container_of(j, struct held, job);
	struct donors *d = h->d;
	struct err e;
	if (h->gone) {
		held_free(h);
		return;
	}
	h->ready = true;
	h->used_us = donors_now(d);
	struct run *r = runs_by_id(d->rs, &h->run);
	const struct avg_point *p = r ? run_point_at(r, h->snap->epoch) : NULL;
	if (!p) {
		err_set(&e, ERR_BUSY, "the run moved on; ask again");
		let_go(h, &e);
		return;
	}
	char *text = run_point_text(r, p, NET_BLOB_MAX - h->answer.len);
	buf_put(&h->answer, text, strlen(text));
	free(text);
	if (h->answer.len > NET_BLOB_MAX) {
		err_set(&e, ERR_LIMIT, "the ledger has too many holes to send (%zu bytes)", h->answer.len);
		let_go(h, &e);
		return;
	}
	list_each_safe(it, &h->waiters) {
		struct waiter *w = list_entry(it, struct waiter, link);
		if (h->snap->epoch >= w->from) {
			answer(h, w->req);
		} else {
			err_set(&e, ERR_BUSY, "this peer is at epoch %llu itself", (unsigned long long)h->snap->epoch);
			net_refuse(w->req, &e);
		}
		list_del(&w->link);
		waiter_free(h, w);
	}
}

static void snapped(void *arg, struct snapshot *snap, const struct err *e)
{
	struct held *h = arg;
	if (!snap) {
		let_go(h, e);
		return;
	}
	struct run *r = runs_by_id(h->d->rs, &h->run);
	if (r)
		trace_now(r);                   /* who begins with it is replayed from this copy, if this peer dies, too */
	h->snap = snap;
	h->piece = state_piece(snap->bytes);
	h->n = (snap->bytes + h->piece - 1) / h->piece;
	h->used_us = donors_now(h->d);
	h->job = (struct job){ .name = "run.hash", .lane = env_lane(h->d->rs->ctx.env, "hash"), .run = hash_run,
		.done = hash_done, .cost_us = 1 + snap->bytes / 2000 };
	env_work(h->d->rs->ctx.env, &h->job);
}

/* A copy that will do, made or being made; else room for one more is looked for. */
static struct held *find(struct donors *d, const struct id *run, uint64_t from, enum hashes by, size_t *ret_n,
	struct held **ret_idle)
{
	*ret_n = 0;
	*ret_idle = NULL;
	list_each(it, &d->held) {
		struct held *h = list_entry(it, struct held, link);
		if (!id_eq(&h->run, run))
			continue;
		if (h->hashes == by && (!h->snap || h->snap->epoch >= from))
			return h;
		(*ret_n)++;
		/* Pieces that wait and do not move keep a copy for a while, not for ever. */
		if (h->ready && donors_now(d) - h->used_us >= (h->lent ? IDLE_US : SPARE_US))
			*ret_idle = h;
	}
	return NULL;
}

/* Of a run that has begun with fresh parameters there is nothing to give before its first epoch: whoever asks then
 * either has the same or belongs to a swarm that is further on. */
static bool may_give(struct donors *d, const struct id *run, struct run **ret, struct err *e)
{
	struct run *r = *ret = runs_by_id(d->rs, run);
	if (r && r->crew)
		err_set(e, ERR_STATE, "members of that run hold parts of its state, and nobody the whole");
	else if (!r || !r->trainer || r->sync || (r->state != RUN_TRAIN && r->state != RUN_FINISH))
		err_set(e, ERR_STATE, "this peer has no state of that run to give (%s)", r ? run_state_name(r) : "not in it");
	else if (!r->point.epoch && !r->spec->has_weights)
		err_set(e, ERR_BUSY, "this peer's parameters are fresh: nothing has been learned that it could give");
	else
		return true;
	return false;
}

static void sweep(struct timer *t)
{
	struct donors *d = container_of(t, struct donors, sweep);
	struct err e;
	err_set(&e, ERR_CANCELLED, "nobody took it");
	give_tick(d);
	list_each_safe(it, &d->held) {
		struct held *h = list_entry(it, struct held, link);
		if (h->ready && !h->lent && donors_now(d) - h->used_us >= IDLE_US)
			let_go(h, &e);
	}
	if (!list_empty(&d->held))
		env_after(d->rs->ctx.env, t, SWEEP_US);
}

static bool too_many(const struct donors *d, const struct id *who)
{
	size_t of_one = 0;
	list_each(it, &d->held)
		list_each(k, &list_entry(it, struct held, link)->waiters)
			of_one += id_eq(&list_entry(k, struct waiter, link)->who, who);
	return d->nwaiters >= WAITERS_MAX || of_one >= WAITERS_OF_ONE;
}

static void give_list(struct donors *d, struct request *req, const struct id *run)
{
	uint64_t from = 0;
	enum hashes by = json_get_hashes(req->f.json, d->rs->ctx.hashes);
	size_t n;
	struct run *r;
	struct held *idle, *h;
	struct err e;
	json_get_u64(req->f.json, "from", &from, NULL);
	if (!may_give(d, run, &r, &e)) {
		net_refuse(req, &e);
		return;
	}
	if (from > r->point.epoch) {            /* no copy would help */
		err_set(&e, ERR_BUSY, "this peer is at epoch %llu itself", (unsigned long long)r->point.epoch);
		net_refuse(req, &e);
		return;
	}
	h = find(d, run, from, by, &n, &idle);
	if (h && h->ready) {
		answer(h, req);
		return;
	}
	if (!h && n >= HELD_MAX && !idle) {
		err_set(&e, ERR_BUSY, "this peer gives the state of %zu epochs already", n);
		net_refuse(req, &e);
		return;
	}
	if (too_many(d, &req->f.from)) {
		err_set(&e, ERR_BUSY, "too many wait for a copy of a state");
		net_refuse(req, &e);
		return;
	}
	struct waiter *w = xcalloc(1, sizeof *w);
	*w = (struct waiter){ .from = from, .who = req->f.from, .req = net_keep(req) };
	d->nwaiters++;
	if (h) {
		list_push(&h->waiters, &w->link);
		return;
	}
	if (n >= HELD_MAX) {
		err_set(&e, ERR_CANCELLED, "a newer one is asked for");
		let_go(idle, &e);
	}
	h = xcalloc(1, sizeof *h);
	h->d = d;
	h->run = *run;
	h->hashes = by;
	list_init(&h->waiters);
	list_push(&h->waiters, &w->link);
	list_push(&d->held, &h->link);
	if (!d->sweep.at_us)                    /* who asks often does not put it off */
		env_after(d->rs->ctx.env, &d->sweep, SWEEP_US);
	d->made++;
	trainer_snapshot(r->trainer, snapped, h);
}

static void nobody(struct donors *d, const struct id *who)
{
	give_stop(d, NULL, who);
	give_some(d);
}

static void on_state(void *arg, struct request *req)
{
	struct donors *d = arg;
	struct id run;
	struct err e;
	if (!req->wants_reply) {                /* it takes no more, from whatever run */
		nobody(d, &req->f.from);
		return;
	}
	if (json_get_hex(req->f.json, "run", run.b, 32, &e))
		net_refuse(req, &e);
	else if (json_object_get(req->f.json, "piece"))
		give_piece(d, req, &run);
	else
		give_list(d, req, &run);
}

static void news(void *arg, const struct id *peer, enum net_news what)
{
	if (what != NEWS_ALIVE)
		nobody(arg, peer);
}

/* Who still downloads the state of a run that has reached its goal gets it from those who have it, or never: they stay
 * while somebody takes pieces; and who led the last round, for members that have missed it. A peer that follows itself
 * waits for nobody. */
bool donors_stay(struct run *r)
{
	uint64_t used = r->finish_us;
	struct avg_view v = { 0 };
	if (r->avg)
		avg_view(r->avg, &v);
	if ((!v.followers && !v.behind) || v.following)
		return false;
	if (!used)
		used = r->finish_us = env_now(r->rs->ctx.env);
	list_each(it, &r->rs->donors->held) {
		struct held *h = list_entry(it, struct held, link);
		if (!id_eq(&h->run, &r->id))
			continue;
		if (!h->ready || (h->lent && donors_now(h->d) - h->used_us < GIVING_US))
			return true;
		used = h->used_us > used ? h->used_us : used;
	}
	return env_now(r->rs->ctx.env) - used < STAY_US;
}

/* ---- life ---- */

struct donors *donors_new(struct runs *rs)
{
	struct donors *d = xcalloc(1, sizeof *d);
	d->rs = rs;
	list_init(&d->held);
	list_init(&d->takers);
	list_init(&d->sending);
	d->sweep = (struct timer){ .fire = sweep, .name = "run.donor" };
	net_on(rs->ctx.net, KIND_RUN_STATE, on_state, d);
	net_watch(rs->ctx.net, news, d);
	return d;
}

void donors_forget(struct donors *d, const struct id *run)
{
	struct err e;
	err_set(&e, ERR_STATE, "this peer leaves the run");
	list_each_safe(it, &d->held) {
		struct held *h = list_entry(it, struct held, link);
		if (!run || id_eq(&h->run, run))
			let_go(h, &e);
	}
	if (!run)
		return;
	give_some(d);
}

void donors_free(struct donors *d)
{
	net_on(d->rs->ctx.net, KIND_RUN_STATE, NULL, NULL);
	net_unwatch(d->rs->ctx.net, news, d);
	donors_forget(d, NULL);
	env_timer(d->rs->ctx.env, &d->sweep, 0);
	free(d);
}
