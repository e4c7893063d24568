/* What a peer of the averager's scenarios does: it trains, hands over what it has, and takes the state of others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "avg/int.h"
#include "avg_world.h"
#include "check.h"
#include "common/mem.h"

#define SYNC_US (5 * MSEC)
#define STAY_US (30 * SEC)                      /* run/donor.c */
#define ALONE_US (30 * SEC)                     /* the daemon: 30 s, if it believes somebody to live, and 10 */

static uint64_t micro_of(struct apeer *p)
{
	return p->w->micro_of ? p->w->micro_of(p->w, p->node) : p->w->micro;
}

static void give_back(struct apeer *p)
{
	ranges_add_all(&p->grant, &p->flying);
	ranges_clear(&p->flying);
	env_timer(p->env, &p->step, 0);
	p->busy = false;
}

void world_train(struct apeer *p)
{
	bool over = p->w->max_epoch && p->point.epoch >= p->w->max_epoch;
	if (p->busy || p->in_round || p->syncing || p->held || p->w->aux[p->node] || over || world_is_other(p))
		return;
	uint64_t now = env_now(p->env);
	if (now < p->w->start_us) {
		p->busy = true;
		env_timer(p->env, &p->step, p->w->start_us);
		return;
	}
	ranges_take(&p->grant, micro_of(p), &p->flying);
	if (!p->flying.n)
		return;
	p->busy = true;
	env_after(p->env, &p->step, p->step_us);
}

static void step_done(struct timer *t)
{
	struct apeer *p = container_of(t, struct apeer, step);
	p->busy = false;
	if (p->flying.n) {
		if (ranges_overlap(&p->flying, &p->claimed))
			sim_fail(p->w->s, "node %d: granted positions that it has claimed", p->node);
		p->samples += ranges_count(&p->flying);
		ranges_add_all(&p->claimed, &p->flying);
		ranges_clear(&p->flying);
		avg_progress(p->avg, p->samples, (double)micro_of(p) * 1e6 / (double)p->step_us, &p->claimed);
	}
	world_train(p);
}

/* A member of a unit brings its part of what the head has processed; once that has said what it is. */
static bool head_ready(struct apeer *p)
{
	const struct apeer *head = world_head_of(p);
	if (!world_is_other(p))
		return true;
	ranges_clear(&p->claimed);
	p->samples = 0;
	if (!head || head->point.epoch != p->point.epoch || head->syncing)
		return true;                    /* it will not: nothing */
	if (!head->in_round || !head->contributed || head->round_epoch != p->round_epoch)
		return false;
	ranges_copy(&p->claimed, &head->claimed);
	p->samples = head->samples;
	return true;
}

static void contribute(struct apeer *p)
{
	size_t len = p->w->conf.len;
	const struct whold *h = world_hold_of(p);
	if (!head_ready(p)) {
		env_after(p->env, &p->sync, MSEC);
		return;
	}
	p->contributed = true;
	if (p->w->gradient && p->samples)
		p->w->gradient(p->w, &p->claimed, p->model, p->x);
	for (size_t k = 0; k < len && !p->w->gradient; k++) {
		double sum = 0;
		for (size_t i = 0; i < p->claimed.n; i++)
			for (uint64_t pos = p->claimed.v[i].lo; pos < p->claimed.v[i].hi; pos++)
				sum += world_gradient(pos, k);
		p->x[k] = p->samples ? (float)(sum / (double)p->samples) : 0;
	}
	if (p->samples && p->w->twist)
		p->w->twist(p->w, p->node, p->x);
	if (p->samples && p->w->bring) {
		p->w->bring(p->w, p);
		return;
	}
	if (p->samples && p->w->claims) {
		struct ranges c = { 0 };
		uint64_t samples = p->samples;
		ranges_copy(&c, &p->claimed);
		p->w->claims(p->w, p->node, &c, &samples);
		avg_contribute(p->avg, p->round_epoch, p->x + (h ? h->lo : 0), samples, &c);
		ranges_free(&c);
		return;
	}
	uint64_t brags = p->samples ? p->w->brags[p->node] : 0;
	if (brags) {
		struct ranges far = { 0 };
		ranges_add(&far, 1000000, 1000000 + brags);
		avg_contribute(p->avg, p->round_epoch, p->x, brags, &far);
		ranges_free(&far);
		return;
	}
	avg_contribute(p->avg, p->round_epoch, p->samples ? p->x + (h ? h->lo : 0) : NULL, p->samples, &p->claimed);
}

static void on_begin(void *arg, const struct avg_begin *b)
{
	struct apeer *p = arg;
	check_begin(p->w->check, p, b->epoch);
	give_back(p);
	p->in_round = !p->syncing;
	p->begun_us = env_now(p->env);
	p->begins = b->epoch == p->round_epoch ? p->begins + 1 : 1;
	p->deadline_us = b->deadline_us;
	p->round_epoch = b->epoch;
	p->contributed = false;
	if (p->syncing)
		avg_contribute(p->avg, b->epoch, NULL, 0, NULL);
	else if (p->w->slow_contribute_us[p->node])     /* not busy: it trains on when the round is given up */
		env_after(p->env, &p->sync, p->w->slow_contribute_us[p->node]);
	else
		contribute(p);
}

