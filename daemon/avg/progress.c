/* Samples towards the target batch: members report straight to the leader, seldom while the target is far and at once
 * when it may be near; the leader begins the round. */
#include <string.h>
#include "avg/claims.h"
#include "avg/int.h"
#include "avg/share.h"
#include "avg/units.h"
#include "common/jrpc.h"

#define GRACE_US (3 * MS)
#define SHORT_TRIPS 4                           /* an epoch of less is spent on averaging, for the most part */

/* ---- member: telling ---- */

static uint64_t interval(const struct avg *a)
{
	uint64_t us = a->epoch_us / 50;
	return us > 2 * MS ? (us < HEARTBEAT_US ? us : HEARTBEAT_US) : 2 * MS;
}

/* The leader is somewhere else, or nobody: two heartbeats in a row say so, or it itself. Who has come to lead three
 * times without being there only asks to be let in. */
static void beat_answered(void *arg, const struct frame *f, const struct err *e)
{
	struct avg *a = arg;
	a->beat_call = NULL;
	if (f) {
		a->beat_misses = 0;
	} else if (a->state == AVG_IN && a->leader && id_eq(&a->leader->id, &a->beat_to) && !is_leader(a) &&
		(++a->beat_misses >= 2 || (e->code == ERR_STATE && !PLANTED(LEADS_ABSENT)))) {
		a->beat_misses = 0;
		if (e->code == ERR_STATE)
			roster_led_over(a, a->leader);
		hub_event(a, LOG_WARN_, "silent leader", &a->beat_to,
			"it does not take our reports (%s): the next in order takes over", e->text);
		mate_gone(a, a->leader, "does not lead");
	}
}

static void post(struct avg *a, bool beat)
{
	json_t *j = hub_json(a);
	uint64_t bw = 0;
	struct peer_info info;
	if (net_peer(a->net, &a->leader->id, &info))
		bw = info.bandwidth_bps;
	json_object_set_new(j, "epoch", json_integer((json_int_t)a->point.epoch));
	json_object_set_new(j, "prev", json_hex(a->point.prev, DIGEST));
	json_object_set_new(j, "samples", json_integer((json_int_t)a->samples));
	json_object_set_new(j, "rate", json_real(a->rate));
	json_put_hashes(j, a->conf.hashes);
	if (a->me->share)
		json_object_set_new(j, "share", json_integer((json_int_t)a->me->share));
	if (a->term)
		json_object_set_new(j, "term", json_integer(a->term));
	json_object_set_new(j, "bw", json_integer((json_int_t)bw));
	json_object_set_new(j, "hold", json_boolean(a->hold));
	json_object_set_new(j, "follows", json_boolean(a->me->flags & MATE_FOLLOWER));
	if (a->digest_epoch && a->digest_epoch == a->point.epoch)
		json_object_set_new(j, DIGEST_KEY, json_hex(a->digest, 16));
	json_t *held = grant_held(a);
	if (held)
		json_object_set_new(j, "held", held);
	a->told_samples = a->samples;
	a->told_us = now_of(a);
	a->tell = false;
	MARK(a, "avg.progress.before");
	if (beat && !a->beat_call) {
		a->beat_to = a->leader->id;
		a->beat_call = net_call(a->net, &a->leader->id, KIND_AVG_PROGRESS, j, NO_BLOB, CLASS_control,
			net_deadline(a->net, &a->leader->id, 2 * HEARTBEAT_US), beat_answered, a);
	} else {
		net_post(a->net, &a->leader->id, KIND_AVG_PROGRESS, j, NO_BLOB, CLASS_control);
	}
	MARK(a, "avg.progress.after");
}

void progress_send(struct avg *a, bool now)
{
	uint64_t next = a->told_us + interval(a);
	if (a->state != AVG_IN || !a->leader || (a->me->flags & MATE_FOLLOWER))
		return;
	a->me->rate = a->rate;
	a->me->flags = (uint8_t)((a->me->flags & ~MATE_HOLD) | (a->hold ? MATE_HOLD : 0));
	if (is_leader(a)) {
		if (!a->me->counted || a->me->epoch != a->point.epoch) {
			a->me->epoch = a->point.epoch;
			memcpy(a->me->prev, a->point.prev, DIGEST);
			roster_sum(a);
		}
		if (a->samples != a->me->samples)
			a->me->heard_us = now_of(a);
		a->sum += a->samples - a->me->samples;
		a->me->samples = a->samples;
		a->tell = false;
		progress_trigger(a);
		return;
	}
	now = now || a->tell || a->conf.any || (double)a->samples >= 0.85 * share_of(a, a->me);
	if (now || now_of(a) >= next)
		post(a, false);
	else
		env_timer(a->env, &a->beat, next);
}

