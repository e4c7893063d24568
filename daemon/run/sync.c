/* State download: a peer that is behind rides along as a follower while fetch.c brings parameters, optimizer state
 * and point from other members: commits that come before the state are kept and replayed on top of it, so that it ends
 * exactly where the swarm is, however long the download takes.
 *
 *   followed from epoch F  ->  fetch: a state of epoch X >= F  ->  replay of X + 1 ..., then avg_enter as a member
 *
 * What this peer has learned itself stays until the other state is whole: it is fetched beside it, and when nobody is
 * left who could give the rest this peer goes on with its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "run/int.h"

#define SILENT_US 30000000              /* whom nobody has heard of this is not there, whatever the roster says */
#define ALONE_US 10000000               /* nobody comes back after it: a swarm that starts anew waits as long */
#define KEPT_BYTES_MIN (1ull << 30)     /* commits are kept up to this, or a quarter of the machine's memory */

struct kept { struct list link; uint64_t epoch; struct avg_point point; float *mean; };
enum sync_step { SYNC_FETCH, SYNC_CHECK, SYNC_REPLAY, SYNC_BACK };
struct sync {
	struct run *r;
	enum sync_step step;
	struct fetch *fetch;            /* NULL: a job may still use the state */
	struct avg_point point;         /* of the state that came */
	unsigned donors;
	struct list kept; size_t nkept;
	uint64_t begun_us;
	uint64_t heard_us;              /* somebody who may give it has said something, or a piece has come */
	uint64_t alone_us; bool told;   /* since when nobody is there who could give it; 0: somebody is */
	bool holds;                     /* the state is that of the run's point, as it was */
	struct timer still; uint64_t still_by_us;       /* until the last commit is applied */
};

#define APPLY_US 5000000                /* what is decided becomes the state, or is not waited for */
#define LOOK_US 5000

static void replay(struct sync *s);
static void checked(void *arg, const struct err *e);
static void go_back(struct sync *s);

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

void sync_free(struct sync *s)
{
	if (!s)
		return;
	fetch_free(s->fetch);
	env_timer(s->r->rs->ctx.env, &s->still, 0);
	drop_kept(s, UINT64_MAX);
	avg_point_done(&s->point);
	free(s);
}

/* ---- what the fetch asks ---- */

static const struct kept *first_kept(const struct sync *s)
{
	return s->nkept ? list_entry(s->kept.next, struct kept, link) : NULL;
}

/* Every commit after *ret_from is kept or will come. */
bool sync_follows(struct run *r, uint64_t *ret_from)
{
	struct avg_view v;
	avg_view(r->avg, &v);
	*ret_from = r->sync->nkept ? first_kept(r->sync)->epoch - 1 : v.epoch;
	return v.following;
}

bool sync_fits(struct run *r, const struct avg_point *p)
{
	list_each(it, &r->sync->kept) {
		const struct kept *k = list_entry(it, struct kept, link);
		if (k->epoch == p->epoch)
			return !memcmp(k->point.prev, p->prev, DIGEST);
	}
	return true;
}

static bool anybody(const struct run *r)
{
	struct avg_member m[RUN_PEERS_SHOWN];
	size_t n = avg_members(r->avg, m, RUN_PEERS_SHOWN);
	for (size_t i = 0; i < n && i < RUN_PEERS_SHOWN; i++)
		if (m[i].live && !m[i].follower && !id_eq(&m[i].id, net_self(r->rs->ctx.net)))
			return true;
	return false;
}

void sync_heard(struct run *r)
{
	r->sync->heard_us = env_now(r->rs->ctx.env);
}

