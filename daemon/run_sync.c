/* State download: a peer that is behind asks a member for parameters, optimizer state and point, and meanwhile rides
 * along as a follower: commits that come before the state are kept and replayed on top of it, so that it ends exactly
 * where the swarm is, however long the download takes.
 *
 *   joiner  RUN_STATE {run, tag} ->  donor   snapshot between two micro-batches
 *           <- {epoch, bytes}                then a transfer under tag
 *           replay of the commits after epoch, then avg_enter as a full member */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/jrpc.h"
#include "common/mem.h"
#include "run_int.h"

#define ASK_US 20000000                 /* a snapshot waits for the micro-batch under way */
#define QUEUE_MAX 64
#define QUEUE_BYTES_MAX (1ull << 30)
#define RETRY_MIN_US 50000              /* also between looks for a live member: they cost nothing */
#define RETRY_MAX_US 1000000
#define RATE_FLOOR 1000000.0            /* bytes/s assumed until measured (B18) */

struct kept { struct list link; uint64_t epoch; struct avg_point point; float *mean; };
enum sync_step { SYNC_ASK, SYNC_CHECK, SYNC_REPLAY };
struct sync {
	struct run *r;
	enum sync_step step;
	struct id donor; bool has_donor;
	struct call *call;
	struct xfer *xfer;
	struct id tag;
	struct avg_point point;         /* of the state that comes */
	bool answered, arrived, quiet;
	struct list kept; size_t nkept;
	struct timer retry; uint64_t backoff_us;
	unsigned tries, turn;
	uint64_t begun_us;
};

static void ask(struct sync *s);
static void replay(struct sync *s);
static void checked(void *arg, const struct err *e);

static void kept_free(struct sync *s, struct kept *k)
{
	list_del(&k->link);
	s->nkept--;
	avg_point_done(&k->point);
	big_free(k->mean, trainer_contribution_len(s->r->trainer) * sizeof(float));
	free(k);
}

static void drop_kept(struct sync *s, uint64_t up_to)
{
	list_each_safe(it, &s->kept) {
		struct kept *k = list_entry(it, struct kept, link);
		if (k->epoch <= up_to)
			kept_free(s, k);
	}
}

static void stop_transfer(struct sync *s)
{
	if (s->call)
		net_cancel(s->r->rs->ctx.net, s->call);
	if (s->xfer)
		xfer_cancel(s->xfer);
	s->call = NULL;
	s->xfer = NULL;
}

void sync_free(struct sync *s)
{
	if (!s)
		return;
	stop_transfer(s);
	env_timer(s->r->rs->ctx.env, &s->retry, 0);
	drop_kept(s, UINT64_MAX);
	avg_point_done(&s->point);
	free(s);
}

static void retry_fire(struct timer *t)
{
	ask(container_of(t, struct sync, retry));
}

static void again(struct sync *s, const char *why)
{
	struct run *r = s->r;
	char who[9];
	stop_transfer(s);
	s->answered = s->arrived = false;
	s->backoff_us = s->backoff_us && s->has_donor ? s->backoff_us * 2 : RETRY_MIN_US;
	if (s->backoff_us > RETRY_MAX_US)
		s->backoff_us = RETRY_MAX_US;
	if (s->tries++ % 5 == 0)
		run_log(r, LOG_WARN_, "sync.retry", "state from %s: %s; trying another member", s->has_donor ?
		id_short(&s->donor, who) : "nobody", why);
	s->has_donor = false;
	env_after(r->rs->ctx.env, &s->retry, s->backoff_us);
}

/* Members in turn, so that a dead or slow donor is asked only once a round. */
static bool pick(struct sync *s)
{
	struct avg_member m[RUN_PEERS_SHOWN];
	size_t n = avg_members(s->r->avg, m, RUN_PEERS_SHOWN);
	const struct id *self = net_self(s->r->rs->ctx.net);
	if (n > RUN_PEERS_SHOWN)
		n = RUN_PEERS_SHOWN;
	for (size_t i = 0; i < n; i++) {
		const struct avg_member *c = &m[(s->turn + i) % n];
		if (c->live && !c->follower && !id_eq(&c->id, self)) {
			s->donor = c->id;
			s->turn = (unsigned)((s->turn + i + 1) % n);
			return true;
		}
	}
	return false;
}

static void both_here(struct sync *s)
{
	struct run *r = s->r;
	if (!s->answered || !s->arrived)
		return;
	s->step = SYNC_CHECK;
	trainer_fill(r->trainer, &(struct trainer_fill){ .epoch = s->point.epoch, .live = s->point.params }, checked, r);
}

static void checked(void *arg, const struct err *e)
{
	struct run *r = arg;
	struct sync *s = r->sync;
	if (!s || s->step != SYNC_CHECK)
		return;
	if (e) {
		s->step = SYNC_ASK;
		again(s, e->text);
		return;
	}
	avg_point_done(&r->point);
	avg_point_init(&r->point);
	avg_point_copy(&r->point, &s->point);
	run_applied_point(r);
	drop_kept(s, s->point.epoch);
	s->step = SYNC_REPLAY;
	replay(s);
}