static void forget(struct apeer *p)
{
	p->in_round = p->contributed = p->busy = false;
	env_timer(p->env, &p->step, 0);
	ranges_clear(&p->claimed);
	ranges_clear(&p->flying);
	p->samples = 0;
}

static void save(struct apeer *p)
{
	avg_point_copy(&p->w->saved[p->node], &p->point);
	memcpy(p->w->saved_model[p->node], p->model, p->w->conf.len * sizeof(float));
}

static void apply(struct apeer *p, const struct avg_point *at, const float *mean, uint64_t lo, uint64_t hi)
{
	uint8_t digest[16];
	mean -= lo;
	if (p->w->learn)
		p->w->learn(p->w, mean, p->model);
	for (size_t k = lo; k < hi && !p->w->learn; k++)
		p->model[k] = p->w->takes_mean ? mean[k] : p->model[k] * 0.9f + mean[k];
	if (p->w->corrupt[p->node]) {
		p->model[0] += 1;
		p->w->corrupt[p->node] = false;
	}
	avg_point_copy(&p->point, at);
	p->commits++;
	p->applied_us = env_now(p->env);
	xxh128_of(p->model, p->w->conf.len * sizeof(float), digest);
	if (p->w->keep_state)
		save(p);
	avg_applied(p->avg, at->epoch, digest);
}

static void left(void *arg)
{
	struct apeer *p = arg;
	p->w->left[p->node] = true;
}

/* Whoever sent the last COMMIT waits for nobody whom it takes for dead. */
static void give_up_on(struct apeer *p)
{
	for (int i = 0; i < sim_nodes(p->w->s) && p->avg->told_epoch == p->point.epoch; i++) {
		struct apeer *o = world_peer(p->w, i);
		if (o && o != p && !avg_lives(p->avg, net_self(o->net)))
			p->w->given_up[i] = true;
	}
}

/* As a daemon: who led the last round stays for members that have missed it, and everybody for who follows. */
static void may_leave(struct timer *t)
{
	struct apeer *p = container_of(t, struct apeer, leave);
	struct avg_view v;
	avg_view(p->avg, &v);
	if ((v.behind || (v.followers && !v.following)) && env_now(p->env) - p->applied_us < STAY_US)
		env_after(p->env, &p->leave, SYNC_US);
	else {
		give_up_on(p);
		avg_leave(p->avg, left, p);
	}
}

static void on_commit(void *arg, const struct avg_commit *c, const float *mean)
{
	struct apeer *p = arg;
	if (!sim_alive(p->w->s, p->node))       /* killed inside this callback: nobody sees what it still does */
		return;
	if (p->syncing) {
		if (p->nkept < 32) {
			struct kept *k = &p->kept[p->nkept++];
			*k = (struct kept){ .epoch = c->epoch, .lo = c->lo, .hi = c->hi,
				.mean = xmalloc((c->hi - c->lo) * sizeof(float) + 1) };
			memcpy(k->mean, mean, (c->hi - c->lo) * sizeof(float));
			avg_point_copy(&k->point, c->point);
		}
		p->in_round = false;
		return;
	}
	world_lent(p, c, mean);
	check_commit(p->w->check, p, &p->point, c, mean);
	if (!p->judged && env_now(p->env) - p->took_us > SEC) {        /* the welcome that tells what was before has come */
		check_taken(p->w->check, p, &p->gave_up, p->forked);
		p->judged = true;
	}
	if (p->w->saw)
		p->w->saw(p->w, p, c, mean);
	p->my_total += c->my_samples;
	forget(p);
	apply(p, c->point, mean, c->lo, c->hi);
	ranges_copy(&p->grant, c->grant);
	if (p->w->leave_at && c->epoch == p->w->leave_at)
		env_after(p->env, &p->leave, 1);
	else
		world_train(p);
}

static void on_failed(void *arg, uint64_t epoch, const struct err *e)
{
	struct apeer *p = arg;
	p->fails++;
	p->in_round = p->contributed = false;
	world_train(p);
}

static void on_grant(void *arg, const struct ranges *grant)
{
	struct apeer *p = arg;
	if (p->syncing)
		return;
	ranges_copy(&p->grant, grant);
	ranges_sub_all(&p->grant, &p->flying);
	world_train(p);
}

/* ---- state download: the donor's memory, or of who has most when it is not there, a few milliseconds later ---- */

void world_drop_kept(struct apeer *p)
{
	for (int i = 0; i < p->nkept; i++) {
		avg_point_done(&p->kept[i].point);
		free(p->kept[i].mean);
	}
	p->nkept = 0;
}