/* Members report every HEARTBEAT_US or sooner. The leader looks whether those live who do not: samples of a dead one
 * must not be counted, or the epoch ends with fewer than its target. */
static void look_at_silent(struct avg *a)
{
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		uint64_t last = m->report_us > a->commit_us ? m->report_us : a->commit_us;
		roster_silent(a, m, is_leader(a) && m != a->me && m->member && m->live && now_of(a) >= last + 2 * HEARTBEAT_US);
	}
}

/* This peer has brought what an epoch asks of it, or is given nothing more though there is some. */
static bool has_brought(const struct avg *a)
{
	if (a->conf.each || a->conf.any)
		return a->samples >= (a->conf.any ? 1 : share_quota(a, a->me));
	if (a->samples && (double)a->samples >= share_of(a, a->me))
		return true;
	if (a->conf.dealt)                      /* nobody is given any: it is still at work, or is given its part */
		return false;
	if (a->conf.unordered || ranges_count(&a->me->grant) > ranges_count(&a->claimed))
		return false;
	struct ranges taken = { 0 };
	taken_all(a, &taken);
	bool more = !a->conf.data_limit || ranges_count(&taken) < a->conf.data_limit;
	ranges_free(&taken);
	return more || a->samples;
}

/* A leader that answers, and does not begin: after eight epochs' time in which this peer has nothing to add it is
 * passed over, and twice as long after the next. Who has been passed over before has half as long. */
static void look_at_leader(struct avg *a)
{
	bool idle = a->leader && !is_leader(a) && !a->round && !a->recover && !a->leaving &&
		!(a->me->flags & (MATE_FOLLOWER | MATE_AUX | MATE_HOLD)) && has_brought(a) && units_mine(a);
	uint64_t now = now_of(a);
	if (a->idle_gen != a->gen || !idle || !a->idle_us || a->lead_us > a->idle_us) {
		a->idle_passed = a->idle_gen == a->gen ? a->idle_passed : 0;
		a->idle_gen = a->gen;
		a->idle_us = idle ? now : 0;
		return;
	}
	if (now - a->idle_us < share_patience(a))
		return;
	a->idle_passed += a->idle_passed < 6;
	roster_unfit(a, a->leader, "it answers, but it has not begun a round for long");
}

void progress_beat(struct timer *t)
{
	struct avg *a = container_of(t, struct avg, beat);
	env_after(a->env, &a->beat, HEARTBEAT_US);
	if (a->state == AVG_IN && a->leader && !is_leader(a) && !a->leaving && now_of(a) - a->told_us >= HEARTBEAT_US / 2)
		post(a, true);                  /* in a round, too: should it be over elsewhere, the answer tells */
	else if (a->state == AVG_IN && !a->round && !a->leaving)
		progress_send(a, true);
	if (a->state == AVG_IN && !a->round)
		look_at_silent(a);
	if (a->state == AVG_IN)
		look_at_leader(a);
	if (a->state == AVG_IN)
		grant_need(a);
}

/* ---- leader: hearing ---- */

/* What would do: enough to work at for longer than averaging takes, which is three round trips, and the one in which
 * its COMMIT is held by others before a leader goes on. */
static void too_short(struct avg *a)
{
	uint64_t now = now_of(a), rtt = 0;
	double rates = 0;
	struct peer_info info;
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		rates += share_brings(m) ? m->rate : 0;
		if (m != a->me && m->member && m->live && net_peer(a->net, &m->id, &info) && info.rtt_us > rtt)
			rtt = info.rtt_us;
	}
	if (!rtt || a->epoch_us >= SHORT_TRIPS * rtt || !a->epoch_us || !(rates > 0))
		return;
	a->short_told_us = now;
	hub_event(a, LOG_WARN_, "target batch size too small", NULL,
		"an epoch takes %llu us and a round trip %llu us: most of the time goes into averaging; a target batch of %llu "
		"samples would do", (unsigned long long)a->epoch_us, (unsigned long long)rtt,
		(unsigned long long)(rates * 1e-6 * SHORT_TRIPS * (double)rtt) + 1);
}

/* The target is reached, but a member's micro-batch ends within a moment: BEGIN would throw it away. Peers that work in
 * step so bring the same number of micro-batches. The moment is an eighth of a micro-batch, at most GRACE_US. */