static void received(void *arg, struct xfer *x, const struct err *e)
{
	struct sync *s = arg;
	s->xfer = NULL;
	if (e) {
		again(s, e->text);
		return;
	}
	s->arrived = true;
	both_here(s);
}

static void told(void *arg, const struct frame *f, const struct err *e)
{
	struct sync *s = arg;
	struct err mine;
	size_t bytes;
	uint64_t theirs = 0;
	s->call = NULL;
	if (!f) {
		again(s, e->text);
		return;
	}
	trainer_state(s->r->trainer, &bytes);
	avg_point_done(&s->point);
	avg_point_init(&s->point);
	json_t *point = json_loadb((const char *)f->blob, f->blob_len, JSON_REJECT_DUPLICATES, NULL);
	int rc = avg_point_parse(&s->point, point, &mine);
	json_decref(point);
	if (rc || json_get_u64(f->json, "bytes", &theirs, &mine)) {
		again(s, mine.text);
		return;
	}
	if (theirs != bytes) {
		err_set(&mine, ERR_MISMATCH, "the donor's state has %llu bytes, ours %zu", (unsigned long long)theirs, bytes);
		again(s, mine.text);
		return;
	}
	s->answered = true;
	both_here(s);
}

static void ask(struct sync *s)
{
	struct run *r = s->r;
	struct runs_ctx *c = &r->rs->ctx;
	char tag[ID_HEX];
	size_t bytes;
	if (!s->quiet)
		return;
	if (!s->has_donor && !pick(s)) {
		again(s, "no live member to ask");
		return;
	}
	if (FAILPOINT(c->env, "run.state.ask") < 0) {
		again(s, "a fail point");
		return;
	}
	void *state = trainer_state(r->trainer, &bytes);
	s->has_donor = true;
	s->answered = s->arrived = false;
	c->env->ops->secure(c->env, s->tag.b, 32);
	id_hex(&s->tag, tag);
	uint64_t deadline = env_now(c->env) + ASK_US + (uint64_t)((double)bytes / RATE_FLOOR * 1e6);
	s->xfer = xfer_recv(c->chunks, &s->donor, &s->tag, state, bytes, deadline, received, s);
	s->call = net_call(c->net, &s->donor, KIND_RUN_STATE, json_pack("{s:s,s:s}", "run", r->hex, "tag", tag), NO_BLOB,
		CLASS_weight, ASK_US, told, s);
}

static void is_quiet(void *arg)
{
	struct run *r = arg;
	if (!r->sync || r->sync->quiet)
		return;
	r->sync->quiet = true;
	ask(r->sync);
}

void sync_start(struct run *r, const struct id *donor)
{
	struct sync *s = xcalloc(1, sizeof *s);
	struct err e;
	sync_free(r->sync);
	*s = (struct sync){ .r = r, .begun_us = env_now(r->rs->ctx.env), .retry = { .fire = retry_fire,
		.name = "run.sync" } };
	list_init(&s->kept);
	avg_point_init(&s->point);
	if (donor) {
		s->donor = *donor;
		s->has_donor = true;
	}
	r->sync = s;
	if (avg_enter(r->avg, &r->point, true, &e)) {
		run_fail(r, &e);
		return;
	}
	trainer_quiet(r->trainer, is_quiet, r);
}

/* Room for one more: of what is kept the oldest goes, since a state that is asked for now is newer than that; but not
 * the one that is being replayed. A hole that matters shows in replay. */
static bool make_room(struct sync *s, size_t bytes)
{
	while (s->nkept && (s->nkept == QUEUE_MAX || (s->nkept + 1) * bytes > QUEUE_BYTES_MAX)) {
		struct list *oldest = s->step == SYNC_REPLAY ? s->kept.next->next : s->kept.next;
		if (oldest == &s->kept)
			return false;
		kept_free(s, list_entry(oldest, struct kept, link));
	}
	return true;
}

bool sync_commit(struct run *r, const struct avg_commit *c, const float *mean)
{
	struct sync *s = r->sync;
	if (!s)
		return false;
	size_t bytes = trainer_contribution_len(r->trainer) * sizeof *mean;
	struct kept *k = mean && make_room(s, bytes) ? xcalloc(1, sizeof *k) : NULL;
	if (k && !(k->mean = big_alloc(bytes))) {
		free(k);
		k = NULL;
	}
	if (k) {
		k->epoch = c->epoch;
		avg_point_init(&k->point);
		avg_point_copy(&k->point, c->point);
		memcpy(k->mean, mean, bytes);
		list_push(&s->kept, &k->link);
		s->nkept++;
	}
	if (s->step == SYNC_REPLAY && k && s->nkept == 1)
		replay(s);
	else if (s->step == SYNC_ASK && s->answered && s->nkept &&
			list_entry(s->kept.next, struct kept, link)->epoch > s->point.epoch + 1)
		again(s, "more epochs passed than could be kept");      /* the state that comes is too old by now */
	return true;
}

