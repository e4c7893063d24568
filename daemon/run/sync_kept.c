/* What a state download begins with, and what is kept for it: commits that come before the state, and what this peer
 * has learned itself, until the other state is whole. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "run/sync.h"

#define KEPT_BYTES_MIN (1ull << 30)     /* commits are kept up to this, or a quarter of the machine's memory */
#define APPLY_US 5000000                /* what is decided becomes the state, or is not waited for */
#define LOOK_US 5000                    /* between looks whether it is */

void sync_drop(struct sync *s, struct kept_commit *k)
{
	list_del(&k->link);
	s->nkept--;
	avg_point_done(&k->point);
	lease_put(k->lease);
	free(k);
}

void sync_drop_to(struct sync *s, uint64_t epoch)
{
	list_each_safe(it, &s->kept) {
		struct kept_commit *k = list_entry(it, struct kept_commit, link);
		if (k->epoch <= epoch)
			sync_drop(s, k);
	}
}

void sync_free(struct sync *s)
{
	if (!s)
		return;
	fetch_free(s->fetch);
	env_timer(s->r->rs->ctx.env, &s->still, 0);
	sync_drop_to(s, UINT64_MAX);
	avg_point_done(&s->point);
	free(s);
}

const struct kept_commit *sync_first(const struct sync *s)
{
	return s->nkept ? list_entry(s->kept.next, struct kept_commit, link) : NULL;
}

/* Room for one more: of what is kept the oldest goes, since a state that is asked for now is newer than that; but not
 * the one that is being replayed. A hole that matters shows in replay. */
bool sync_make_room(struct sync *s, size_t bytes)
{
	uint64_t max = s->r->rs->ctx.memory_bytes / 4;
	if (max < KEPT_BYTES_MIN)
		max = KEPT_BYTES_MIN;
	while (s->nkept && (s->nkept + 1) * bytes > max) {
		struct list *oldest = s->step == SYNC_REPLAY ? s->kept.next->next : s->kept.next;
		if (oldest == &s->kept)
			return false;
		sync_drop(s, list_entry(oldest, struct kept_commit, link));
	}
	return true;
}

/* ---- what the fetch asks ---- */

/* Every commit after *ret_from is kept or will come. */
bool sync_follows(struct run *r, uint64_t *ret_from)
{
	struct avg_view v;
	avg_view(r->avg, &v);
	*ret_from = r->sync->nkept ? sync_first(r->sync)->epoch - 1 : v.epoch;
	return v.following;
}

bool sync_fits(struct run *r, const struct avg_point *p)
{
	list_each(it, &r->sync->kept) {
		const struct kept_commit *k = list_entry(it, struct kept_commit, link);
		if (k->epoch == p->epoch)
			return !memcmp(k->point.prev, p->prev, DIGEST);
	}
	return true;
}

void sync_heard(struct run *r)
{
	r->sync->heard_us = env_now(r->rs->ctx.env);
}

bool sync_holds(const struct run *r)
{
	return r->sync->holds;
}

void sync_let_go(struct run *r)
{
	r->sync->holds = false;
}

/* ---- it begins ---- */

static bool is_applied(const struct run *r)
{
	struct trainer_view v;
	trainer_view(r->trainer, &v);
	return v.epoch == r->point.epoch;
}

/* Again, while it is under way: what was here is as whole as it was. */
static void inherit(struct sync *s, struct sync *old, bool whole)
{
	if (!old) {
		s->holds = whole && s->r->point.epoch && is_applied(s->r);
		return;
	}
	s->holds = old->holds && old->step == SYNC_FETCH;
	sync_free(old);
}

/* The last commit that was decided here is applied, or is not waited for any more. */
static void still(struct timer *t)
{
	struct sync *s = container_of(t, struct sync, still);
	struct env *env = s->r->rs->ctx.env;
	s->holds = is_applied(s->r);
	if (!s->holds && env_now(env) < s->still_by_us)
		env_after(env, t, LOOK_US);
	else
		trainer_quiet(s->r->trainer, s->r->rs->calls->quiet, s->r);
}

enum run_event sync_start(struct run *r, bool whole)
{
	struct sync *s = xcalloc(1, sizeof *s), *old = r->sync;
	struct err e;
	uint64_t now = env_now(r->rs->ctx.env);
	bool waits = old ? old->still.at_us != 0 : whole && r->point.epoch && !is_applied(r);
	*s = (struct sync){ .r = r, .begun_us = now, .heard_us = now, .still_by_us = now + APPLY_US };
	s->still = (struct timer){ .fire = still, .name = "run.still" };
	list_init(&s->kept);
	avg_point_init(&s->point);
	inherit(s, old, whole);
	r->sync = s;
	if (avg_enter(r->avg, &r->point, true, &e))
		return run_broken(r, &e);
	if (waits) {
		trainer_pause(r->trainer);      /* rounds go on: what is decided is applied */
		env_after(r->rs->ctx.env, &s->still, LOOK_US);
	} else
		trainer_quiet(r->trainer, r->rs->calls->quiet, r);
	return EV_NONE;
}