static bool about_to_report(struct avg *a)
{
	uint64_t now = now_of(a), wait = 0;
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		uint32_t micro = m == a->me ? a->conf.micro_batch : m->micro;
		if (!m->member || !m->live || !m->awaited || (m->flags & (MATE_FOLLOWER | MATE_HOLD | MATE_AUX)) ||
			!(m->rate > 0) || !micro)
			continue;
		uint64_t step = (uint64_t)((double)micro * 1e6 / m->rate), grace = step / 8 < GRACE_US ? step / 8 : GRACE_US;
		uint64_t due = (m->heard_us > a->commit_us ? m->heard_us : a->commit_us) + step;
		if (due + grace >= now && due <= now + grace && due + grace - now > wait)
			wait = due + grace - now;
	}
	if (!wait)
		return false;
	env_after(a->env, &a->beat, wait + 1);
	return true;
}

/* From when on those who are not there yet are too late: three times what an epoch takes, or what the first unit has
 * taken for its share; else a slow one would set the pace, and epochs take as long as it. */
static uint64_t late_after(const struct avg *a, uint64_t begun, uint64_t first)
{
	uint64_t us = 3 * (a->units ? first - begun : a->epoch_us), least = a->units ? SECOND : 2 * SECOND;
	return begun + (us > least ? us : least);
}

/* Every member has its micro-batches, each unit of which all members live its share, or whoever has not is far too
 * late. Who was left out of the last round is waited for when it has reported again; without others it is enough. */
static bool all_there(struct avg *a)
{
	uint64_t begun = a->commit_us > a->enter_us ? a->commit_us : a->enter_us, first = now_of(a);
	size_t done = 0, missing = 0;
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		if (!share_brings(m) || !units_whole(a, m))
			continue;
		bool has = share_made(a, m);
		m->done_us = !has ? 0 : m->done_us > begun ? m->done_us : now_of(a);
		first = has && m->done_us < first ? m->done_us : first;
		done += has;
		missing += !has && (m->awaited || m == a->me);
	}
	if (!missing || !done)
		return done > 0;
	uint64_t late = late_after(a, begun, first);
	if (now_of(a) >= late)
		return true;
	env_after(a->env, &a->beat, late - now_of(a) < HEARTBEAT_US ? late - now_of(a) : HEARTBEAT_US);
	return false;
}

void progress_trigger(struct avg *a)
{
	if (a->state != AVG_IN || !is_leader(a) || a->round || a->recover || a->leaving || a->lost_pending)
		return;
	if (!PLANTED(ROLES_AS_SAID))
		units_roles(a);                 /* whoever asks to come in says what it was before */
	if (share_each(a) ? !all_there(a) : a->sum < progress_goal(a))
		return;
	if (a->samples == 0 && roster_others(a, false) == 0)
		return;
	if (meet_expects(a))
		return;
	if (now_of(a) < a->wait_us)             /* the last round came to nothing */
		return;
	if (now_of(a) < a->stay_us) {           /* its owner needs this point for a moment longer */
		env_timer(a->env, &a->beat, now_of(a) + HEARTBEAT_US < a->stay_us ? now_of(a) + HEARTBEAT_US : a->stay_us);
		return;
	}
	if (room_wait(a) || (!share_each(a) && !a->conf.any && about_to_report(a)))
		return;
	if (!a->conf.any && a->rounds_done > 10 && (!a->short_told_us || now_of(a) - a->short_told_us > 60 * SECOND))
		too_short(a);
	lead_begin(a);
}

/* More members with other parameters than with ours: then it is this peer that is wrong. */
static void diverged(struct avg *a, struct mate *m)
{
	size_t mine = 1, others = 0;
	list_each(it, &a->mates) {
		struct mate *o = list_entry(it, struct mate, link);
		if (o == a->me || !o->member || !o->live || o->digest_epoch != a->digest_epoch)
			continue;
		if (!memcmp(o->digest, a->digest, 16))
			mine++;
		else if (!memcmp(o->digest, m->digest, 16))
			others++;
	}
	if (others > mine) {
		lost(a, AVG_DIVERGED, &m->id, a->point.epoch);
		return;
	}
	hub_event(a, LOG_WARN_, "diverged", &m->id,
		"its parameters of epoch %llu differ from the majority's; it fetches them anew",
			(unsigned long long)a->digest_epoch);
	json_t *j = hub_json(a);
	json_object_set_new(j, "why", json_string("diverged"));
	json_object_set_new(j, "id", json_hex(a->me->id.b, 32));
	json_object_set_new(j, "epoch", json_integer((json_int_t)a->point.epoch));
	net_post(a->net, &m->id, KIND_AVG_REDIRECT, j, NO_BLOB, CLASS_control);
}