static void caught_up(struct sync *s)
{
	struct run *r = s->r;
	struct err e;
	uint64_t took = env_now(r->rs->ctx.env) - s->begun_us;
	run_log(r, LOG_INFO_, "run.synced", "state of epoch %llu after %.3f s", (unsigned long long)r->point.epoch,
		(double)took / 1e6);
	r->sync = NULL;
	sync_free(s);
	if (avg_enter(r->avg, &r->point, false, &e)) {
		run_fail(r, &e);
		return;
	}
	run_event(r, EV_SYNCED);
}

/* Applies the kept commits one after the other; each ends in sync_applied. */
static void replay(struct sync *s)
{
	struct run *r = s->r;
	struct err e;
	while (!list_empty(&s->kept)) {
		struct kept *k = list_entry(s->kept.next, struct kept, link);
		if (k->epoch <= r->point.epoch) {
			kept_free(s, k);
			continue;
		}
		if (k->epoch != r->point.epoch + 1) {   /* a hole: this state cannot be caught up from */
			s->step = SYNC_ASK;
			again(s, "a commit between the state and the present is missing");
			return;
		}
		if (trainer_commit(r->trainer, k->epoch, k->mean, 0, k->point.params, &e)) {
			s->step = SYNC_ASK;
			again(s, e.text);
		}
		return;
	}
	caught_up(s);
}

bool sync_applied(struct run *r, const struct trainer_applied *a)
{
	struct sync *s = r->sync;
	if (!s || s->step != SYNC_REPLAY || list_empty(&s->kept))
		return s != NULL;
	struct kept *k = list_entry(s->kept.next, struct kept, link);
	if (k->epoch != a->epoch)
		return true;
	avg_point_done(&r->point);
	avg_point_init(&r->point);
	avg_point_copy(&r->point, &k->point);
	run_applied_point(r);
	kept_free(s, k);
	replay(s);
	return true;
}

/* ---- the donor's side ---- */

struct serving { struct runs *rs; struct id run, to, tag; struct request *req; struct snapshot *snap; };

static void serve_end(struct serving *v, const struct err *e)
{
	if (v->req && e)
		net_refuse(v->req, e);
	snapshot_unref(v->snap);
	free(v);
}

static void sent(void *arg, struct xfer *x, const struct err *e)
{
	serve_end(arg, NULL);
}

static void serve_snapped(void *arg, struct snapshot *snap, const struct err *e)
{
	struct serving *v = arg;
	struct run *r = runs_by_id(v->rs, &v->run);
	struct err mine;
	const struct avg_point *p = r && snap ? run_point_at(r, snap->epoch) : NULL;
	v->snap = snap;
	if (!p) {
		if (snap)
			err_set(&mine, ERR_BUSY, "the run moved on; ask again");
		serve_end(v, snap ? &mine : e);
		return;
	}
	json_t *point = avg_point_json(p);
	char *text = json_dumps(point, JSON_COMPACT | JSON_REAL_PRECISION(17));
	json_decref(point);
	if (strlen(text) > NET_BLOB_MAX) {
		err_set(&mine, ERR_LIMIT, "the ledger has too many holes to send (%zu bytes)", strlen(text));
		free(text);
		serve_end(v, &mine);
		return;
	}
	net_reply(v->req, json_pack("{s:I,s:I}", "epoch", (json_int_t)snap->epoch, "bytes", (json_int_t)snap->bytes),
		(struct blob){ .data = text, .len = strlen(text), .release = free, .arg = text });
	v->req = NULL;
	uint64_t deadline = env_now(v->rs->ctx.env) + ASK_US + (uint64_t)((double)snap->bytes / RATE_FLOOR * 1e6);
	xfer_send(v->rs->ctx.chunks, &v->to, &v->tag, snap->data, snap->bytes, CLASS_weight, deadline, sent, v);
}

static void on_state(void *arg, struct request *req)
{
	struct runs *rs = arg;
	struct id run, tag;
	struct err e;
	if (json_get_hex(req->f.json, "run", run.b, 32, &e) || json_get_hex(req->f.json, "tag", tag.b, 32, &e)) {
		net_refuse(req, &e);
		return;
	}
	struct run *r = runs_by_id(rs, &run);
	if (!r || !r->trainer || r->sync || (r->state != RUN_TRAIN && r->state != RUN_FINISH)) {
		err_set(&e, ERR_STATE, "this peer has no state of that run to give (%s)", r ? run_state_name(r) : "not in it");
		net_refuse(req, &e);
		return;
	}
	struct serving *v = xcalloc(1, sizeof *v);
	*v = (struct serving){ .rs = rs, .run = run, .tag = tag, .to = req->f.from, .req = net_keep(req) };
	trainer_snapshot(r->trainer, serve_snapped, v);
}

void sync_serve(struct runs *rs)
{
	net_on(rs->ctx.net, KIND_RUN_STATE, on_state, rs);
}
