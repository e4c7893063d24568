/* The averager's face. What the owner calls is noted and done from `kick`, a timer that fires at once: no callback
 * re-enters its caller, and several calls of one event become one step. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "avg/audit.h"
#include "avg/fork.h"
#include "avg/grow.h"
#include "avg/lead.h"
#include "avg/proof.h"
#include "avg/units.h"

static void kick_fire(struct timer *t);

static void conf_defaults(struct avg_conf *c)
{
	if (!c->group_max)
		c->group_max = WIRE_MEMBERS_MAX;
	if (!c->group_size)
		c->group_size = 64;
	if (!(c->minority_wait_rounds > 0))
		c->minority_wait_rounds = 3;
	if (!c->round_floor_us)
		c->round_floor_us = 200 * MS;
	if (!c->micro_batch)
		c->micro_batch = 1;
	c->hashes = hashes_both(c->hashes, HASHES_NEWEST);
	if (!c->slice)
		c->slice = 1u << 17;
	c->tensors = xmemdup(c->tensors ? c->tensors : &(struct avg_tensor){ 0 }, (c->ntensors + !c->ntensors) *
		sizeof *c->tensors);
	json_incref(c->codec);
}

struct avg *avg_new(struct env *env, struct net *net, struct chunks *chunks, struct dht *dht,
	const struct avg_conf *conf,
	const struct avg_cb *cb, void *arg, struct err *e)
{
	if (!conf->len || !conf->target_batch) {
		err_set(e, ERR_INVALID, "averaging needs a vector and a target batch size of at least 1");
		return NULL;
	}
	struct avg *a = xcalloc(1, sizeof *a);
	a->env = env;
	a->net = net;
	a->chunks = chunks;
	a->dht = dht;
	a->conf = *conf;
	a->target = conf->target_batch;
	a->cb = *cb;
	a->arg = arg;
	conf_defaults(&a->conf);
	id_hex(&conf->run, a->hex);
	snprintf(a->key, sizeof a->key, "run:%s:peers", a->hex);
	meet_init(a);
	list_init(&a->mates);
	list_init(&a->tails);
	list_init(&a->early);
	list_init(&a->asks);
	list_init(&a->commits);
	avg_point_init(&a->point);
	a->kick = (struct timer){ .fire = kick_fire, .name = "avg.kick" };
	a->beat = (struct timer){ .fire = progress_beat, .name = "avg.beat" };
	a->silent = member_silent;
	a->meet = (struct timer){ .fire = meet_fire, .name = "avg.meet" };
	a->me = mate_make(a, net_self(net));
	a->me->at = *net_endpoint(net);
	a->me->micro = a->conf.micro_batch;
	a->me->hashes = a->conf.hashes;
	a->me->flags = (uint8_t)((conf->client ? MATE_CLIENT : 0) | (conf->aux ? MATE_AUX : 0));
	if (hub_enter(a, e)) {
		mate_free(a, a->me);
		free((void *)a->conf.tensors);
		json_decref(a->conf.codec);
		free(a);
		return NULL;
	}
	net_watch(net, roster_news, a);
	return a;
}

void avg_free(struct avg *a, void (*quiet)(void *arg), void *arg)
{
	if (!a) {
		if (quiet)
			quiet(arg);
		return;
	}
	a->freeing = true;
	a->quiet = quiet;
	a->quiet_arg = arg;
	net_unwatch(a->net, roster_news, a);
	hub_leave(a);
	meet_stop(a);
	recover_free(a);
	shown_drop(a);
	proofs_free(a);
	units_free(a);
	free(a->roster_ids);
	audits_free(a);
	if (a->round)
		round_close(a->round);
	early_drop(a);
	early_begin_drop(a);
	round_reap(a, true);
	propose_free(a);
	commits_forget(a);
	if (a->grant_call)
		net_cancel(a->net, a->grant_call);
	if (a->beat_call)
		net_cancel(a->net, a->beat_call);
	while (!list_empty(&a->mates))
		mate_free(a, list_entry(a->mates.next, struct mate, link));
	env_timer(a->env, &a->kick, 0);
	env_timer(a->env, &a->beat, 0);
	env_timer(a->env, &a->leave_timer, 0);
	avg_point_done(&a->point);
	free(a->was);
	free(a->tail);
	ranges_free(&a->claimed);
	buf_free(&a->last_commit);
	kept_forget(a);
	avg_tell_quiet(a);
	if (list_empty(&a->tails))
		avg_end(a);                     /* else the last job's end does it (avg_job_over) */
}