static struct apeer *donor_of(struct apeer *p)
{
	struct apeer *best = p->w->donor ? p->w->donor(p->w, p->node) : NULL;
	struct avg_member m[WORLD_MAX];
	if (best)
		return best;
	size_t n = avg_members(p->avg, m, WORLD_MAX);
	for (int i = 0; i < sim_nodes(p->w->s); i++) {
		struct apeer *o = world_peer(p->w, i);
		for (size_t k = 0; o && o != p && !o->syncing && k < n && k < WORLD_MAX; k++)
			if (m[k].live && id_eq(&m[k].id, net_self(o->net)) && (!best || id_eq(&m[k].id, &p->donor) ||
					(o->point.samples > best->point.samples && !id_eq(net_self(best->net), &p->donor))))
				best = o;
	}
	return best;
}

static void on_forked(void *arg, uint64_t common, uint64_t last)
{
	struct apeer *p = arg;
	p->forked = common < p->forked ? common : p->forked;
}

static void enter(struct apeer *p)
{
	struct err e;
	p->syncing = p->follower = false;
	p->took_us = env_now(p->env);
	if (avg_enter(p->avg, &p->point, false, &e))
		sim_fail(p->w->s, "node %d: %s", p->node, e.text);
	if (p->w->leave_at && p->point.epoch >= p->w->leave_at) {
		save(p);
		env_after(p->env, &p->leave, 1);
	}
}

/* When nobody who could give it is there for long it goes on with its own, as the daemon does (run/sync.c). */
static void sync_fire(struct timer *t)
{
	struct apeer *p = container_of(t, struct apeer, sync);
	if (!p->syncing) {                      /* a slow owner */
		if (p->in_round && !p->contributed)
			contribute(p);
		return;
	}
	struct apeer *from = donor_of(p);
	uint64_t common;
	p->alone_us = from ? 0 : p->alone_us ? p->alone_us : env_now(p->env);
	if (!from && p->point.epoch && !p->w->leave_at && env_now(p->env) - p->alone_us >= ALONE_US) {
		world_drop_kept(p);
		enter(p);
		return;
	}
	if (!from) {
		env_after(p->env, &p->sync, SYNC_US);
		return;
	}
	avg_point_copy(&p->point, &from->point);
	avg_past_of(from->avg, &p->point);
	if (avg_given(p->avg, &p->point, &common))
		on_forked(p, common, UINT64_MAX);
	memcpy(p->model, from->model, p->w->conf.len * sizeof(float));
	for (int i = 0; i < p->nkept; i++) {
		struct kept *k = &p->kept[i];
		if (k->epoch <= p->point.epoch)
			continue;
		if (k->epoch != p->point.epoch + 1) {
			world_drop_kept(p);
			env_after(p->env, &p->sync, SYNC_US);
			return;
		}
		apply(p, &k->point, k->mean, k->lo, k->hi);
	}
	world_drop_kept(p);
	enter(p);
}

void world_resync(void *arg, enum avg_why why, const struct id *donor, uint64_t epoch)
{
	struct apeer *p = arg;
	struct err e;
	p->resyncs[why]++;
	if (p->judged) {
		avg_point_copy(&p->gave_up, &p->point);
		p->forked = UINT64_MAX;
		p->judged = false;
		p->turns = 0;
	}
	p->turns++;
	forget(p);
	ranges_clear(&p->grant);
	world_drop_kept(p);
	p->syncing = true;
	p->donor = *donor;
	avg_enter(p->avg, &p->point, true, &e);
	env_after(p->env, &p->sync, SYNC_US);
}

static void on_event(void *arg, enum log_level level, const char *code, const struct id *peer, const char *text)
{
	struct apeer *p = arg;
	if (!strcmp(code, "equivocation"))
		world_equivocation(p, peer, text);
	snprintf(p->said, sizeof p->said, "%s", text);
	if (!strcmp(code, "forges") && p->w->lawless < 0)
		sim_fail(p->w->s, "node %d: nobody lies here, and one is said to: %s", p->node, text);
	if (p->w->heard)
		p->w->heard(p->w, p->node, code, peer);
	if (getenv("VERBOSE"))
		fprintf(stderr, "%8llu node %d: %s: %s\n", (unsigned long long)env_now(p->env), p->node, code, text);
}

static int on_may_change(void *arg, const struct id *author, const json_t *patch, const json_t *params, struct err *e)
{
	struct apeer *p = arg;
	return p->w->may && p->node != p->w->lawless ? p->w->may(p->w, author, patch, e) : 0;
}

const struct avg_cb world_callbacks = { on_begin, on_commit, on_failed, world_resync, on_grant, on_event, on_forked,
	on_may_change, .overflows = world_overflows };

void world_timers(struct apeer *p)
{
	p->step = (struct timer){ .fire = step_done, .name = "test.step" };
	p->sync = (struct timer){ .fire = sync_fire, .name = "test.sync" };
	p->leave = (struct timer){ .fire = may_leave, .name = "test.leave" };
}
