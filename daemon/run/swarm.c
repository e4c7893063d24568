/* Between the averager and the trainer: each callback of one is a call of the other. Which strategy runs is not known
 * here; a strategy that needs no swarm simply has no averager, and positions are cut from the data in order. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "common/planted.h"
#include "run/int.h"

#define VALIDATION_RARE 20              /* times the last one's time between two */

/* ---- averager -> trainer ---- */

static void on_begin(void *arg, const struct avg_begin *b)
{
	struct run *r = arg;
	if (r->state != RUN_TRAIN || r->reached || !run_crew_seated(r) || !trainer_round_len(r->trainer)) {
		avg_contribute(r->avg, b->epoch, NULL, 0, NULL);
		return;
	}
	if (r->crew && !trainer_share_made(r->trainer))
		avg_behind(r->avg);
	trainer_begin(r->trainer, b->epoch);
}

static void record_round(struct run *r, const struct avg_commit *c, const char *outcome, const char *reason)
{
	struct store *s = r->rs->ctx.store;
	if (!s)
		return;
	json_t *without = json_array();
	char hex[ID_HEX], leader[ID_HEX];
	id_hex(&c->leader, leader);
	for (size_t i = 0; i < c->left_out_n; i++) {
		id_hex(&c->left_out[i], hex);
		json_array_append_new(without, json_string(hex));
	}
	char *text = json_dumps(without, JSON_COMPACT);
	store_round_add(s, &(struct store_round){ .run = r->hex, .leader = leader, .outcome = outcome, .reason = reason,
		.without = c->left_out_n ? text : NULL,
		.epoch = c->epoch, .term = c->term, .attempt = c->attempts, .members = c->members, .bytes_sent = c->bytes_out,
		.bytes_received = c->bytes_in, .took_us = c->end_us - c->begin_us });
	free(text);
	json_decref(without);
}

static void on_commit(void *arg, const struct avg_commit *c, const float *mean)
{
	struct run *r = arg;
	struct avg_view v;
	struct err e;
	record_round(r, c, c->left_out_n ? "done without" : "done", NULL);
	trace_round(r, c);
	r->made_last = c->members;
	if (run_crew_followed(r, c)) {
		run_take_point(r, c->point);
		run_reach(r);                   /* they are there, and go */
		return;
	}
	if (sync_commit(r, c, mean) || run_crew_passed(r, c) || (r->unsynced && !PLANTED(LEFT_UNSYNCED)))
		return;
	if (c->changed_params)
		run_record_params(r, &r->point, c->point, &c->params_author);
	avg_view(r->avg, &v);
	run_take_point(r, c->point);
	if (c->epoch >= r->unsettled)
		run_settle(r);
	r->commit = (struct run_commit){ .epoch = c->epoch, .weight = c->weight, .members = c->members,
		.minority = c->minority, .target = r->spec->mode.any || r->spec->mode.steps ? 0 : v.target };
	r->commits[c->epoch % RUN_POINTS] = r->commit;
	int rc = FAILPOINT(r->rs->ctx.env, "run.commit.keep") < 0 ? err_set(&e, ERR_NOMEM, "a fail point") :
		trainer_commit(r->trainer, c->epoch, mean, c->lease, run_crew_counted(r, c), c->weight,
			r->point.params, &e);
	if (rc && (e.code == ERR_LIMIT || e.code == ERR_NOMEM) && r->state == RUN_TRAIN && !r->crew) {
		run_log(r, LOG_WARN_, "run.resync", "epoch %llu: %s: fetching the state", (unsigned long long)c->epoch, e.text);
		r->sync_whole = false;
		run_event(r, EV_BEHIND);
		return;
	}
	if (rc) {
		err_wrap(&e, "epoch %llu", (unsigned long long)c->epoch);
		run_fail(r, &e);
		return;
	}
	if (r->spec->independent)
		run_grant_local(r, true);
	else if (r->crew)
		run_crew_commit(r, c->generation);
	else if (c->grant)
		trainer_grant(r->trainer, c->grant);
}

static void on_failed(void *arg, uint64_t epoch, const struct err *e)
{
	struct run *r = arg;
	char leader[ID_HEX];
	struct avg_view v;
	run_log(r, LOG_WARN_, "round.failed", "epoch %llu: %s", (unsigned long long)epoch + 1, e->text);
	avg_view(r->avg, &v);
	id_hex(&v.leader, leader);
	if (r->rs->ctx.store)
		store_round_add(r->rs->ctx.store, &(struct store_round){ .run = r->hex,
			.leader = id_zero(&v.leader) ? NULL : leader, .outcome = "failed", .reason = e->text, .epoch = epoch + 1,
			.term = v.term });
	if (r->state == RUN_TRAIN)
		trainer_failed(r->trainer, epoch);
}