/* Those who had the state may be gone for good, and what this peer has saved is the newest there is. */
bool sync_alone(struct run *r)
{
	struct sync *s = r->sync;
	uint64_t now = env_now(r->rs->ctx.env);
	if (anybody(r) && now - s->heard_us < SILENT_US) {
		s->alone_us = 0;
		s->told = false;
		return false;
	}
	if (!s->alone_us)
		s->alone_us = now;
	if (now - s->alone_us < ALONE_US || s->told)
		return false;
	s->told = true;
	if (s->holds) {
		go_back(s);
		return true;
	}
	if (!r->saved_epoch) {
		run_log(r, LOG_WARN_, "sync.nobody", "nobody who holds the run's state is there, and this peer has saved "
			"none: it waits for one of them");
		return false;
	}
	run_log(r, LOG_WARN_, "sync.nobody", "nobody who holds the run's state is there any more: going on with epoch "
		"%llu, which this peer has saved", (unsigned long long)r->saved_epoch);
	run_again_saved(r);
	return true;
}

static int fill(void *arg, struct shard *s, struct err *e)
{
	pieces_put(arg, s);
	return 0;
}

static void drop(void *arg) { pieces_free(arg); }

void sync_fetched(struct run *r, const struct avg_point *p, unsigned donors, struct pieces *pieces)
{
	struct sync *s = r->sync;
	struct trainer_fill how = { 0 };
	if (pieces)
		how.values = (struct state_fill){ .fill = fill, .drop = drop, .at = pieces_at, .arg = pieces };
	avg_point_done(&s->point);
	avg_point_init(&s->point);
	avg_point_copy(&s->point, p);
	s->donors = donors;
	s->step = SYNC_CHECK;
	how.epoch = s->point.epoch;
	how.live = s->point.params;
	trainer_fill(r->trainer, &how, checked, r);
}

static void again(struct sync *s, const char *why)
{
	s->step = SYNC_FETCH;
	fetch_again(s->fetch, why);
}

static void checked(void *arg, const struct err *e)
{
	struct run *r = arg;
	struct sync *s = r->sync;
	if (!s || s->step != SYNC_CHECK)
		return;
	if (e) {
		if (s->holds)                   /* what came was beside it, and has gone */
			fetch_forget(s->fetch);
		again(s, e->text);
		return;
	}
	sync_let_go(r);
	run_given(r, &s->point);
	if (r->point.params)
		run_record_params(r, &r->point, &s->point, NULL);
	avg_point_done(&r->point);
	avg_point_init(&r->point);
	avg_point_copy(&r->point, &s->point);
	run_applied_point(r);
	drop_kept(s, s->point.epoch);
	s->step = SYNC_REPLAY;
	replay(s);
}

/* ---- what was here ---- */

bool sync_holds(const struct run *r)
{
	return r->sync->holds;
}

void sync_let_go(struct run *r)
{
	r->sync->holds = false;
}

static void went_back(void *arg, const struct err *error)
{
	struct run *r = arg;
	struct sync *s = r->sync;
	struct err e;
	if (!s || s->step != SYNC_BACK)
		return;
	r->sync = NULL;
	sync_free(s);
	if (error || avg_enter(r->avg, &r->point, false, &e))
		run_fail(r, error ? error : &e);
	else
		run_event(r, EV_SYNCED);
}

static void go_back(struct sync *s)
{
	struct run *r = s->r;
	run_log(r, LOG_WARN_, "sync.nobody", "nobody who holds the run's state is there any more: going on with epoch "
		"%llu, which this peer has kept", (unsigned long long)r->point.epoch);
	fetch_free(s->fetch);
	s->fetch = NULL;
	s->step = SYNC_BACK;
	trainer_fill(r->trainer, &(struct trainer_fill){ .epoch = r->point.epoch, .live = r->point.params }, went_back, r);
}

static void is_quiet(void *arg)
{
	struct run *r = arg;
	trainer_grant(r->trainer, &(struct ranges){ 0 });       /* what was promised here is the others' by now */
	if (r->sync && !r->sync->fetch)
		r->sync->fetch = fetch_new(r);
}

static bool applied(const struct run *r)
{
	struct trainer_view v;
	trainer_view(r->trainer, &v);
	return v.epoch == r->point.epoch;
}

