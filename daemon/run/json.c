/* What people and programs see of a run: the run object of control/api.h, and news to those who watch. */
#include <math.h>
#include <string.h>
#include "run/int.h"

#define TELL_US 100000

static void put_real(json_t *o, const char *key, double v)
{
	if (isfinite(v))
		json_object_set_new(o, key, json_real(v));
}

/* Of text the loss is nats per token, and people know exp of that: among how many tokens the model still hesitates. */
static void put_perplexity(const struct run *r, json_t *o, const char *key, double loss)
{
	if (data_find(r->spec->data_kind)->tokens && r->spec->loss->target == TARGET_CLASS && !r->spec->objective.smoothing)
		put_real(o, key, exp(loss));
}

void run_put_count(json_t *o, const char *key, uint64_t v)
{
	json_object_set_new(o, key, json_integer((json_int_t)v));
}

static double progress_of(const struct run *r, double swarm_rate, uint64_t in_epoch, double *ret_eta_s)
{
	const struct spec *s = r->spec;
	double done = 0, total = 0;
	uint64_t target = run_target(r);
	*ret_eta_s = NAN;
	if (r->state == RUN_DONE)
		return 1;
	double part = target ? (double)in_epoch / (double)target : 0;
	if (s->stop_epochs) {
		total = (double)s->stop_epochs;
		done = (double)r->point.epoch + (part < 1 ? part : 1);
	} else if (s->stop_samples) {
		total = (double)s->stop_samples;
		done = (double)(r->point.samples + in_epoch);
	} else
		return NAN;
	double left = (total - done) * (s->stop_epochs ? (double)target : 1.0);
	if (swarm_rate > 0 && left >= 0)
		*ret_eta_s = left / swarm_rate;
	return done < total ? done / total : 1;
}

/* ret_n: those that live. */
static json_t *members_json(struct run *r, size_t *ret_n)
{
	struct avg_member m[RUN_PEERS_SHOWN];
	size_t n = avg_members(r->avg, m, RUN_PEERS_SHOWN);
	json_t *list = json_array();
	*ret_n = n > RUN_PEERS_SHOWN ? n - RUN_PEERS_SHOWN : 0;
	for (size_t i = 0; i < n && i < RUN_PEERS_SHOWN; i++) {
		char hex[ID_HEX];
		*ret_n += m[i].live;
		id_hex(&m[i].id, hex);
		const char *state = m[i].gone ? "dead" : !m[i].live ? "unknown" : m[i].hold ? "held" : m[i].follower ?
			"syncing" : m[i].leader ? "leader" : m[i].aux ? "helping" : "training";
		json_t *o = json_pack("{s:s,s:f,s:I,s:s,s:b}", "id", hex, "samples_per_s", m[i].rate, "samples_epoch",
			(json_int_t)m[i].samples,
			"state", state, "self", id_eq(&m[i].id, net_self(r->rs->ctx.net)));
		if (m[i].absent[0])
			json_object_set_new(o, "absent", json_string(m[i].absent));
		if (m[i].odd > 1)
			run_put_count(o, "out_of_line", m[i].odd);
		json_array_append_new(list, o);
	}
	return list;
}

static void put_swarm(struct run *r, json_t *o, double *ret_rate, uint64_t *ret_samples)
{
	struct avg_view v;
	size_t n;
	avg_view(r->avg, &v);
	json_object_set_new(o, "peers", members_json(r, &n));
	if (!run_over(r))
		run_put_count(o, "members", n);
	json_object_set_new(o, "averaging", json_string(v.state));
	run_put_count(o, "rounds", v.rounds_done);
	run_put_count(o, "rounds_without", v.rounds_without);
	run_put_count(o, "rounds_failed", v.rounds_failed);
	run_put_count(o, "round_us", v.last_round_us);
	run_put_count(o, "residuals_dropped", v.residuals_dropped);
	put_real(o, "epoch_eta_s", (double)v.eta_us / 1e6);
	if (r->commit.weight && r->commit.target)       /* how far the last epoch went beyond its target */
		put_real(o, "overshoot", (double)r->commit.weight / (double)r->commit.target - 1);
	*ret_rate = v.rate_total;
	*ret_samples = v.total_samples;
}

/* Of a run that is over nobody is there any more: who made its last epoch; unknown when it has heard of none. */
static void put_members(const struct run *r, json_t *o)
{
	uint32_t n = !run_over(r) ? 1 : r->made_last ? r->made_last : r->was_members;
	if (n)
		run_put_count(o, "members", n);
}

json_t *run_json(struct run *r)
{
	double rate = 0, eta;
	uint64_t in_epoch = 0;
	struct trainer_view v = { 0 };
	json_t *o = json_pack("{s:s,s:s,s:s,s:s,s:s,s:I,s:I,s:I,s:I}", "run", r->hex, "name", r->name, "author",
		r->author_hex,
		"state", run_state_name(r), "strategy", r->spec->strategy, "epoch", (json_int_t)r->point.epoch,
		"epochs", (json_int_t)r->spec->stop_epochs, "samples", (json_int_t)r->point.samples, "target_batch",
		(json_int_t)run_target(r));
	if (r->trainer) {
		trainer_view(r->trainer, &v);
		rate = v.rate;
		in_epoch = v.samples;
		put_real(o, "own_samples_per_s", v.rate);
		put_real(o, "lr", v.lr);
	}
	if (r->avg)
		put_swarm(r, o, &rate, &in_epoch);
	if (!r->avg || run_over(r))
		put_members(r, o);
	put_real(o, "samples_per_s", rate);
	run_put_count(o, "samples_epoch", in_epoch);
	put_real(o, "loss", isfinite(r->epoch_loss) ? r->epoch_loss : r->loss);
	put_perplexity(r, o, "perplexity", isfinite(r->epoch_loss) ? r->epoch_loss : r->loss);
	put_real(o, "accuracy", r->accuracy);
	put_real(o, "val_loss", r->val_loss);
	put_perplexity(r, o, "val_perplexity", r->val_loss);
	put_real(o, "val_accuracy", r->val_accuracy);
	put_real(o, "best_accuracy", r->best_accuracy);
	put_real(o, "progress", progress_of(r, rate, in_epoch, &eta));
	put_real(o, "eta_s", eta);
	if (r->error.code)
		json_object_set_new(o, "error", json_string(r->error.text));
	if (run_over(r))
		json_object_set_new(o, "final", json_true());
	return o;
}

static void tell_fire(struct timer *t)
{
	struct run *r = container_of(t, struct run, tell);
	r->tell_again = false;
	run_tell(r, true);
}

void run_tell(struct run *r, bool now)
{
	struct runs_ctx *c = &r->rs->ctx;
	uint64_t t = env_now(c->env);
	if (!c->news || !r->spec || id_zero(&r->id))
		return;
	if (!now && t < r->told_us + TELL_US) {
		if (!r->tell_again) {
			r->tell_again = true;
			r->tell.fire = tell_fire;
			env_timer(c->env, &r->tell, r->told_us + TELL_US);
		}
		return;
	}
	r->told_us = t;
	json_t *o = run_json(r);
	c->news(c->news_arg, "run", r->hex, o);
	json_decref(o);
}