static void on_resync(void *arg, enum avg_why why, const struct id *donor, uint64_t epoch)
{
	static const char *const word[] = { [AVG_FORK] = "this peer's history lost to a longer one",
		[AVG_BEHIND] = "the others are ahead",
		[AVG_DIVERGED] = "this peer's parameters differ from the others'", [AVG_MISSED] = "a commit was missed" };
	struct run *r = arg;
	char who[9] = "";
	if (run_over(r) || r->state == RUN_LEAVE || r->state == RUN_FINISH)
		return;
	if (r->crew) {
		run_log(r, why == AVG_BEHIND ? LOG_INFO_ : LOG_WARN_, "run.resync", "%s: following until their next COMMIT",
			word[why]);
		run_crew_behind(r);
		return;
	}
	run_log(r, why == AVG_BEHIND ? LOG_INFO_ : LOG_WARN_, "run.resync", "%s: fetching state of epoch %llu from %s",
		word[why],
		(unsigned long long)epoch, donor ? id_short(donor, who) : "the swarm");
	r->sync_whole = true;
	run_event(r, r->state == RUN_SYNC ? sync_start(r, true) : EV_BEHIND);
}

static void on_forked(void *arg, uint64_t common, uint64_t last)
{
	run_discard(arg, common, last);
}

static void on_grant(void *arg, const struct ranges *grant)
{
	struct run *r = arg;
	if (!r->trainer || r->state == RUN_SYNC)
		return;
	if (r->error.code == ERR_LIMIT)         /* there is a place now */
		r->error = (struct err){ 0 };
	if (r->spec->independent)
		run_grant_local(r, true);
	else if (!r->crew)
		trainer_grant(r->trainer, grant);
	run_event(r, EV_GRANTED);
}

static void on_event(void *arg, enum log_level level, const char *code, const struct id *peer, const char *text)
{
	struct run *r = arg;
	char who[9] = "";
	if (!strcmp(code, "refused") || !strcmp(code, "full")) {        /* at the door: `run show` says so */
		err_set(&r->error, *code == 'f' ? ERR_LIMIT : ERR_MISMATCH, "%s", text);
		run_record(r);
	}
	run_log(r, level, code, "%s%s%s", text, peer ? " peer " : "", peer ? id_short(peer, who) : "");
}

/* ---- trainer -> averager ---- */

static void on_progress(void *arg, const struct trainer_progress *p)
{
	struct run *r = arg;
	r->loss = p->loss;
	if (p->batch && p->correct >= 0)
		r->accuracy = (double)p->correct / p->batch;
	r->own_samples += p->batch;
	if (r->avg && run_crew_head(r))
		avg_share(r->avg, run_crew_share(r));
	if (r->avg)
		avg_grows(r->avg, p->grows);
	if (r->avg && run_crew_head(r))
		avg_progress(r->avg, p->samples, p->rate, r->spec->independent ? NULL : p->claimed);
	run_tell(r, false);
}

static void on_contribute(void *arg, uint64_t epoch, const real *x, uint64_t samples, const struct ranges *claimed)
{
	struct run *r = arg;
	trace_now(r);
	avg_contribute(r->avg, epoch, x, samples, r->spec->independent ? NULL : claimed);
}

static void on_contribute_part(void *arg, uint64_t epoch, const real *x, uint64_t samples, const struct ranges *claimed,
	size_t lo, size_t hi)
{
	struct run *r = arg;
	trace_now(r);
	avg_contribute_part(r->avg, epoch, x, samples, r->spec->independent ? NULL : claimed, lo, hi);
}

static void record_epoch(struct run *r, const struct trainer_applied *a)
{
	uint64_t now = env_now(r->rs->ctx.env);
	r->epoch_took[r->nepochs++ % EXEC_TIMES_KEPT] = now - r->epoch_started_us;
	if (r->rs->ctx.store) {
		run_put_epoch(r, a, false);
		store_run_update(r->rs->ctx.store, r->hex, NULL, NULL, a->epoch, r->point.samples);
	}
	r->epoch_started_us = now;
	r->recorded = a->epoch;
}

/* A strategy without a swarm commits by itself: the point advances with what was applied. */
static void advance_alone(struct run *r, const struct trainer_applied *a)
{
	r->point.epoch = a->epoch;
	r->point.samples += a->samples;
	r->made_last = 1;
	if (a->claimed)
		ranges_add_all(&r->point.done, a->claimed);
	run_grant_local(r, false);
}

/* An order of this peer's own: what a commit has taken is behind it; what was left out comes again. */
static void advance_own(struct run *r, const struct trainer_applied *a)
{
	if (a->samples && a->claimed)
		ranges_add_all(&r->walked, a->claimed);
	run_grant_local(r, true);
}

/* Where the spec is silent: a twentieth of the time, whatever a validation takes on this machine; members of one plan
 * go by what all know. */
static bool validation_due(const struct run *r, uint64_t epoch)
{
	uint64_t every = r->spec->validation_every;
	if (r->crew)
		return run_crew_validates(r, epoch);
	if (every != SPEC_VALIDATION_AUTO)
		return every && epoch % every == 0;
	return !r->val_took_us || env_now(r->rs->ctx.env) - r->val_done_us >= VALIDATION_RARE * r->val_took_us;
}