static void still(struct timer *t)
{
	struct sync *s = container_of(t, struct sync, still);
	struct env *env = s->r->rs->ctx.env;
	s->holds = applied(s->r);
	if (!s->holds && env_now(env) < s->still_by_us)
		env_after(env, t, LOOK_US);
	else
		trainer_quiet(s->r->trainer, is_quiet, s->r);
}

/* Again, while it is under way: what was here is as whole as it was. */
static void inherit(struct sync *s, struct sync *old, bool whole)
{
	if (!old) {
		s->holds = whole && s->r->point.epoch && applied(s->r);
		return;
	}
	s->holds = old->holds && old->step == SYNC_FETCH;
	sync_free(old);
}

void sync_start(struct run *r, bool whole)
{
	struct sync *s = xcalloc(1, sizeof *s), *old = r->sync;
	struct err e;
	uint64_t now = env_now(r->rs->ctx.env);
	bool waits = old ? old->still.at_us != 0 : whole && r->point.epoch && !applied(r);
	*s = (struct sync){ .r = r, .begun_us = now, .heard_us = now, .still_by_us = now + APPLY_US };
	s->still = (struct timer){ .fire = still, .name = "run.still" };
	list_init(&s->kept);
	avg_point_init(&s->point);
	inherit(s, old, whole);
	r->sync = s;
	if (avg_enter(r->avg, &r->point, true, &e))
		run_fail(r, &e);
	else if (waits) {
		trainer_pause(r->trainer);      /* rounds go on: what is decided is applied */
		env_after(r->rs->ctx.env, &s->still, LOOK_US);
	} else
		trainer_quiet(r->trainer, is_quiet, r);
}

/* ---- commits that pass ---- */

/* Room for one more: of what is kept the oldest goes, since a state that is asked for now is newer than that; but not
 * the one that is being replayed. A hole that matters shows in replay. */
static bool make_room(struct sync *s, size_t bytes)
{
	uint64_t max = s->r->rs->ctx.memory_bytes / 4;
	if (max < KEPT_BYTES_MIN)
		max = KEPT_BYTES_MIN;
	while (s->nkept && (s->nkept + 1) * bytes > max) {
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
	else if (s->step == SYNC_FETCH && s->nkept && s->fetch && first_kept(s)->epoch - 1 > fetch_epoch(s->fetch))
		again(s, "more epochs passed than could be kept");      /* the state that comes is too old by now */
	return true;
}

static void caught_up(struct sync *s)
{
	struct run *r = s->r;
	struct err e;
	uint64_t took = env_now(r->rs->ctx.env) - s->begun_us;
	run_log(r, LOG_INFO_, "run.synced", "state of epoch %llu after %.3f s, from %u members",
		(unsigned long long)r->point.epoch, (double)took / 1e6, s->donors);
	r->sync = NULL;
	sync_free(s);
	if (run_reach(r))                       /* what came is what the others have ended with */
		return;
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
			again(s, "a commit between the state and the present is missing");
			return;
		}
		if (trainer_commit(r->trainer, k->epoch, k->mean, 0, k->point.params, &e))
			again(s, e.text);
		return;
	}
	caught_up(s);
}

bool sync_applied(struct run *r, const struct trainer_applied *a)
{
	struct sync *s = r->sync;
	if (s && s->still.at_us)                /* of what was decided here before */
		return false;
	if (!s || s->step != SYNC_REPLAY || list_empty(&s->kept))
		return s != NULL;
	struct kept *k = list_entry(s->kept.next, struct kept, link);
	if (k->epoch != a->epoch)
		return true;
	if (r->point.params_version != k->point.params_version)
		run_record_params(r, &r->point, &k->point, NULL);
	avg_point_done(&r->point);
	avg_point_init(&r->point);
	avg_point_copy(&r->point, &k->point);
	run_applied_point(r);
	kept_free(s, k);
	replay(s);
	return true;
}
