/* State download: a peer that is behind rides along as a follower while fetch.c brings parameters, optimizer state
 * and point from other members: commits that come before the state are kept and replayed on top of it, so that it ends
 * exactly where the swarm is, however long the download takes.
 *
 *   followed from epoch F  ->  fetch: a state of epoch X >= F  ->  replay of X + 1 ..., then avg_enter as a member
 *
 * What this peer has learned itself stays until the other state is whole: it is fetched beside it, and when nobody is
 * left who could give the rest this peer goes on with its own. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "run/sync.h"

#define SILENT_US 30000000              /* whom nobody has heard of this is not there, whatever the roster says */
#define ALONE_US 10000000               /* nobody comes back after it: a swarm that starts anew waits as long */

static void replay(struct sync *s);
static void checked(void *arg, const struct err *e);
static void go_back(struct sync *s);

/* Those who had the state may be gone for good, and what this peer has saved is the newest there is. */
bool sync_alone(struct run *r)
{
	struct sync *s = r->sync;
	uint64_t now = env_now(r->rs->ctx.env);
	if (run_has_others(r) && now - s->heard_us < SILENT_US) {
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
	run_event(r, run_again_saved(r));
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
	sync_drop_to(s, s->point.epoch);
	s->step = SYNC_REPLAY;
	replay(s);
}

/* ---- what was here ---- */

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

void sync_quiet(void *arg)
{
	struct run *r = arg;
	trainer_grant(r->trainer, &(struct ranges){ 0 });       /* what was promised here is the others' by now */
	if (r->sync && !r->sync->fetch)
		r->sync->fetch = fetch_new(r);
}

/* ---- commits that pass ---- */

bool sync_commit(struct run *r, const struct avg_commit *c, const float *mean)
{
	struct sync *s = r->sync;
	if (!s)
		return false;
	size_t bytes = trainer_contribution_len(r->trainer) * sizeof *mean;
	struct kept_commit *k = mean && sync_make_room(s, bytes) ? xcalloc(1, sizeof *k) : NULL;
	if (k && !(k->lease = c->lease ? lease_take(c->lease) : trainer_room(r->trainer, bytes))) {
		free(k);
		k = NULL;
	}
	if (k) {
		k->epoch = c->epoch;
		avg_point_init(&k->point);
		avg_point_copy(&k->point, c->point);
		k->mean = c->lease ? mean : memcpy(k->lease->p, mean, bytes);
		list_push(&s->kept, &k->link);
		s->nkept++;
	}
	if (s->step == SYNC_REPLAY && k && s->nkept == 1)
		replay(s);
	else if (s->step == SYNC_FETCH && s->nkept && s->fetch && sync_first(s)->epoch - 1 > fetch_epoch(s->fetch))
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
		struct kept_commit *k = list_entry(s->kept.next, struct kept_commit, link);
		if (k->epoch <= r->point.epoch) {
			sync_drop(s, k);
			continue;
		}
		if (k->epoch != r->point.epoch + 1) {   /* a hole: this state cannot be caught up from */
			again(s, "a commit between the state and the present is missing");
			return;
		}
		if (trainer_commit(r->trainer, k->epoch, k->mean, k->lease, 0, k->point.samples - r->point.samples,
				k->point.params, &e))
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
	struct kept_commit *k = list_entry(s->kept.next, struct kept_commit, link);
	if (k->epoch != a->epoch)
		return true;
	if (r->point.params_version != k->point.params_version)
		run_record_params(r, &r->point, &k->point, NULL);
	avg_point_done(&r->point);
	avg_point_init(&r->point);
	avg_point_copy(&r->point, &k->point);
	run_applied_point(r);
	sync_drop(s, k);
	replay(s);
	return true;
}