void avg_target(struct avg *a, uint64_t samples)
{
	assert(samples);
	a->target = samples;
}

/* A state that is newer than what this peer has followed: the COMMIT of it is on its way, those behind it, too. What
 * was promised before, and has been processed since, is not given again when this peer should come to lead. */
static void jump(struct avg *a, const struct avg_point *at)
{
	if (a->round)
		round_close(a->round);
	avg_point_copy(&a->point, at);
	list_each(it, &a->mates)
		ranges_sub_all(&list_entry(it, struct mate, link)->grant, &a->point.done);
	a->gen++;
	past_enter(a);
	buf_clear(&a->last_commit);
	kept_forget(a);
	ranges_clear(&a->claimed);
	a->samples = a->digest_epoch = 0;
	apply_leader(a);
}

int avg_enter(struct avg *a, const struct avg_point *at, bool follower, struct err *e)
{
	bool here = a->state == AVG_IN && same_point(a, at->epoch, at->prev);
	if (at->epoch && a->conf.target_batch == 0)
		return err_set(e, ERR_INVALID, "no target batch");
	a->follower = follower;
	a->leaving = a->leave_told = false;
	a->lost_pending = false;
	if (a->me->flags & MATE_AUX)
		ranges_clear(&a->me->grant);
	if (!follower && !here && a->state == AVG_IN && (a->me->flags & MATE_FOLLOWER) && at->epoch > a->point.epoch) {
		jump(a, at);
		here = true;
	}
	if (here && a->leader && !is_leader(a)) {      /* a follower that has caught up: JOIN makes it a full member */
		past_enter(a);
		a->enter_us = now_of(a);
		join_caught_up(a);
		meet_now(a);
		return 0;
	}
	life_begin(a);
	recover_free(a);
	shown_drop(a);
	a->begun_us = at->epoch ? 0 : now_of(a);
	if (a->round)
		round_close(a->round);
	if (a->state == AVG_IN && !PLANTED(ENTERS_UNTOLD))
		leave_post(a);
	roster_clear(a);
	avg_point_copy(&a->point, at);
	residuals_clear(a);
	past_enter(a);
	a->term = a->nled = 0;
	a->claim = (struct term_claim){ 0 };
	a->point_us = now_of(a);
	a->gen++;
	roster_reorder(a);
	buf_clear(&a->last_commit);
	kept_forget(a);
	witness_forget(a);
	a->samples = 0;
	a->digest_epoch = 0;
	a->n_last = 0;
	ranges_clear(&a->claimed);
	a->state = AVG_JOINING;
	a->enter_us = now_of(a);
	a->unreachable = a->hops = 0;
	a->turned_away = false;
	a->full_us = 0;
	a->look_us = 0;
	a->lonely = 0;
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		m->probe_us = m->backoff_us = 0;
	}
	meet_now(a);
	env_after(a->env, &a->beat, HEARTBEAT_US);
	return 0;
}

void avg_meet(struct avg *a, const struct id *peer)
{
	struct mate *m = id_eq(peer, &a->me->id) ? NULL : mate_make(a, peer);
	if (!m || m->member)
		return;
	m->live = true;
	m->probe_us = 0;
	meet_now(a);
}

void avg_share(struct avg *a, uint64_t samples)
{
	a->me->share = samples;
}

void avg_progress(struct avg *a, uint64_t samples, double rate, const struct ranges *claimed)
{
	a->samples = samples;
	a->rate = rate > 0 ? rate : 0;
	if (claimed)
		ranges_copy(&a->claimed, claimed);
	else
		ranges_clear(&a->claimed);
	a->fresh_progress = true;
	kick(a);
}

/* NULL: that round is over, and its end has been or will be told. */
static struct round *wants(const struct avg *a, uint64_t epoch)
{
	struct round *r = a->round;
	return r && r->b.epoch == epoch && r->b.what == BODY_BEGIN ? r : NULL;
}

static bool contribute(struct avg *a, uint64_t epoch, const float *x, uint64_t samples, const struct ranges *claimed)
{
	struct round *r = wants(a, epoch);
	if (!r || r->contributed || r->told_x)
		return false;
	r->contributed = true;
	bool brings = r->b.held ? r->b.held[r->me].unit != NO_UNIT : !(a->me->flags & MATE_AUX);
	r->x = samples ? round_base(x, r->b.held ? r->b.held[r->me].lo : 0) : NULL;
	r->samples = x && brings && !(a->me->flags & MATE_FOLLOWER) ? samples : 0;
	ranges_clear(&r->claimed);
	if (claimed && r->samples && body_head(&r->b, (size_t)r->me) == (size_t)r->me)
		ranges_copy(&r->claimed, claimed);
	kick(a);
	return true;
}