static void on_applied(void *arg, const struct trainer_applied *a)
{
	struct run *r = arg;
	if (sync_applied(r, a) || (r->unsynced && a->epoch > r->point.epoch))
		return;
	if (!r->avg)
		advance_alone(r, a);
	else if (r->spec->independent)
		advance_own(r, a);
	if (a->skipped)
		run_log(r, LOG_WARN_, "step.nonfinite", "epoch %llu: the mean gradient is not finite; the step was skipped",
		(unsigned long long)a->epoch);
	if (!isnan(a->loss))
		r->epoch_loss = a->loss;
	run_applied_point(r);
	record_epoch(r, a);
	run_crew_take_result(r);
	if (r->avg)
		avg_applied(r->avg, a->epoch, a->digest);
	if (validation_due(r, a->epoch) && (!r->validating || r->crew) && !run_goal(r) && r->state == RUN_TRAIN) {
		r->validating = true;
		r->val_epoch = a->epoch;
		trainer_validate(r->trainer, false);
	}
	if (ckpt_due(r, a->epoch) && !r->saving && !run_goal(r) && r->state == RUN_TRAIN && r->rs->ctx.state_dir)
		run_save(r, NULL);
	run_tell(r, false);
	run_reach(r);
	if (a->epoch == r->point.epoch)
		run_event(r, run_again_check(r));
	run_again_more(r);
}

static void on_validated(void *arg, const struct trainer_validated *v)
{
	struct run *r = arg;
	r->validating = false;
	if (v->samples) {
		run_take_result(r, v);
		run_crew_validated(r, v);
		run_crew_reached(r, v->accuracy);
	}
	run_tell(r, true);
	if (r->state == RUN_FINISH)
		run_finish_more(r);
	else
		run_reach(r);
}

static void on_idle(void *arg)
{
	struct run *r = arg;
	if (!r->avg || r->spec->independent)
		run_grant_local(r, false);
}

static void on_broken(void *arg, const struct err *e)
{
	run_fail(arg, e);
}

/* Too many broken files, or losses that are no numbers: this peer holds, and says why, until somebody has looked. */
static void on_halted(void *arg, const struct err *e)
{
	struct run *r = arg;
	r->error = *e;
	r->held = r->spec->local.hold = true;
	if (e->code == ERR_NONFINITE)
		run_log(r, LOG_ERROR_, "run.nonfinite", "held on this peer: %s; then: hivectl run hold %s --off", e->text,
			r->name);
	else
		run_log(r, LOG_ERROR_, "run.hold", "held on this peer: %s; mend or remove them, or go on without: hivectl run "
			"hold %s --off", e->text, r->name);
	run_effective_pause(r);
}

static void on_trainer_event(void *arg, enum log_level level, const char *code, const char *text)
{
	run_log(arg, level, code, "%s", text);
}

const struct trainer_cb run_trainer_cb = { .progress = on_progress, .contribute = on_contribute,
	.contribute_part = on_contribute_part, .applied = on_applied,
	.validated = on_validated, .idle = on_idle, .broken = on_broken, .event = on_trainer_event,
	.halted = on_halted, .unseated = run_crew_cut };

static struct lease *on_room(void *arg, size_t bytes)
{
	struct run *r = arg;
	return r->trainer ? trainer_room(r->trainer, bytes) : NULL;
}

static bool on_overflows(void *arg)
{
	struct run *r = arg;
	return r->trainer && trainer_overflows(r->trainer);
}

/* ---- entering ---- */

static const struct avg_cb swarm_cb = { .begin = on_begin, .commit = on_commit, .failed = on_failed,
	.resync = on_resync, .forked = on_forked, .grant = on_grant, .event = on_event, .may_change = run_may_change,
	.room = on_room, .overflows = on_overflows };

int run_swarm_open(struct run *r, struct err *e)
{
	struct runs_ctx *c = &r->rs->ctx;
	const struct spec *s = r->spec;
	struct avg_tensor *tensors;
	if (!trainer_needs_swarm(r->trainer))
		return s->local.aux ? err_set(e, ERR_INVALID, "local.aux: the strategy %s has no members to help",
			s->strategy) : 0;
	struct avg_conf conf = { .run = r->id, .target_batch = spec_epoch_samples(s, s->target_batch),
		.each = s->mode.steps, .any = s->mode.any, .len = trainer_contribution_len(r->trainer),
		.data_samples = data_count(r->data, DATA_TRAIN), .unordered = s->independent, .group_max = s->group_max,
		.group_size = s->group_size, .topology = s->topology, .agree_every = s->agree_every,
		.minority_wait_rounds = s->minority_wait,
		.client = conf_bool(c->conf, "network", "client"), .aux = s->local.aux,
		.micro_batch = s->local.batch, .hashes = c->hashes };
	conf.tensors = tensors = trainer_roles(r->trainer, &conf.ntensors);
	conf.codec = (json_t *)s->codec;
	conf.dealt = trainer_has_crew(r->trainer);
	conf.robust = s->robust;
	conf.error_feedback = s->error_feedback;
	struct avg_cb cb = swarm_cb;
	if (trainer_has_crew(r->trainer))
		cb.roster = run_crew_roster;
	r->avg = avg_new(c->env, c->net, c->chunks, c->dht, &conf, &cb, r, e);
	free(tensors);
	return r->avg ? run_crew_open(r, e) : -1;
}