static void misplaced(struct avg *a, struct mate *m)
{
	room_late(a, m, m->epoch, m->prev);
	if (m->epoch > a->point.epoch) {        /* a commit that has not reached this peer yet, or never will */
		if (now_of(a) - a->commit_us > SECOND && m->epoch != a->ahead_epoch) {
			a->ahead_epoch = m->epoch;
			join_start(a, m);
		}
		return;
	}
	if (m == a->leader && same_point(a, m->epoch, m->prev)) {
		recover_contradicted(a, m);     /* a leader reports to nobody: it takes us for the leader */
		return;
	}
	if (m->epoch + 1 == a->point.epoch && now_of(a) - a->commit_us < 200 * MS)
		return;                         /* its commit is on the way */
	redirect_to(a, m, "redirect");
}

void progress_on(struct avg *a, struct request *req)
{
	uint64_t epoch, samples, bw = 0, share = 0, term = 0;
	uint8_t prev[DIGEST];
	bool hold = false, follows = true;
	struct err e;
	struct mate *m = mate_find(a, &req->f.from);
	if (req->wants_reply) {
		if (a->state == AVG_IN && (!a->leaving || commit_owed(a, &req->f.from)))        /* it stays until then */
			net_reply(req, NULL, NO_BLOB);
		else {
			err_set(&e, ERR_STATE, "this peer is not in the swarm now");
			net_refuse(req, &e);
		}
	}
	if (a->state != AVG_IN || json_get_u64(req->f.json, "epoch", &epoch, &e) || json_get_u64(req->f.json, "samples",
		&samples, &e) ||
			json_get_hex(req->f.json, "prev", prev, DIGEST, &e) || samples >> 48)
		return;
	if (!m && !(m = mate_make(a, &req->f.from)))
		return;
	m->report_us = now_of(a);
	if (!m->live && m->member) {
		m->live = true;
		roster_elect(a);
	}
	json_get_f64(req->f.json, "rate", &m->rate, &e);
	m->rate = m->rate > 0 ? m->rate : 0;
	m->hashes = json_get_hashes(req->f.json, a->conf.hashes);
	if (!json_get_u64(req->f.json, "bw", &bw, &e) && bw)
		m->bandwidth = bw;
	json_get_u64(req->f.json, "share", &share, &e);
	m->share = share >> 48 ? 0 : share;
	json_get_bool(req->f.json, "hold", &hold, &e);
	if (hold != !!(m->flags & MATE_HOLD) && !PLANTED(HOLD_UNTOLD))
		kick(a);                        /* the owner hears of it */
	m->flags = (uint8_t)((m->flags & ~MATE_HOLD) | (hold ? MATE_HOLD : 0));
	if (m->counted)
		a->sum -= m->samples;
	m->epoch = epoch;
	memcpy(m->prev, prev, DIGEST);
	if (samples != m->samples)
		m->heard_us = now_of(a);
	m->samples = samples;
	m->counted = m->member && m->live && !(m->flags & MATE_FOLLOWER) && same_point(a, epoch, prev);
	if (m->counted)
		a->sum += samples;
	json_get_bool(req->f.json, "follows", &follows, &e);    /* no longer, as another leader knows, who is gone: JOIN */
	follows = follows && is_leader(a) && m->member && (m->flags & MATE_FOLLOWER) && same_point(a, epoch, prev);
	if (!is_leader(a) || !m->counted) {
		if (!follows && !(a->round && m->epoch == a->point.epoch && m->counted))
			misplaced(a, m);
		return;
	}
	json_get_u64(req->f.json, "term", &term, &e);
	if (term < a->term && !PLANTED(TERM_UNTOLD))
		redirect_to(a, m, "term");      /* it follows, and does not know by what right */
	m->awaited = m->awaited || epoch >= m->skip_epoch;
	grant_told(a, m, json_object_get(req->f.json, "held"));
	room_came(a, m);
	if (!json_get_hex(req->f.json, DIGEST_KEY, m->digest, 16, &e)) {
		m->digest_epoch = epoch;
		if (epoch == a->digest_epoch && memcmp(m->digest, a->digest, 16))
			diverged(a, m);
	}
	progress_trigger(a);
}