void avg_contribute(struct avg *a, uint64_t epoch, const float *x, uint64_t samples, const struct ranges *claimed)
{
	contribute(a, epoch, x, samples, claimed);
}

void avg_contribute_part(struct avg *a, uint64_t epoch, const float *x, uint64_t samples, const struct ranges *claimed,
	uint64_t lo, uint64_t hi)
{
	if (contribute(a, epoch, x, samples, claimed))
		grow_begin(a->round);
	if (wants(a, epoch) && grow_by(a->round, lo, hi))
		kick(a);
}

void avg_behind(struct avg *a)
{
	if (a->round && a->round->b.held && !PLANTED(BEHIND_MEASURED))
		a->round->behind = true;
}

void avg_grows(struct avg *a, bool grows) { a->grows = grows; }

void avg_applied(struct avg *a, uint64_t epoch, const uint8_t params_digest[16])
{
	/* Lines of a grid are compared by COMMIT, and with each other not at all; parts of the vector likewise. */
	a->digest_epoch = a->apart || a->units ? 0 : epoch;
	memcpy(a->digest, params_digest, 16);
	a->tell = true;
	kick(a);
}

void avg_hold(struct avg *a, bool hold)
{
	a->hold = hold;
	a->tell = true;
	kick(a);
}

void avg_stay(struct avg *a, uint64_t until_us)
{
	a->stay_us = until_us;
	kick(a);
}

bool avg_commits(const struct avg *a)
{
	return a->round && a->round->commit;
}

/* ---- kick ---- */

static void tell_lost(struct avg *a)
{
	if (!a->lost_pending || a->x_jobs)
		return;
	a->lost_pending = false;
	a->samples = 0;
	ranges_clear(&a->claimed);
	a->cb.resync(a->arg, a->lost_why, &a->lost_donor, a->lost_epoch);
}

static void tell_failed(struct avg *a, struct round *r)
{
	struct err e = *r->fail;
	uint64_t epoch = r->b.epoch;
	bool told = r->told_begin;
	a->rounds_failed++;
	round_close(r);
	if (told)
		a->cb.failed(a->arg, epoch, &e);
}

static void step_round(struct avg *a)
{
	struct round *r = a->round;
	if (r && r->contributed && !r->told_x && !r->commit)
		member_contributed(r);
	if ((r = a->round))
		member_grown(r);
	if ((r = a->round) && r->lead) {
		flow_missing_self(r);
		lead_step(r);
	}
	if (!(r = a->round))
		return;
	if (PLANTED(APPLY_WITHOUT_COMMIT) && r->acked && !r->lead && !r->commit)
		apply_without_commit(r);
	struct mate *unheard = told_step(r);
	if (unheard) {
		mate_gone(a, unheard, "does not answer");
		kick(a);
	}
	if (r->fail && !a->x_jobs)
		tell_failed(a, r);
	else if (r->commit && !told_waits(r) && flow_complete(r) && !a->x_jobs)
		apply_commit(r);
}

/* recover_on has heard of it. */
static void ask_heir(struct avg *a)
{
	uint64_t epoch = a->heir_epoch;
	struct mate *m = epoch ? mate_find(a, &a->heir) : NULL;
	a->heir_epoch = 0;
	if (m && m->member && a->state == AVG_IN && epoch == a->point.epoch + 1 && shown_needed(a))
		shown_start(a, m, AVG_BEHIND, &m->id, epoch);
}

static void kick_fire(struct timer *t)
{
	struct avg *a = container_of(t, struct avg, kick);
	a->kicked = false;
	round_reap(a, false);
	proofs_act(a);
	forked_tell(a);
	tell_lost(a);
	ask_heir(a);
	step_round(a);
	if (!a->round)
		join_kept(a);
	early_begun(a);
	roster_tell(a);
	if (a->leaving) {
		leave_step(a);
		return;
	}
	if (a->state == AVG_IN && !a->round) {
		if (a->fresh_progress || a->tell || is_leader(a))
			progress_send(a, false);
		a->fresh_progress = false;
		grant_need(a);
	}
	propose_send(a);
	if (a->state == AVG_JOINING && !a->meet.at_us)
		meet_now(a);
}
